"""Which entries of a single node are copied to ZooKeeper, and in which order.

(A) All that last are copied as they are, byte for byte: a single node writes what Kafka writes.
(B) Ephemeral entries are not copied: they are those of a process that has ended.
(C) Notices are not copied. They are sequential entries that tell running brokers of a change, and no broker runs.
(D) HEAD comes first, in one piece: by the cluster's id a migration that was interrupted is recognized, and by the
    controller epoch a broker that starts meanwhile. Then parents come before their children.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.broker.controller.pieces import fits
from odradek.broker.metadata_store import acl_znodes, znodes
from odradek.broker.metadata_store.interface import Create, Entry
from odradek.broker.metadata_store.tree import MetadataTree, parent_of

HEAD = (parent_of(znodes.CLUSTER_ID), znodes.CLUSTER_ID, znodes.CONTROLLER_EPOCH)
NOTICES = (znodes.CONFIG_CHANGES, znodes.ISR_CHANGES, znodes.LOG_DIR_EVENTS, *acl_znodes.CHANGES.values())
"""The parents of notices (C)."""


class MigrationError(Exception):
    """Why a node is not migrated, in one line for users."""


class Entries(NamedTuple):
    """What is copied, by path in the order of writing; and the paths that are not (B, C)."""

    copied: dict[str, Entry]
    left_out: list[str]

    @property
    def topics(self) -> int:
        """The number of topics."""
        return sum(parent_of(path) == znodes.TOPICS for path in self.copied)

    @property
    def partitions(self) -> int:
        """The number of partitions that have a leader."""
        return sum(path.startswith(znodes.TOPICS) and path.endswith("/state") for path in self.copied)


def entries_of(tree: MetadataTree) -> Entries:
    """Raises MigrationError if something that every node has is missing, or if ZooKeeper would not take an entry."""
    copied: dict[str, Entry] = {}
    left_out = []
    for path in HEAD:
        entry = tree.get(path)
        if entry is None:
            raise MigrationError(f"the node has no {path}: start it once without ZooKeeper, and stop it again")
        copied[path] = entry
    for path, entry in tree.items():
        if entry.ephemeral or parent_of(path) in NOTICES:
            left_out.append(path)
        elif path != "/":
            copied.setdefault(path, entry)
    for path, entry in copied.items():
        if not fits([Create(path, entry.data)]):
            raise MigrationError(
                f"{path} has {len(entry.data or b'')} bytes, which is more than ZooKeeper takes at once"
            )
    return Entries(copied, left_out)
