"""The first steps of a broker with its metadata store: create the fixed entries, determine the cluster id. Several
brokers may take these steps at the same time.

While the connection is lost, they wait. Each step reads what is there before it creates anything, so a step whose
response was lost is repeated.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from odradek.broker.metadata.kafka_uuid import random_uuid, uuid_text
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Create, EntryExists, MetadataStore, Operation
from odradek.broker.metadata_store.read_back import retry_until_connected


class ClusterIdMismatch(Exception):
    """The log directory and the metadata store belong to different clusters."""


async def open_store(store: MetadataStore, known_cluster_id: str | None, source: random.Random) -> str:
    """Opens the store and returns the cluster id: the stored one, else `known_cluster_id` (from meta.properties), else
    a new one, which is stored.

    The store is pinned to this id. Raises StoreDamaged, StoreUnavailable if the store cannot be opened or is closed,
    and ClusterIdMismatch if the stored id and `known_cluster_id` differ, or a store outside has lost it.
    """
    await store.open()
    if store.is_outside and known_cluster_id is not None:
        await retry_until_connected(store, lambda: _check_is_not_lost(store, known_cluster_id))
    await retry_until_connected(store, lambda: make_persistent_entries(store))
    found = await retry_until_connected(store, lambda: cluster_id(store, known_cluster_id, source))
    store.pin(znodes.CLUSTER_ID, lambda data: _fault_of_id(data, found))
    return found


def _fault_of_id(data: bytes | None, cluster_id: str) -> str:
    """What the stored id of another cluster, or of none, is called; see MetadataStore.pin."""
    stored = znodes.parse_cluster_id(data)
    return "" if stored == cluster_id else f"{znodes.CLUSTER_ID} is {stored}, not {cluster_id}"


async def _check_is_not_lost(store: MetadataStore, known: str) -> None:
    """Raises ClusterIdMismatch. Nothing is written then: what was lost may be restored."""
    if await store.exists(znodes.CLUSTER_ID) is None:
        raise ClusterIdMismatch(
            f"meta.properties has cluster id {known}, but ZooKeeper has none: it has lost its data, or "
            "zookeeper.connect names another ZooKeeper or another path in it. Restore ZooKeeper's data, or correct the "
            "setting; a new cluster needs empty directories"
        )


async def next_broker_id(store: MetadataStore, reserved_max: int) -> int:
    """Returns an id above reserved.broker.max.id that no broker of the cluster has: for broker.id=-1 and directories
    without an id. Source: Kafka's `KafkaZkClient.generateBrokerSequenceId`.
    """
    return reserved_max + await retry_until_connected(store, lambda: store.set(znodes.BROKER_SEQUENCE, b""))


async def make_persistent_entries(store: MetadataStore) -> None:
    """Creates the fixed entries that are missing."""
    await make_entries(store, znodes.PERSISTENT_PATHS)


async def make_entries(store: MetadataStore, paths: Sequence[str]) -> None:
    """Creates those entries that are missing, without data. Parents come first."""
    while True:
        found = await store.entries(paths)
        missing: list[Operation] = [Create(path) for path, entry in zip(paths, found, strict=True) if entry is None]
        if not missing:
            return
        try:
            await store.multi(missing)
        except EntryExists:
            continue  # another broker starts, too


async def cluster_id(store: MetadataStore, known: str | None, source: random.Random) -> str:
    """Returns the stored id, else `known`, else a new one, which is stored. Raises ClusterIdMismatch."""
    entry = await store.exists(znodes.CLUSTER_ID)
    if entry is None:
        new_id = known or uuid_text(random_uuid(source))
        try:
            await store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(new_id))
        except EntryExists:
            entry = await store.get(znodes.CLUSTER_ID)
        else:
            return new_id
    stored = znodes.parse_cluster_id(entry.data)
    if known is not None and known != stored:
        raise ClusterIdMismatch(
            f"meta.properties has cluster id {known}, but the metadata store has {stored}: the data "
            "directory contains files of two clusters"
        )
    return stored
