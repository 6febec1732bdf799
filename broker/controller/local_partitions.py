"""Applies the controller's changes to the partitions on this broker: leadership, removal, and log settings.

The failure of one partition is logged and returned to the caller; the other partitions are still served.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import structlog

from odradek.broker.metadata.kafka_uuid import uuid_text
from odradek.broker.metadata.metadata_cache import MetadataCache, TopicMetadata
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log_config import LogConfig
from odradek.storage.log_creation import NewLog

PARTITIONS_PER_SLICE = 4
"""The number of partitions opened or removed before yielding to the event loop."""

log = structlog.get_logger("controller")


class PartitionHooks(Protocol):
    """The controller's interface to the replica manager. Synchronous, except for methods that wait for disks; raises
    ProtocolError or OSError.
    """

    async def make_logs(self, new_logs: Iterable[NewLog]) -> dict[TopicPartition, ProtocolError]:
        """Creates the logs that are missing, all together; returns the failures once the other logs are on disk."""

    async def sync_log_dirs(self) -> None:
        """Syncs the log directories, so that removals by `stop_replica` are durable."""

    def become_leader(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        leader_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        log_config: LogConfig,
    ) -> object:
        """Makes this broker the partition's leader; opens or creates the log."""

    def stop_replica(self, topic_partition: TopicPartition, delete: bool = False) -> object:
        """Stops serving the partition; with `delete`, removes its log. No error if the partition does not exist."""

    def update_log_config(self, topic: str, config: LogConfig) -> object:
        """Applies these settings to the topic's logs."""


class LocalPartitions:
    """The partitions on the broker that `cache` belongs to."""

    def __init__(self, hooks: PartitionHooks, config: BrokerConfig, cache: MetadataCache) -> None:
        self._hooks = hooks
        self._config = config
        self._cache = cache

    async def open_topic(self, name: str) -> None:
        """Opens the partitions that this broker leads according to the stored state, at the start. Logs the partitions
        without a live leader.
        """
        topic = self._cache.topic(name)
        assert topic is not None
        states = topic.partitions.values()
        leaderless = [state.partition for state in states if state.leader != self._cache.broker_id]
        if leaderless:
            log.warning("partitions without live leader", topic=name, partitions=leaderless)
        await self.open(topic, self._cache.topic_config(name))

    async def open(self, topic: TopicMetadata, config: Mapping[str, str]) -> dict[int, ProtocolError]:
        """Opens the topic's partitions that this broker leads, and returns the failures by partition."""
        return await self.lead(topic, config, await self.make_logs([(topic, config)]))

    async def make_logs(
        self, topics: Iterable[tuple[TopicMetadata, Mapping[str, str]]]
    ) -> dict[TopicPartition, ProtocolError]:
        """Creates the missing logs of the partitions that this broker leads, for all topics together; returns the
        failures.
        """
        new_logs = []
        for topic, config in topics:
            log_config = self._log_config(topic.name, config)
            for state in topic.partitions.values():
                if state.leader == self._cache.broker_id:
                    partition = TopicPartition(topic.name, state.partition)
                    new_logs.append(NewLog(partition, topic.topic_id, state.leader_epoch, log_config))
        failures = await self._hooks.make_logs(new_logs)
        for partition, error in failures.items():
            log.error("log not created", partition=str(partition), reason=str(error))
        return failures

    async def lead(
        self, topic: TopicMetadata, config: Mapping[str, str], failed: Mapping[TopicPartition, ProtocolError]
    ) -> dict[int, ProtocolError]:
        """Makes this broker the leader of the partitions whose logs `make_logs` has created: the second half of `open`.
        `failed` are the failures of `make_logs`. Returns all failures by partition.
        """
        failures: dict[int, ProtocolError] = {}
        name, topic_id = topic.name, topic.topic_id
        log_config = self._log_config(name, config)
        for index, state in enumerate(topic.partitions.values()):
            if state.leader != self._cache.broker_id:
                continue
            partition = TopicPartition(name, state.partition)
            if partition in failed:
                failures[state.partition] = failed[partition]
                continue
            try:
                self._hooks.become_leader(
                    partition, topic_id, state.leader_epoch, state.replicas, state.isr, log_config
                )
            except (ProtocolError, OSError) as error:
                text = uuid_text(topic_id)
                log.error("partition not opened", partition=str(partition), topic_id=text, reason=str(error))
                failures[state.partition] = error if isinstance(error, ProtocolError) else storage_error(error)
            if index % PARTITIONS_PER_SLICE == PARTITIONS_PER_SLICE - 1:
                await asyncio.sleep(0)
        return failures

    async def remove(self, name: str, partitions: Iterable[int], *, kept: Collection[int] = ()) -> None:
        """Stops serving the partitions and removes their logs, except the logs of `kept`."""
        for index, number in enumerate(partitions):
            partition = TopicPartition(name, number)
            try:
                self._hooks.stop_replica(partition, delete=number not in kept)
            except (ProtocolError, OSError) as error:
                log.error("partition not removed", partition=str(partition), reason=str(error))
            if index % PARTITIONS_PER_SLICE == PARTITIONS_PER_SLICE - 1:
                await asyncio.sleep(0)
        await self._hooks.sync_log_dirs()

    def apply_broker_config(self) -> None:
        """Applies the dynamic settings in the cache to the broker."""
        cache = self._cache
        self._config.apply_dynamic(cache.broker_config(None), cache.broker_config(cache.broker_id))

    def apply_topic_config(self, name: str) -> None:
        """Applies the topic's settings in the cache, layered over the broker's, to its logs."""
        self._hooks.update_log_config(name, self._log_config(name, self._cache.topic_config(name)))

    def _log_config(self, topic: str, config: Mapping[str, str]) -> LogConfig:
        """An unusable stored setting (of another release, say) is logged, and the topic is opened without its own
        settings.
        """
        try:
            return self._config.log_config(config)
        except ValueError as error:
            log.error("stored topic settings ignored", topic=topic, config=dict(config), reason=str(error))
            return self._config.log_config({})


def storage_error(error: Exception) -> ProtocolError:
    """The error returned to a client when a disk fails."""
    return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
