"""A migration that is killed before or after any of its writes is completed by the next one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.broker.background.background import Background
from odradek.broker.controller import pieces
from odradek.broker.metadata_store.embedded_store import EmbeddedMetadataStore
from odradek.broker.metadata_store.factory import metadata_store_of
from odradek.broker.metadata_store.interface import StoreUnavailable
from odradek.broker.metadata_store.migration_note import NAME
from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore
from odradek.broker.start_error import StartError
from odradek.storage.files import Files
from tests.cli.migration.nodes import DIRECTORY, IDS_GIVEN, Migrations, data_of, disk, is_copied, stopped_node
from tests.memory_files import ForgetfulFiles
from tests.zookeeper.stores import new_chroot

OPERATIONS_IN_A_PIECE = 10
LEAST_WRITES = 6


class Killed(Exception):
    """The process ends here."""


class Killer:
    """Counts the writes to the disk and to ZooKeeper, and kills at one of them: before it, or after it."""

    def __init__(self, write: int, is_before: bool) -> None:
        self.write = write
        self.is_before = is_before
        self.writes = 0

    def before(self) -> None:
        self.writes += 1
        if self.is_before and self.writes == self.write:
            raise Killed

    def after(self) -> None:
        if not self.is_before and self.writes == self.write:
            raise Killed


def arm(monkeypatch: pytest.MonkeyPatch, killer: Killer) -> None:
    pipeline, replace_file = ZooKeeperStore.pipeline, ForgetfulFiles.replace_file

    async def watched_pipeline(store: ZooKeeperStore, groups: Sequence[Any]) -> Any:
        killer.before()
        outcomes = await pipeline(store, groups)
        killer.after()
        return outcomes

    def watched_replace_file(files: ForgetfulFiles, path: str, data: bytes, *, sync: bool = True) -> None:
        if not path.endswith(NAME):
            return replace_file(files, path, data, sync=sync)
        killer.before()
        replace_file(files, path, data, sync=sync)
        return killer.after()

    monkeypatch.setattr(ZooKeeperStore, "pipeline", watched_pipeline)
    monkeypatch.setattr(ForgetfulFiles, "replace_file", watched_replace_file)


@pytest.mark.parametrize("is_before", [True, False])
async def test_a_migration_killed_at_any_write_is_completed_by_the_next_one(
    migrations: Migrations, monkeypatch: pytest.MonkeyPatch, is_before: bool
) -> None:
    monkeypatch.setattr(pieces, "OPERATIONS_AT_A_TIME", OPERATIONS_IN_A_PIECE)
    resumed = 0
    for write in itertools.count(1):
        migrations.chroot, migrations.connect = at_new_chroot(migrations)
        files = disk()
        await stopped_node(files)
        killer = Killer(write, is_before)
        with monkeypatch.context() as patches:
            arm(patches, killer)
            try:
                await migrations.migrate(files)
                break
            except Killed:
                files.end_of_process()
        await check_that_it_does_not_start_with_a_part(migrations, files)
        await migrations.migrate(files)
        resumed += " entries are there" in migrations.lines[1]
        assert migrations.data() == await data_of(files, is_copied)
        assert migrations.stored()["/brokers/seqid"].version == IDS_GIVEN
        await check_that_it_starts_with_zookeeper_only(migrations, files)
    assert write > LEAST_WRITES
    assert resumed >= LEAST_WRITES - 2


def at_new_chroot(migrations: Migrations) -> tuple[str, str]:
    chroot = new_chroot()
    return chroot, migrations.connect.partition("/")[0] + chroot


async def check_that_it_does_not_start_with_a_part(migrations: Migrations, files: Files) -> None:
    """Once something is in ZooKeeper, until all is."""
    is_partial = bool(migrations.data()) and migrations.data() != await data_of(files, is_copied)
    embedded = EmbeddedMetadataStore(DIRECTORY, files)
    if is_partial:
        with pytest.raises(StoreUnavailable, match=r"has begun .* run `odradek cluster migrate` again"):
            await embedded.open()
    if is_partial or not migrations.data():
        with pytest.raises(StartError, match="`odradek cluster migrate`"):
            metadata_store_of(migrations.config(), files, Background(), random.Random(1))


async def check_that_it_starts_with_zookeeper_only(migrations: Migrations, files: Files) -> None:
    assert isinstance(metadata_store_of(migrations.config(), files, Background(), random.Random(1)), ZooKeeperStore)
    embedded = EmbeddedMetadataStore(DIRECTORY, files)
    with pytest.raises(StoreUnavailable, match=f"start this node with zookeeper.connect={migrations.connect}"):
        await embedded.open()
    files.remove(f"{DIRECTORY}/{NAME}")
    await embedded.open()
    await embedded.close()


async def test_a_lost_answer_is_read_back(migrations: Migrations, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks after each piece."""
    monkeypatch.setattr(pieces, "OPERATIONS_AT_A_TIME", OPERATIONS_IN_A_PIECE)
    files = disk()
    await stopped_node(files)
    apply = migrations.model.apply
    lost: list[int] = []

    def apply_and_lose(transaction: Any) -> None:
        apply(transaction)
        if transaction.results and transaction.number not in lost:
            lost.append(transaction.number)
            migrations.model.drop_connections()

    monkeypatch.setattr(migrations.model, "apply", apply_and_lose)
    await migrations.migrate(files)
    assert len(lost) > LEAST_WRITES
    assert migrations.data() == await data_of(files, is_copied)
    assert migrations.stored()["/brokers/seqid"].version == IDS_GIVEN
