"""The controller: carries out every change of topics, partitions and settings, one at a time, from the request to the
running partitions.

A change is decided (`state.py`), stored (one `multi` in the metadata store: atomic, and durable when it returns),
carried out through the partition hooks, and then visible in the metadata cache. A change that was confirmed to a client
survives a crash. A change that a crash interrupts after storing is completed at the next start (`start_up.py`).

    (A) Changes are serialized: each decision sees the cache as all earlier changes left it. A request for many topics
        is split into several changes, so that changes of other clients can run in between.
    (B) Each change runs as its own task. When its timeout passes, the client receives REQUEST_TIMED_OUT and the change
        continues. As in Kafka, a timeout of 0 or less means: start the change and do not wait.
    (C) If the partitions of a new topic cannot be created (disk full, or a folder of another topic is in the way), the
        topic is rolled back and the error is returned. Kafka keeps such a topic, offline.
    (D) Deletion marks the topic first (`/admin/delete_topics/T`), so that a restart completes an interrupted deletion.

Items that fail are returned as ProtocolError values, because the items of a request fail independently. Source: Kafka's
`KafkaController`, `ZkAdminManager`, `TopicDeletionManager`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import structlog

from odradek.broker.background.stepwise import Steps, others_between
from odradek.broker.background.tasks import Spawn
from odradek.broker.background.turns import Turns
from odradek.broker.controller import znodes
from odradek.broker.controller.local_partitions import LocalPartitions, PartitionHooks, storage_error
from odradek.broker.controller.metadata_store import Create, EntryExists, MetadataStore, Set, StoreUnavailable
from odradek.broker.controller.replica_changes import ReplicaChanges
from odradek.broker.controller.start_up import StartUp
from odradek.broker.controller.state import (
    NewPartitions,
    NewTopic,
    PlannedTopic,
    Planner,
    encoded_config,
    new_partition,
    new_topic,
    partition_addition_operations,
    pieces,
    topic_creation_operations,
    topic_removal_operations,
)
from odradek.broker.controller.topic_waits import TopicWaits
from odradek.broker.metadata.kafka_uuid import random_uuid, uuid_text
from odradek.broker.metadata.metadata_cache import BrokerInfo, MetadataCache, TopicMetadata
from odradek.broker.metadata.topic_names import unified_name
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.purgatory import DelayedOperationPurgatory
from odradek.timer.clock import Clock

T = TypeVar("T")
ConfigChange = Callable[[Mapping[str, str]], Steps[dict[str, str]]]

PLANNING_COST = 10
"""The cost of planning one topic, in items of a step."""

log = structlog.get_logger("controller")


class Controller:
    """One controller per broker. Call `start` before anything else and `stop` at the end. The controller opens and
    closes `store`.
    """

    def __init__(
        self,
        store: MetadataStore,
        cache: MetadataCache,
        partitions: PartitionHooks,
        config: BrokerConfig,
        *,
        clock: Clock,
        source: random.Random,
        spawn: Spawn,
        purgatory: DelayedOperationPurgatory,
        turns: Turns | None = None,
    ) -> None:
        """`turns`: shared with the broker's other long requests."""
        self.store = store
        self._cache = cache
        self._local = LocalPartitions(partitions, config, cache)
        self._clock = clock
        self._random = source
        self._spawn = spawn
        self._turns = turns or Turns()
        self._waits = TopicWaits(purgatory)
        self._changing = asyncio.Lock()
        self._deleting: dict[str, TopicMetadata | None] = {}
        self.on_topic_deleted: Callable[[str], Iterator[None]] = lambda _name: iter(())
        """Removes, in steps, the topic's state that is kept elsewhere. The topic cannot be recreated until this has
        finished.
        """
        self.replica_changes = ReplicaChanges(store, cache, self._local, self._changing, self._deleting)
        self._planner = Planner(
            cache,
            source,
            default_partitions=lambda: int(config["num.partitions"]),
            default_replication_factor=lambda: int(config["default.replication.factor"]),
            validate_config=config.check_topic_config,
            deleting=self._deleting,
        )

    # Start and stop

    async def open_store(self, known_cluster_id: str | None) -> str:
        """Opens the store and returns the cluster id: the stored one, else `known_cluster_id` (from meta.properties),
        else a new one.

        Raises StoreDamaged, StoreUnavailable, and ClusterIdMismatch if the stored id and `known_cluster_id` differ.
        """
        await self.store.open()
        start_up = StartUp(self.store, self._cache, self._clock)
        await start_up.make_persistent_entries()
        self._cache.cluster_id = await start_up.cluster_id(known_cluster_id, self._random)
        return self._cache.cluster_id

    async def load(self) -> None:
        """Loads settings, topics and partitions into the cache and applies the broker's dynamic settings.

        Runs after `open_store` and before the partitions' logs are opened.
        """
        for name in await StartUp(self.store, self._cache, self._clock).load():
            self._deleting[name] = self._cache.topic(name)
            self._cache.remove_topic(name)
        self._local.apply_broker_config()

    async def start(self, broker: BrokerInfo) -> None:
        """Registers this broker, becomes the controller, opens every partition that this broker leads, and completes
        the changes that a crash interrupted.
        """
        start_up = StartUp(self.store, self._cache, self._clock)
        await self.register(broker)
        await start_up.elect(broker.broker_id)
        for name in sorted(self._deleting):
            await self._remove_topic(name)
        for name in self._cache.topic_names():
            await self._local.open_topic(name)
        await self.replica_changes.resume()

    async def register(self, broker: BrokerInfo) -> None:
        """Publishes this broker's addresses in the metadata store; called again when the addresses change."""
        path, data = znodes.broker_path(broker.broker_id), znodes.encode_broker(broker, self._clock.wall_ms())
        try:
            await self.store.create(path, data, ephemeral=True)
        except EntryExists:
            await self.store.set(path, data)
        entry = await self.store.get(path)
        self._cache.put_broker(broker._replace(epoch=entry.created))

    async def stop(self) -> None:
        """Waits for the change in progress and closes the store."""
        async with self._changing:
            await self.store.close()

    # Topics

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool = False
    ) -> list[PlannedTopic | ProtocolError]:
        """Creates topics. Returns, per topic in order, what was (or would be) created, or the error: the codes of
        `state.Planner.topic`, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR.
        """
        if timeout_ms <= 0 and not validate_only:
            planned = await self._plan_topics(topics)
            self._spawn(self._create_topics(topics, False), "creation of topics")
            return [plan if isinstance(plan, ProtocolError) else _begun() for plan in planned]
        change = self._create_topics(topics, validate_only)
        return await self._within(timeout_ms, change, validate_only, [topic.name for topic in topics])

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int) -> list[ProtocolError | None]:
        """Deletes topics. Returns, per name in order, None, or UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT,
        KAFKA_STORAGE_ERROR.
        """
        return await self._within(timeout_ms, self._delete_topics(names), False, names)

    async def create_partitions(
        self, additions: Sequence[NewPartitions], *, timeout_ms: int, validate_only: bool = False
    ) -> list[ProtocolError | None]:
        """Adds partitions. Returns, per topic in order, None, or the reason why no partitions were added."""
        if timeout_ms <= 0 and not validate_only:
            planned = [self._plan_partitions(addition) async for addition in others_between(additions, PLANNING_COST)]
            self._spawn(self._create_partitions(additions, False), "creation of partitions")
            return [plan if isinstance(plan, ProtocolError) else _begun() for plan in planned]
        change = self._create_partitions(additions, validate_only)
        return await self._within(timeout_ms, change, validate_only, [addition.topic for addition in additions])

    # Settings

    async def alter_topic_config(self, topic: str, change: ConfigChange, *, validate_only: bool = False) -> None:
        """Passes the topic's own settings through `change`, stores the result, and applies it to the topic's logs.

        Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, POLICY_VIOLATION, KAFKA_STORAGE_ERROR, and what `change`
        raises.
        """
        async with self._changing:
            if self._cache.topic(topic) is None or topic in self._deleting:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{topic}'")
            before = self._cache.topic_config(topic)
            after = await self._turns.take(change(before))
            self._planner.check_config(after)
            data = encoded_config(after)
            if validate_only or after == before:
                return
            await self._store_config(znodes.topic_config_path(topic), data)
            self._cache.put_topic_config(topic, after)
            self._local.apply_topic_config(topic)
            log.info("topic settings changed", topic=topic, config=after)

    async def alter_broker_config(
        self, broker_id: int | None, change: ConfigChange, *, validate_only: bool = False
    ) -> None:
        """Passes a broker's dynamic settings through `change`, which validates them, and stores the result (`broker_id`
        None: the cluster-wide defaults).

        Then applies the settings to the broker and the resulting defaults to all logs.
        """
        async with self._changing:
            before = self._cache.broker_config(broker_id)
            after = await self._turns.take(change(before))
            data = encoded_config(after)
            if validate_only or after == before:
                return
            await self._store_config(znodes.broker_config_path(broker_id), data)
            self._cache.put_broker_config(broker_id, after)
            self._local.apply_broker_config()
            async for topic in others_between(self._cache.topic_names(), PLANNING_COST):
                self._local.apply_topic_config(topic)
            log.info("broker settings changed", broker=znodes.DEFAULT_BROKER if broker_id is None else broker_id)

    # Planning and execution

    async def _plan_topics(self, topics: Sequence[NewTopic]) -> list[PlannedTopic | ProtocolError]:
        results: list[PlannedTopic | ProtocolError] = []
        names: dict[str, str] = {}
        async for topic in others_between(topics, PLANNING_COST):
            try:
                results.append(self._planner.topic(topic, names))
                names[unified_name(topic.name)] = topic.name
            except ProtocolError as error:
                results.append(error)
        return results

    def _plan_partitions(self, addition: NewPartitions) -> dict[int, tuple[int, ...]] | ProtocolError:
        try:
            return self._planner.partitions(addition)
        except ProtocolError as error:
            return error

    async def _create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool
    ) -> list[PlannedTopic | ProtocolError]:
        if validate_only:
            async with self._changing:
                return await self._plan_topics(topics)
        results: list[PlannedTopic | ProtocolError] = []
        for some in pieces(topics):
            async with self._changing:
                results += await self._create_some(some)
        return results

    async def _create_some(self, topics: Sequence[NewTopic]) -> list[PlannedTopic | ProtocolError]:
        results = await self._plan_topics(topics)
        plans = [plan for plan in results if isinstance(plan, PlannedTopic)]
        failures = await self._carry_out_creation(plans) if plans else {}
        # If a topic is named twice, only the first has a plan; the second keeps its own error.
        return [
            failures.get(topic.name, result) if isinstance(result, PlannedTopic) else result
            for topic, result in zip(topics, results, strict=True)
        ]

    async def _carry_out_creation(self, plans: list[PlannedTopic]) -> dict[str, ProtocolError]:
        created = [(plan, self._first_metadata(plan)) for plan in plans]
        operations = (topic_creation_operations(metadata, plan.config) for plan, metadata in created)
        try:
            await self.store.multi(chain.from_iterable(operations))
        except StoreUnavailable as error:
            return {plan.name: storage_error(error) for plan in plans}
        failures: dict[str, ProtocolError] = {}
        failed_logs = await self._local.make_logs([(metadata, plan.config) for plan, metadata in created])
        for plan, metadata in created:
            failed = await self._local.lead(metadata, plan.config, failed_logs)
            await asyncio.sleep(0)
            if failed:
                failures[plan.name] = next(iter(failed.values()))
                await self._take_back(metadata, plan.config, failed)
                continue
            self._cache.put_topic(metadata, plan.config)
            topic_id, partitions = uuid_text(metadata.topic_id), len(plan.replicas)
            log.info(
                "topic created", topic=plan.name, topic_id=topic_id, partitions=partitions, config=dict(plan.config)
            )
        return failures

    def _first_metadata(self, plan: PlannedTopic) -> TopicMetadata:
        return new_topic(plan, random_uuid(self._random), self._cache.brokers.keys(), self._cache.controller_epoch)

    async def _take_back(self, topic: TopicMetadata, config: Mapping[str, str], failed: Collection[int]) -> None:
        """Rolls back the creation of a topic (case C). Removes only the logs that were created: a conflicting folder
        may hold another topic's data.
        """
        await self._local.remove(topic.name, topic.partitions, kept=failed)
        try:
            await self.store.multi(
                topic_removal_operations(topic.name, topic.partitions, has_config=True, is_marked=False)
            )
        except StoreUnavailable as error:
            self._cache.put_topic(topic, config)
            log.error("topic without logs not rolled back", topic=topic.name, reason=str(error))

    async def _delete_topics(self, names: Sequence[str]) -> list[ProtocolError | None]:
        async with self._changing:
            unknown = {name for name in names if self._cache.topic(name) is None and name not in self._deleting}
            marked = [name for name in dict.fromkeys(names) if name not in unknown and name not in self._deleting]
            try:
                await self.store.multi([Create(znodes.deletion_path(name)) for name in marked])
            except StoreUnavailable as error:
                return [storage_error(error) for _ in names]
            for name in marked:
                self._deleting[name] = self._cache.topic(name)
                self._cache.remove_topic(name)
        for name in names:
            async with self._changing:
                if name in self._deleting:
                    for _ in self.on_topic_deleted(name):
                        await asyncio.sleep(0)
                    await self._remove_topic(name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return [ProtocolError(missing, f"There is no topic '{name}'") if name in unknown else None for name in names]

    async def _remove_topic(self, name: str) -> None:
        """Completes the deletion of a marked topic (case D). If the store is unavailable, the next start does so."""
        topic = self._deleting[name]
        has_config = await self.store.exists(znodes.topic_config_path(name)) is not None
        partitions = {} if topic is None else topic.partitions
        await self._local.remove(name, partitions)
        try:
            await self.store.multi(topic_removal_operations(name, partitions, has_config=has_config, is_marked=True))
        except StoreUnavailable as error:
            log.error("topic deletion postponed to next start", topic=name, reason=str(error))
            return
        del self._deleting[name]
        log.info("topic deleted", topic=name, partitions=len(partitions))

    async def _create_partitions(
        self, additions: Sequence[NewPartitions], validate_only: bool
    ) -> list[ProtocolError | None]:
        async with self._changing:
            results: list[ProtocolError | None] = []
            async for addition in others_between(additions, PLANNING_COST):
                planned = self._plan_partitions(addition)
                if isinstance(planned, ProtocolError):
                    results.append(planned)
                else:
                    results.append(None if validate_only else await self._add_partitions(addition.topic, planned))
            return results

    async def _add_partitions(self, name: str, replicas: Mapping[int, tuple[int, ...]]) -> ProtocolError | None:
        topic = self._cache.topic(name)
        assert topic is not None, "the planner has checked that the topic exists"
        live, epoch = self._cache.brokers.keys(), self._cache.controller_epoch
        added = {partition: new_partition(partition, brokers, live, epoch) for partition, brokers in replicas.items()}
        try:
            await self.store.multi(partition_addition_operations(topic, added))
        except StoreUnavailable as error:
            return storage_error(error)
        config = self._cache.topic_config(name)
        failures = await self._local.open(topic._replace(partitions=added), config)
        self._cache.put_topic(topic._replace(partitions={**topic.partitions, **added}), config)
        log.info("partitions added", topic=name, partitions=len(topic.partitions) + len(added))
        return next(iter(failures.values()), None)

    # Partitions and settings

    async def _store_config(self, path: str, data: bytes) -> None:
        try:
            exists = await self.store.exists(path) is not None
            await self.store.multi([Set(path, data) if exists else Create(path, data)])
        except StoreUnavailable as error:
            raise storage_error(error) from error

    async def _within(
        self, timeout_ms: int, change: Coroutine[Any, Any, list[Any]], validate_only: bool, topics: Sequence[str]
    ) -> list[Any]:
        """Runs `change` and waits for at most `timeout_ms` (case B)."""
        task = self._spawn(change, "change of metadata")
        if validate_only or not topics:
            return await asyncio.shield(task)
        if timeout_ms > 0:
            await self._waits.wait(task, timeout_ms, topics)
        return task.result() if task.done() else [_begun() for _ in topics]


def _begun() -> ProtocolError:
    return ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "The change was started and continues in the background")
