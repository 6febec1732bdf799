"""Creates topics and adds partitions: planned (`topic_planner.py`), stored, then announced to the brokers.

    (A) The settings, the assignment and the states of all partitions of a topic are written in one transaction, or in
        pieces if they are too long for that (`pieces.py`). No broker hears of a topic of which a piece is missing. If
        the controller fails in between, the next one writes the missing states.
    (B) A partition none of whose replicas is alive gets its state when one of them starts.
    (C) A broker that cannot create its log reports the replica as offline. The topic stays, as in Kafka.

Source: Kafka's `AdminZkClient`, `KafkaController.onNewPartitionCreation`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

import structlog

from odradek.broker.background.stepwise import in_steps, others_between
from odradek.broker.controller.control_requests import ControlRequests
from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.fenced_store import FencedStore
from odradek.broker.controller.partition_changes import storage_error
from odradek.broker.controller.partition_states import PartitionPhase, first_state, is_new, unled
from odradek.broker.controller.pieces import write
from odradek.broker.controller.replica_states import ReplicaPhase
from odradek.broker.controller.topic_operations import partition_addition, topic_creation
from odradek.broker.controller.topic_planner import PARTITIONS_AT_A_TIME, PlannedTopic, Planner
from odradek.broker.metadata.kafka_uuid import random_uuid, uuid_text
from odradek.broker.metadata.metadata_cache import PartitionState, TopicMetadata
from odradek.broker.metadata.new_topic import NewPartitions, NewTopic
from odradek.broker.metadata.topic_names import unified_name
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import EntryExists
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition

PLANNING_COST = 10
"""The cost of planning one topic, in items of a step."""
COST = 4
"""The cost of the first state of a partition, or of announcing it."""

log = structlog.get_logger("controller")


class TopicChanges:
    """Creates the topics and partitions that `planner` plans."""

    def __init__(
        self,
        store: FencedStore,
        context: ControllerContext,
        requests: ControlRequests,
        planner: Planner,
        source: random.Random,
    ) -> None:
        self._store = store
        self._context = context
        self._requests = requests
        self._planner = planner
        self._random = source

    # Topics

    async def plan(self, topics: Iterable[NewTopic]) -> list[PlannedTopic | ProtocolError]:
        """Returns, per topic in order, its plan or the error."""
        results: list[PlannedTopic | ProtocolError] = []
        names: dict[str, str] = {}
        async for topic in others_between(topics, PLANNING_COST):
            try:
                results.append(self._planner.topic(topic, names))
                names[unified_name(topic.name)] = topic.name
            except ProtocolError as error:
                results.append(error)
        return results

    async def create(self, topics: Sequence[NewTopic]) -> list[PlannedTopic | ProtocolError]:
        """Creates topics. Returns, per topic in order, its plan with the topic's id, or why it was not created."""
        results = await self.plan(topics)
        created = {
            plan.name: (plan, await self._first_metadata(plan)) for plan in results if isinstance(plan, PlannedTopic)
        }
        failures = await self._store_topics(list(created.values())) if created else {}
        outcomes: dict[str, PlannedTopic | ProtocolError] = {**failures}
        for name, (plan, metadata) in created.items():
            if name not in failures:
                await self._announce(metadata)
                topic_id, partitions = uuid_text(metadata.topic_id), len(plan.replicas)
                log.info("topic created", topic=name, topic_id=topic_id, partitions=partitions, config={**plan.config})
                outcomes[name] = plan._replace(topic_id=metadata.topic_id)
        # If a topic is named twice, only the first has a plan; the second keeps its own error.
        return [
            outcomes[topic.name] if isinstance(result, PlannedTopic) else result
            for topic, result in zip(topics, results, strict=True)
        ]

    async def _first_metadata(self, plan: PlannedTopic) -> TopicMetadata:
        topic_id = random_uuid(self._random)
        return TopicMetadata(plan.name, topic_id, await self._first_states(plan.name, plan.replicas))

    async def _first_states(self, name: str, replicas: Mapping[int, tuple[int, ...]]) -> dict[int, PartitionState]:
        return {
            partition: self._first_state(name, partition, brokers)
            async for partition, brokers in others_between(replicas.items(), COST)
        }

    def _first_state(self, name: str, partition: int, replicas: tuple[int, ...]) -> PartitionState:
        epoch = self._context.epoch
        state = unled(partition, replicas, epoch)
        return first_state(state, self._context.electable(TopicPartition(name, partition), state), epoch) or state

    async def _store_topics(self, created: Sequence[tuple[PlannedTopic, TopicMetadata]]) -> dict[str, ProtocolError]:
        """Returns the topics that are not stored, and why (A)."""
        left = await self._store.entries([znodes.topic_config_path(plan.name) for plan, _ in created])
        changes = [
            await in_steps(topic_creation(metadata, plan.config, has_config=entry is not None))
            async for (plan, metadata), entry in others_between(zip(created, left, strict=True), PLANNING_COST)
        ]
        failures = {}
        for (plan, _), error in zip(created, await write(self._store, changes), strict=True):
            if isinstance(error, EntryExists):
                message = f"Topic '{plan.name}' is already in the metadata store: {error}"
                failures[plan.name] = ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, message)
            elif error is not None:
                failures[plan.name] = storage_error(error)
        return failures

    async def _announce(self, topic: TopicMetadata) -> None:
        self._context.put_topic(topic)
        async for state in others_between(topic.partitions.values(), COST):
            self._announce_partition(TopicPartition(topic.name, state.partition), state)

    def _announce_partition(self, key: TopicPartition, state: PartitionState) -> None:
        context = self._context
        context.move_partition(key, PartitionPhase.NEW)
        for broker in state.replicas:
            context.move_replica(key, broker, ReplicaPhase.NEW)
        context.update_phases(key, state)
        if not is_new(state):
            self._requests.lead(state.isr, key, is_new=True)
            self._requests.publish(key)

    # Partitions

    async def plan_partitions(self, additions: Iterable[NewPartitions]) -> list[ProtocolError | None]:
        """Returns, per topic in order, None or why no partitions can be added."""
        return [
            error if isinstance(error := self._planned(addition), ProtocolError) else None
            async for addition in others_between(additions, PLANNING_COST)
        ]

    async def add_partitions(self, additions: Sequence[NewPartitions]) -> list[ProtocolError | None]:
        """Adds partitions. Returns, per topic in order, None or why no partitions were added."""
        results: list[ProtocolError | None] = []
        planned: dict[str, dict[int, PartitionState]] = {}
        failures: dict[int, ProtocolError] = {}
        places: dict[str, int] = {}
        for index, addition in enumerate(additions):
            if addition.topic in planned or sum(map(len, planned.values())) >= PARTITIONS_AT_A_TIME:
                failures.update((places[name], error) for name, error in (await self._add(planned)).items())
                planned, places = {}, {}
            plan = self._planned(addition)
            results.append(plan if isinstance(plan, ProtocolError) else None)
            if not isinstance(plan, ProtocolError):
                places[addition.topic] = index
                planned[addition.topic] = await self._first_states(addition.topic, plan)
        failures.update((places[name], error) for name, error in (await self._add(planned)).items())
        return [failures.get(index, result) for index, result in enumerate(results)]

    def _planned(self, addition: NewPartitions) -> dict[int, tuple[int, ...]] | ProtocolError:
        try:
            return self._planner.partitions(addition)
        except ProtocolError as error:
            return error

    async def _add(self, planned: Mapping[str, Mapping[int, PartitionState]]) -> dict[str, ProtocolError]:
        context = self._context
        changes = []
        for name, added in planned.items():
            topic = context.topic(name)
            assert topic is not None, "the planner has checked that the topic exists"
            changes.append(await in_steps(partition_addition(topic, context.stored_states(name), added)))
        failures = {}
        for (name, added), error in zip(planned.items(), await write(self._store, changes), strict=True):
            if error is not None:
                failures[name] = storage_error(error)
                continue
            async for partition, state in others_between(added.items(), COST):
                key = TopicPartition(name, partition)
                context.put_state(key, state)
                self._announce_partition(key, state)
            log.info("partitions added", topic=name, partitions=context.partition_count(name))
        return failures
