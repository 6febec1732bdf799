"""What is in ZooKeeper already: it must be empty, or have a part of what the node has, and nothing else.

(A) Without a cluster id, none of the paths may exist. With one, it must be the node's: the migration was
    interrupted, or is complete.
(B) No broker may be registered. One that has been there was elected, so the controller epoch is not as it was.
(C) An entry that exists must have the node's data. Its version is its own.
(D) Only the version of `/brokers/seqid` has a meaning: it numbers brokers that have no id. It is set as often as at
    the node, so that no id is given twice.
(E) What the node does not have must not be there. Notices do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.broker.controller.pieces import Unit
from odradek.broker.metadata_store import acl_znodes, znodes
from odradek.broker.metadata_store.interface import Create, Entry, MetadataStore, NoEntry, Set
from odradek.broker.metadata_store.read_back import retry_until_connected
from odradek.broker.metadata_store.tree import parent_of
from odradek.cli.migration.entries import HEAD, NOTICES, MigrationError

ENTRIES_AT_A_TIME = 1000
MOST_NAMED = 5
"""How many paths an error names."""
FIXED = (*znodes.PERSISTENT_PATHS, *acl_znodes.PERSISTENT_PATHS)
LISTED = tuple(path for path in FIXED if path not in (*NOTICES, znodes.BROKER_IDS))
"""Where entries of others are looked for (E)."""


class Comparison(NamedTuple):
    """`is_empty`: there is nothing yet. `units` write what is missing; `missing` is the number of its entries."""

    is_empty: bool
    missing: int
    units: list[Unit]


async def compare(store: MetadataStore, place: str, copied: Mapping[str, Entry]) -> Comparison:
    """Compares what is in ZooKeeper at `place` with what is to be copied. Raises MigrationError (A, B, C, E), and
    MetadataStoreError.
    """
    is_empty = await _is_empty(store, place, copied)
    if not is_empty:
        await _check_no_broker(store, place)
    different = [] if is_empty else await _foreign(store, copied)
    units: list[Unit] = []
    missing = 0
    paths = list(copied)
    for start in range(0, len(paths), ENTRIES_AT_A_TIME):
        some = paths[start : start + ENTRIES_AT_A_TIME]
        for path, found in zip(some, await _entries(store, some), strict=True):
            if found is not None and not _agrees(path, found, copied[path]):
                different.append(path)
                continue
            more = _units(path, found, copied[path])
            units += more
            missing += bool(more)
    if different:
        raise MigrationError(
            f"in ZooKeeper at {place} there are entries that the node does not have like this: {_named(different)}. "
            "Nothing was written. Copy to an empty path, for example by another chroot"
        )
    return Comparison(is_empty, missing, units)


async def _is_empty(store: MetadataStore, place: str, copied: Mapping[str, Entry]) -> bool:
    """See (A)."""
    (entry,) = await _entries(store, [znodes.CLUSTER_ID])
    if entry is None:
        top = sorted({*(path for path in copied if parent_of(path) == "/"), znodes.CONTROLLER})
        there = [path for path, each in zip(top, await _entries(store, top), strict=True) if each is not None]
        if there:
            raise MigrationError(
                f"ZooKeeper at {place} has {_named(there)} but no {znodes.CLUSTER_ID}: it is neither empty nor of a "
                "cluster that is known. Nothing was written"
            )
        return True
    found = znodes.parse_cluster_id(entry.data)
    own = znodes.parse_cluster_id(copied[znodes.CLUSTER_ID].data)
    if found != own:
        raise MigrationError(
            f"ZooKeeper at {place} belongs to cluster {found}, and the node to cluster {own}. Nothing was written"
        )
    return False


async def _check_no_broker(store: MetadataStore, place: str) -> None:
    """See (B)."""
    running = await _children(store, znodes.BROKER_IDS)
    if running:
        raise MigrationError(
            f"broker {', '.join(running)} runs on ZooKeeper at {place} (or has not been missed there yet): stop all "
            "brokers of the cluster first. Nothing was written"
        )


async def _foreign(store: MetadataStore, copied: Mapping[str, Entry]) -> list[str]:
    """Returns the paths that only ZooKeeper has (E)."""
    found = [f"{parent}/{name}" for parent in LISTED for name in await _children(store, parent)]
    return [path for path in found if path not in copied and path not in FIXED]


def _agrees(path: str, found: Entry, wanted: Entry) -> bool:
    """See (B, C, D)."""
    if path == znodes.CONTROLLER_EPOCH and found.version:
        return False
    if path == znodes.BROKER_SEQUENCE and found.version != wanted.version:
        return found.version < wanted.version
    return found.data == wanted.data


def _units(path: str, found: Entry | None, wanted: Entry) -> list[Unit]:
    """Returns what makes the entry as it is at the node."""
    units: list[Unit] = [] if found is not None else [[Create(path, wanted.data)]]
    if path == znodes.BROKER_SEQUENCE:
        there = 0 if found is None else found.version
        units += [[Set(path, wanted.data, version)] for version in range(there, wanted.version)]
    return units


def head_of(units: list[Unit]) -> list[Unit]:
    """Returns those units that belong to HEAD."""
    return [unit for unit in units if unit[0].path in HEAD]


async def _entries(store: MetadataStore, paths: list[str]) -> list[Entry | None]:
    return await retry_until_connected(store, lambda: store.entries(paths))


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return await retry_until_connected(store, lambda: store.children(path))
    except NoEntry:
        return []


def _named(paths: list[str]) -> str:
    more = len(paths) - MOST_NAMED
    return ", ".join(paths[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
