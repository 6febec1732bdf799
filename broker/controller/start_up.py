"""The steps of a controller before its first change: create the fixed entries, determine the cluster id, load the
metadata, become the controller.

This works as in a Kafka in ZooKeeper mode on the only broker of a cluster: partitions that this broker leads keep their
leader epoch across a restart (leadership did not move), and the controller epoch grows by one.
"""

from __future__ import annotations

import random

import structlog

from odradek.broker.controller import znodes
from odradek.broker.controller.metadata_store import Create, Entry, MetadataStore, NoEntry, Operation, Set, StoreDamaged
from odradek.broker.metadata.kafka_uuid import random_uuid, uuid_text
from odradek.broker.metadata.metadata_cache import NO_LEADER, MetadataCache, PartitionState, TopicMetadata
from odradek.timer.clock import Clock

log = structlog.get_logger("controller")


class ClusterIdMismatch(Exception):
    """The log directory and the metadata store belong to different clusters."""


class StartUp:
    """The steps, to be called by `Controller` in the order of the methods."""

    def __init__(self, store: MetadataStore, cache: MetadataCache, clock: Clock) -> None:
        self._store = store
        self._cache = cache
        self._clock = clock

    async def make_persistent_entries(self) -> None:
        """Creates the fixed entries that are missing."""
        missing: list[Operation] = [
            Create(path) for path in znodes.PERSISTENT_PATHS if await self._store.exists(path) is None
        ]
        if missing:
            await self._store.multi(missing)

    async def cluster_id(self, known: str | None, source: random.Random) -> str:
        """Returns the stored id, else `known`, else a new one, which is stored. Raises ClusterIdMismatch."""
        entry = await self._store.exists(znodes.CLUSTER_ID)
        if entry is None:
            cluster_id = known or uuid_text(random_uuid(source))
            await self._store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))
            return cluster_id
        stored = znodes.parse_cluster_id(entry.data)
        if known is not None and known != stored:
            raise ClusterIdMismatch(
                f"meta.properties has cluster id {known}, but the metadata store has {stored}: the data "
                "directory contains files of two clusters"
            )
        return stored

    async def load(self) -> set[str]:
        """Loads the metadata into the cache. Returns the names of the topics marked for deletion; the caller removes
        them from the cache.
        """
        for name in await self._store.children(znodes.BROKER_CONFIGS):
            broker_id = None if name == znodes.DEFAULT_BROKER else int(name)
            self._cache.put_broker_config(broker_id, await self._config(znodes.broker_config_path(broker_id)))
        for name in await self._store.children(znodes.TOPICS):
            self._cache.put_topic(await self._topic(name), await self._config(znodes.topic_config_path(name)))
        log.info("metadata loaded", topics=self._cache.topic_count, partitions=self._cache.partition_count)
        return set(await self._store.children(znodes.DELETE_TOPICS))

    async def elect(self, broker_id: int) -> None:
        """Creates `/controller` and increments the controller epoch atomically. Raises EntryExists if another broker is
        the controller.
        """
        now = self._clock.wall_ms()
        entry = await self._store.exists(znodes.CONTROLLER_EPOCH)
        epoch = 1 if entry is None else znodes.parse_number(znodes.CONTROLLER_EPOCH, entry.data) + 1
        data = znodes.encode_number(epoch)
        count: Operation = (
            Create(znodes.CONTROLLER_EPOCH, data)
            if entry is None
            else Set(znodes.CONTROLLER_EPOCH, data, entry.version)
        )
        await self._store.multi(
            [Create(znodes.CONTROLLER, znodes.encode_controller(broker_id, now), ephemeral=True), count]
        )
        self._cache.controller_id = broker_id
        self._cache.controller_epoch = epoch

    async def _topic(self, name: str) -> TopicMetadata:
        entry = await self._store.get(znodes.topic_path(name))
        assignment = znodes.parse_topic(name, entry.data)
        if assignment.topic_id is None:
            raise StoreDamaged(
                znodes.topic_path(name), "has no topic id: this release does not read metadata of Kafka before 2.8"
            )
        partitions = {}
        for partition, brokers in assignment.replicas.items():
            state = await self._partition(name, partition, brokers)
            adding, removing = (field.get(partition, ()) for field in (assignment.adding, assignment.removing))
            partitions[partition] = state._replace(adding=adding, removing=removing)
        return TopicMetadata(name, assignment.topic_id, partitions)

    async def _partition(self, topic: str, partition: int, replicas: tuple[int, ...]) -> PartitionState:
        path = znodes.state_path(topic, partition)
        try:
            entry = await self._store.get(path)
        except NoEntry as error:
            raise StoreDamaged(path, "is missing, although its topic has the partition") from error
        state = znodes.parse_state(topic, partition, replicas, entry.data, entry.version)
        return state if state.leader == self._cache.broker_id else state._replace(leader=NO_LEADER)

    async def _config(self, path: str) -> dict[str, str]:
        entry: Entry | None = await self._store.exists(path)
        return {} if entry is None else znodes.parse_config(path, entry.data)
