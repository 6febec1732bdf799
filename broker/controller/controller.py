"""The controller: every change of topics, partitions and settings, one after the other, from the wish to the running
partitions.

A change is decided (`state.py`), stored (one `multi` in the metadata store: all of it or nothing, durable when it
returns), carried out by the partitions' hooks, and then visible in the metadata cache. What a client was told
survives a crash; what a crash interrupts after storing is caught up with at the next start (`start_up.py`).

    (A) Changes wait for each other: whoever decides sees the cache as all earlier changes left it.
    (B) A change is a task of its own. When its time-out passes, the client hears REQUEST_TIMED_OUT and the change
        goes on. As in Kafka a time-out of 0 or less means: begin, and do not wait.
    (C) A new topic whose partitions cannot be made (disk full, or a folder of another topic in the way) is taken
        back, and the client hears why. Kafka keeps such a topic, offline.
    (D) Deletion marks the topic first (`/admin/delete_topics/T`), so that it ends even when the process does.

Items that fail come back as ProtocolError values: a request's items do not fail together. Source: Kafka's
`KafkaController`, `ZkAdminManager`, `TopicDeletionManager`.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import structlog

from broker.controller import znodes
from broker.controller.kafka_uuid import random_uuid, uuid_text
from broker.controller.metadata_store import Create, EntryExists, MetadataStore, Operation, Set, StoreUnavailable
from broker.controller.start_up import StartUp
from broker.controller.state import (
    NewPartitions,
    NewTopic,
    PlannedTopic,
    Planner,
    new_partition,
    new_topic,
    partition_addition_operations,
    topic_creation_operations,
    topic_removal_operations,
)
from broker.metadata_cache import BrokerInfo, MetadataCache, PartitionState, TopicMetadata
from protocol.errors import ErrorCode, ProtocolError
from protocol.topic_partition import TopicPartition
from storage.log_config import LogConfig
from timer.clock import Clock

T = TypeVar("T")
ConfigChange = Callable[[dict[str, str]], Mapping[str, str]]

PARTITIONS_PER_SLICE = 16
"""How many partitions are made or removed before others get their turn on the loop."""

log = structlog.get_logger("controller")


class PartitionHooks(Protocol):
    """What the controller tells the replica manager. Synchronous; raise ProtocolError or OSError."""

    def become_leader(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        leader_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        log_config: LogConfig,
    ) -> object:
        """This broker leads the partition from now on; its log is opened or made."""

    def stop_replica(self, topic_partition: TopicPartition, delete: bool = False) -> object:
        """This broker holds the partition no more; with `delete` its log goes. No error if there is none."""

    def update_log_config(self, topic: str, config: LogConfig) -> object:
        """The topic's logs go by these settings from now on."""


class Settings(Protocol):
    """The part of BrokerConfig that the controller reads."""

    def __getitem__(self, name: str) -> Any:
        """A broker setting's typed value."""

    def log_config(self, topic_overrides: Mapping[str, str]) -> LogConfig:
        """A topic's settings over the broker's. Raises ConfigError for names and values that are none."""

    def apply_dynamic(self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> None:
        """Replaces the two layers of dynamic settings. Does not fail."""


class Spawn(Protocol):
    """`Background.spawn`: a task with an owner."""

    def __call__(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Starts the coroutine."""


class Controller:
    """See the file's head. One per broker; `start` before anything else, `stop` at the end. `store` is opened and
    closed by it.
    """

    def __init__(
        self,
        store: MetadataStore,
        cache: MetadataCache,
        partitions: PartitionHooks,
        config: Settings,
        *,
        clock: Clock,
        source: random.Random,
        spawn: Spawn,
    ) -> None:
        self.store = store
        self._cache = cache
        self._partitions = partitions
        self._config = config
        self._clock = clock
        self._random = source
        self._spawn = spawn
        self._changing = asyncio.Lock()
        self._deleting: dict[str, TopicMetadata | None] = {}
        self._planner = Planner(
            cache,
            source,
            default_partitions=lambda: int(config["num.partitions"]),
            default_replication_factor=lambda: int(config["default.replication.factor"]),
            validate_config=config.log_config,
            deleting=self._deleting,
        )

    # Beginning and end

    async def open_store(self, known_cluster_id: str | None) -> str:
        """Opens the store and returns the cluster's id: the stored one, else `known_cluster_id` (of meta.properties),
        else a new one.

        Raises StoreDamaged, StoreUnavailable, and ClusterIdMismatch where the two differ.
        """
        await self.store.open()
        start_up = StartUp(self.store, self._cache, self._clock)
        await start_up.make_persistent_entries()
        self._cache.cluster_id = await start_up.cluster_id(known_cluster_id, self._random)
        return self._cache.cluster_id

    async def load(self) -> None:
        """Reads settings, topics and partitions into the cache, and has the broker go by its dynamic settings.

        After `open_store`, before the partitions' logs are opened.
        """
        for name in await StartUp(self.store, self._cache, self._clock).load():
            self._deleting[name] = self._cache.topic(name)
            self._cache.remove_topic(name)
        self._apply_broker_config()

    async def start(self, broker: BrokerInfo) -> None:
        """Registers this broker, becomes the controller, opens every partition that it leads, and ends what a crash
        interrupted.
        """
        start_up = StartUp(self.store, self._cache, self._clock)
        await self.register(broker)
        await start_up.elect(broker.broker_id)
        for name in sorted(self._deleting):
            await self._remove_topic(name)
        for name in self._cache.topic_names():
            await self._open_topic(name)

    async def register(self, broker: BrokerInfo) -> None:
        """Says where this broker is to be reached; again when its addresses have changed."""
        path, data = znodes.broker_path(broker.broker_id), znodes.encode_broker(broker, self._clock.wall_ms())
        try:
            await self.store.create(path, data, ephemeral=True)
        except EntryExists:
            await self.store.set(path, data)
        entry = await self.store.get(path)
        self._cache.put_broker(broker._replace(epoch=entry.created))

    async def stop(self) -> None:
        """Waits for the change under way and closes the store."""
        async with self._changing:
            await self.store.close()

    # Topics

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool = False
    ) -> list[PlannedTopic | ProtocolError]:
        """Per topic, in order: what was (or would be) created, or why not. TOPIC_ALREADY_EXISTS ... as
        `state.Planner.topic` says.
        """
        return await self._within(timeout_ms, self._create_topics(topics, validate_only), validate_only, len(topics))

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int) -> list[ProtocolError | None]:
        """Per name, in order: None, or UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR."""
        return await self._within(timeout_ms, self._delete_topics(names), False, len(names))

    async def create_partitions(
        self, wishes: Sequence[NewPartitions], *, timeout_ms: int, validate_only: bool = False
    ) -> list[ProtocolError | None]:
        """Per topic, in order: None, or why its partitions stay as they are."""
        return await self._within(
            timeout_ms, self._create_partitions(wishes, validate_only), validate_only, len(wishes)
        )

    # Settings

    async def alter_topic_config(self, topic: str, change: ConfigChange, *, validate_only: bool = False) -> None:
        """Stores what `change` makes of the topic's own settings, and has its logs go by it.

        Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, KAFKA_STORAGE_ERROR, and whatever `change` raises.
        """
        async with self._changing:
            if self._cache.topic(topic) is None or topic in self._deleting:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{topic}'")
            before = dict(self._cache.topic_config(topic))
            after = dict(change(dict(before)))
            self._planner.check_config(after)
            if validate_only or after == before:
                return
            await self._store_config(znodes.topic_config_path(topic), after)
            self._cache.put_topic_config(topic, after)
            self._partitions.update_log_config(topic, self._config.log_config(after))
            log.info("topic settings changed", topic=topic, config=after)

    async def alter_broker_config(
        self, broker_id: int | None, change: ConfigChange, *, validate_only: bool = False
    ) -> None:
        """Stores what `change` makes of a broker's dynamic settings (None: the cluster-wide default ones). `change`
        checks them.

        Then the broker goes by them, and all logs go by the defaults that are valid now.
        """
        async with self._changing:
            before = dict(self._cache.broker_config(broker_id))
            after = dict(change(dict(before)))
            if validate_only or after == before:
                return
            await self._store_config(znodes.broker_config_path(broker_id), after)
            self._cache.put_broker_config(broker_id, after)
            self._apply_broker_config()
            for topic in self._cache.topic_names():
                self._partitions.update_log_config(topic, self._log_config(topic, self._cache.topic_config(topic)))
            log.info("broker settings changed", broker=znodes.DEFAULT_BROKER if broker_id is None else broker_id)

    # How each change goes

    async def _create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool
    ) -> list[PlannedTopic | ProtocolError]:
        async with self._changing:
            results: list[PlannedTopic | ProtocolError] = []
            planned: dict[str, PlannedTopic] = {}
            for topic in topics:
                try:
                    plan = self._planner.topic(topic, planned)
                except ProtocolError as error:
                    results.append(error)
                    continue
                planned[plan.name] = plan
                results.append(plan)
            if planned and not validate_only:
                failures = await self._carry_out_creation(list(planned.values()))
                results = [failures.get(topic.name, result) for topic, result in zip(topics, results, strict=True)]
            return results

    async def _carry_out_creation(self, plans: list[PlannedTopic]) -> dict[str, ProtocolError]:
        created = [(plan, self._first_metadata(plan)) for plan in plans]
        operations: list[Operation] = []
        for plan, metadata in created:
            operations += topic_creation_operations(metadata, plan.config)
        try:
            await self.store.multi(operations)
        except StoreUnavailable as error:
            return {plan.name: _storage_error(error) for plan in plans}
        failures: dict[str, ProtocolError] = {}
        for plan, metadata in created:
            failed = await self._open_partitions(
                plan.name, metadata.topic_id, metadata.partitions.values(), plan.config
            )
            if failed:
                failures[plan.name] = next(iter(failed.values()))
                await self._take_back(metadata, plan.config, failed)
                continue
            self._cache.put_topic(metadata, plan.config)
            topic_id, partitions = uuid_text(metadata.topic_id), len(plan.replicas)
            log.info("topic created", topic=plan.name, topic_id=topic_id, partitions=partitions, config=plan.config)
        return failures

    def _first_metadata(self, plan: PlannedTopic) -> TopicMetadata:
        return new_topic(plan, random_uuid(self._random), self._cache.brokers.keys(), self._cache.controller_epoch)

    async def _take_back(self, topic: TopicMetadata, config: Mapping[str, str], failed: Collection[int]) -> None:
        """Case (C). Only logs that were made are removed: what was in the way is not ours."""
        for partition in topic.partitions:
            self._stop_partition(TopicPartition(topic.name, partition), delete=partition not in failed)
        try:
            await self.store.multi(
                topic_removal_operations(topic.name, topic.partitions, has_config=True, is_marked=False)
            )
        except StoreUnavailable as error:
            self._cache.put_topic(topic, config)
            log.error("a topic without logs could not be taken back", topic=topic.name, reason=str(error))

    async def _delete_topics(self, names: Sequence[str]) -> list[ProtocolError | None]:
        async with self._changing:
            unknown = [name for name in names if self._cache.topic(name) is None and name not in self._deleting]
            marked = [name for name in dict.fromkeys(names) if name not in unknown and name not in self._deleting]
            try:
                await self.store.multi([Create(znodes.deletion_path(name)) for name in marked])
            except StoreUnavailable as error:
                return [_storage_error(error) for _ in names]
            for name in marked:
                self._deleting[name] = self._cache.topic(name)
                self._cache.remove_topic(name)
            for name in marked:
                await self._remove_topic(name)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return [
                ProtocolError(missing, f"There is no topic '{name}'") if name in unknown else None for name in names
            ]

    async def _remove_topic(self, name: str) -> None:
        """Case (D): from the mark to the end. What cannot be ended now is ended at the next start."""
        topic = self._deleting[name]
        has_config = await self.store.exists(znodes.topic_config_path(name)) is not None
        partitions = {} if topic is None else topic.partitions
        for index, partition in enumerate(partitions):
            self._stop_partition(TopicPartition(name, partition), delete=True)
            if index % PARTITIONS_PER_SLICE == PARTITIONS_PER_SLICE - 1:
                await asyncio.sleep(0)
        try:
            await self.store.multi(topic_removal_operations(name, partitions, has_config=has_config, is_marked=True))
        except StoreUnavailable as error:
            log.error("the deletion of a topic goes on at the next start", topic=name, reason=str(error))
            return
        del self._deleting[name]
        log.info("topic deleted", topic=name, partitions=len(partitions))

    async def _create_partitions(
        self, wishes: Sequence[NewPartitions], validate_only: bool
    ) -> list[ProtocolError | None]:
        async with self._changing:
            results: list[ProtocolError | None] = []
            for wish in wishes:
                try:
                    replicas = self._planner.partitions(wish)
                    if not validate_only:
                        await self._add_partitions(wish.topic, replicas)
                    results.append(None)
                except ProtocolError as error:
                    results.append(error)
            return results

    async def _add_partitions(self, name: str, replicas: Mapping[int, tuple[int, ...]]) -> None:
        topic = self._cache.topic(name)
        assert topic is not None, "the planner has seen it"
        live, epoch = self._cache.brokers.keys(), self._cache.controller_epoch
        added = {partition: new_partition(partition, brokers, live, epoch) for partition, brokers in replicas.items()}
        try:
            await self.store.multi(partition_addition_operations(topic, added))
        except StoreUnavailable as error:
            raise _storage_error(error) from error
        config = self._cache.topic_config(name)
        failures = await self._open_partitions(name, topic.topic_id, added.values(), config)
        self._cache.put_topic(topic._replace(partitions={**topic.partitions, **added}), config)
        log.info("partitions added", topic=name, partitions=len(topic.partitions) + len(added))
        for failure in failures.values():
            raise failure

    # Partitions and settings

    async def _open_topic(self, name: str) -> None:
        topic = self._cache.topic(name)
        assert topic is not None
        states = [state for state in topic.partitions.values() if state.leader == self._cache.broker_id]
        if len(states) < len(topic.partitions):
            log.warning(
                "partitions without a live leader",
                topic=name,
                partitions=sorted(topic.partitions.keys() - {s.partition for s in states}),
            )
        await self._open_partitions(name, topic.topic_id, states, self._cache.topic_config(name))

    async def _open_partitions(
        self, name: str, topic_id: uuid.UUID, states: Iterable[PartitionState], config: Mapping[str, str]
    ) -> dict[int, ProtocolError]:
        """Opens those that this broker leads, and returns the failures by partition."""
        failures: dict[int, ProtocolError] = {}
        log_config = self._log_config(name, config)
        for index, state in enumerate(states):
            if state.leader != self._cache.broker_id:
                continue
            topic_partition = TopicPartition(name, state.partition)
            try:
                self._partitions.become_leader(
                    topic_partition, topic_id, state.leader_epoch, state.replicas, state.isr, log_config
                )
            except (ProtocolError, OSError) as error:
                text = uuid_text(topic_id)
                log.error("partition not opened", partition=str(topic_partition), topic_id=text, reason=str(error))
                failures[state.partition] = error if isinstance(error, ProtocolError) else _storage_error(error)
            if index % PARTITIONS_PER_SLICE == PARTITIONS_PER_SLICE - 1:
                await asyncio.sleep(0)
        return failures

    def _log_config(self, topic: str, config: Mapping[str, str]) -> LogConfig:
        """A stored setting that cannot be used (another release's, say) is named in the log: its topic must come up."""
        try:
            return self._config.log_config(config)
        except ValueError as error:
            log.error("stored topic settings cannot be used", topic=topic, config=dict(config), reason=str(error))
            return self._config.log_config({})

    def _apply_broker_config(self) -> None:
        cache = self._cache
        self._config.apply_dynamic(cache.broker_config(None), cache.broker_config(cache.broker_id))

    def _stop_partition(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        try:
            self._partitions.stop_replica(topic_partition, delete=delete)
        except (ProtocolError, OSError) as error:
            log.error("partition could not be removed", partition=str(topic_partition), reason=str(error))

    async def _store_config(self, path: str, config: Mapping[str, str]) -> None:
        data = znodes.encode_config(config)
        try:
            exists = await self.store.exists(path) is not None
            await self.store.multi([Set(path, data) if exists else Create(path, data)])
        except StoreUnavailable as error:
            raise _storage_error(error) from error

    async def _within(
        self, timeout_ms: int, change: Coroutine[Any, Any, list[Any]], validate_only: bool, count: int
    ) -> list[Any]:
        """Case (B)."""
        task = self._spawn(change, "change of metadata")
        if not validate_only and timeout_ms > 0:
            await asyncio.wait([task], timeout=timeout_ms / 1000)
        elif validate_only:
            await asyncio.wait([task])
        if task.done():
            return task.result()
        return [ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "The change was begun and goes on") for _ in range(count)]


def _storage_error(error: Exception) -> ProtocolError:
    return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
