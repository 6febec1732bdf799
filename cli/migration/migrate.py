"""The migration of a single node to ZooKeeper, step by step.

    1   The node's directories are locked; its metadata, its ids and its note are read.
    2   What is in ZooKeeper is compared with them. All refusals are before the first write.
    3   The note says BEGUN: from now on the node starts neither with ZooKeeper nor without.
    4   What is missing in ZooKeeper is written.
    5   All of it is read back and compared again.
    6   The note says COMPLETE: from now on the node starts with ZooKeeper only.

If it ends between any two steps, or within one, it can be run again: it begins at 1, and finds in 2 what is there. Once
it is complete, running it again compares, and writes nothing: the node may have changed what is in ZooKeeper, and even
if that is gone, its own files may be out of date.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

from odradek.broker.background.background import Background
from odradek.broker.metadata_store.factory import zookeeper_store_of
from odradek.broker.metadata_store.interface import MetadataStore
from odradek.broker.metadata_store.migration_note import BEGUN, COMPLETE, MigrationNote, why_not_without_zookeeper
from odradek.broker.settings.config import BrokerConfig
from odradek.cli.migration.copying import write
from odradek.cli.migration.entries import MigrationError
from odradek.cli.migration.node import StoppedNode, stopped_node
from odradek.cli.migration.target import Comparison, compare
from odradek.storage.files import Files
from odradek.timer import Clock

Say = Callable[[str], None]
"""Prints a line about what was done."""


async def migrate(
    config: BrokerConfig,
    *,
    broker_id: int | None,
    files: Files,
    clock: Clock,
    source: random.Random,
    say: Say,
    is_dry_run: bool = False,
) -> None:
    """Copies the metadata in `log.dirs` to `zookeeper.connect`, as the other settings of `zookeeper.*` say. `broker_id`
    is that of the settings, None if they do not name it. A dry run writes nothing.

    Raises MigrationError, StartError, ConfigError, MetaPropertiesError, MetadataStoreError and OSError.
    """
    config.check_protection()
    with stopped_node(files, config.log_dirs) as node:
        node.check_owner(node.broker_id if broker_id is None else broker_id)
        background = Background()
        store = zookeeper_store_of(config, files, background, source, creates_chroot=not is_dry_run)
        migration = Migration(node, store, config.zookeeper_connect or "", clock, say)
        migration.introduce()
        try:
            await store.open()
            comparison = await migration.compared()
            if is_dry_run:
                say("dry run: nothing was written")
            else:
                await migration.copy(comparison)
        finally:
            await store.close()
            await background.stop()


class Migration:
    """Steps 2 to 6, with an open store; `place` is the value of zookeeper.connect."""

    def __init__(self, node: StoppedNode, store: MetadataStore, place: str, clock: Clock, say: Say) -> None:
        self._node = node
        self._store = store
        self._place = place
        self._clock = clock
        self._say = say

    def introduce(self) -> None:
        """Says what is going to be copied. Raises MigrationError if it was copied to another place."""
        node, entries = self._node, self._node.entries
        self._say(
            f"{node.directory}: cluster {node.cluster_id}, broker {node.broker_id}; {entries.topics} topics, "
            f"{entries.partitions} partitions, {len(entries.copied)} entries"
        )
        if node.note is not None and node.note.zookeeper_connect != self._place:
            self._check_incomplete()

    async def compared(self) -> Comparison:
        """Step 2. Raises MigrationError."""
        node, total = self._node, len(self._node.entries.copied)
        try:
            found = await compare(self._store, self._place, node.entries.copied)
        except MigrationError as error:
            self._check_incomplete(error)
            raise
        there = f"{total - found.missing} of {total} entries are there"
        self._say(f"ZooKeeper at {self._place}: {'empty' if found.is_empty else there}")
        if found.missing:
            self._check_incomplete()
        return found

    def _check_incomplete(self, cause: MigrationError | None = None) -> None:
        """Raises MigrationError if the node was migrated."""
        note = self._node.note
        if note is not None and note.is_complete:
            raise MigrationError(why_not_without_zookeeper(note, self._node.directory)) from cause

    async def copy(self, found: Comparison) -> None:
        """Steps 3 to 6. Raises MigrationError."""
        node, total = self._node, len(self._node.entries.copied)
        if node.note is None or not node.note.is_complete:
            self._note(BEGUN)
            pieces = await write(self._store, self._place, found.units)
            self._say(f"copied: {found.missing} entries in {pieces} {'piece' if pieces == 1 else 'pieces'}")
            if (await compare(self._store, self._place, node.entries.copied)).missing:
                raise MigrationError(f"ZooKeeper at {self._place} has lost entries: run the same command again")
            self._note(COMPLETE)
        self._say(f"compared: all {total} entries are in ZooKeeper as they are in {node.directory}")
        self._say(f"start broker {node.broker_id} with zookeeper.connect={self._place} now; it does not start without")

    def _note(self, state: str) -> None:
        now = datetime.fromtimestamp(self._clock.wall_ms() // 1000, UTC)
        self._node.write_note(MigrationNote(self._place, state, now.isoformat().replace("+00:00", "Z")))
