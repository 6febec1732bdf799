"""The controller of a broker: while it is in office, it carries out every change of topics, partitions, replicas and
leaders of the cluster.

A change is decided, stored, and sent to the brokers as control requests, also to this one. What was stored survives the
controller: the next one completes it.

    (A) Everything is an event (`events.py`), and there is one at a time: each decision sees the context as all earlier
        ones have left it. A request for many topics is split into several events, so that others can run in between.
    (B) Each request runs as its own task. When its timeout passes, the client receives REQUEST_TIMED_OUT and the change
        continues. As in Kafka, a timeout of 0 or less means: start the change and do not wait.
    (C) A request is answered when this broker has carried out what was sent to it, so that a client that asks this
        broker next sees the change. If this broker cannot create a log, the client sees that, too. It does not wait for
        other brokers.
    (D) NOT_CONTROLLER is the answer to every request while this broker is not in office (`tenure.py`).

Items that fail are returned as ProtocolError values, because the items of a request fail independently. Source: Kafka's
`KafkaController`, `ZkAdminManager`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.controller.control_channels import ControlTarget
from odradek.broker.controller.controller_context import ControllerNumbers
from odradek.broker.controller.elections import ElectionType
from odradek.broker.controller.office import Office, Surroundings
from odradek.broker.controller.producer_id_blocks import ProducerIdBlock
from odradek.broker.controller.request_waits import RequestWaits
from odradek.broker.controller.tenure import Tenure, not_controller
from odradek.broker.controller.topic_planner import NewPartitions, NewTopic, PlannedTopic, pieces
from odradek.broker.metadata.metadata_cache import BrokerInfo, PartitionState
from odradek.broker.metadata_store.interface import (
    MetadataStore,
)
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.replica_control import AlterPartitionRequest, AlterPartitionResponse
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer.clock import Clock

T = TypeVar("T")
Outcomes = dict[TopicPartition, ProtocolError | None]

ELECTION = "election"

log = structlog.get_logger("controller")


class Controller:
    """One for each broker. Call `start` when the store is open and the broker is registered, and `stop` before the
    store is closed.
    """

    def __init__(
        self,
        store: MetadataStore,
        *,
        broker_id: int,
        listener: str,
        config: BrokerConfig,
        clock: Clock,
        source: random.Random,
        spawn: Spawn,
        waits: RequestWaits,
        channel_to: Callable[[BrokerInfo], ControlTarget],
        on_active_controller: Callable[[int], object],
    ) -> None:
        """`listener`: the name of the listener between brokers. `waits` parks the requests. `channel_to` opens the way
        to another broker. `on_active_controller` is called with the id of the active controller whenever it changes;
        -1: none is known.
        """
        self._config = config
        self._spawn = spawn
        self._waits = waits
        around = Surroundings(broker_id, listener, store, config, source, spawn, channel_to)
        self._tenure = Tenure(around, clock, on_active_controller)

    # Life

    async def start(self, own: ControlTarget) -> None:
        """Stands for election. Returns when there is a controller; if it is this one, when this broker has carried out
        the first requests. `own` carries out control requests on this broker. Raises MetadataStoreError.
        """
        await self._tenure.start(own)
        await self._own_answered()

    async def stop(self) -> None:
        """Waits for the event in progress, and leaves office. The entry of the controller ends with the session."""
        await self._tenure.stop()

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._tenure.office is not None

    @property
    def epoch(self) -> int:
        """The controller epoch of the current office, or -1."""
        return -1 if self._tenure.office is None else self._tenure.office.context.epoch

    def numbers(self) -> ControllerNumbers:
        """Returns the metrics."""
        return ControllerNumbers() if self._tenure.office is None else self._tenure.office.context.numbers()

    # Topics

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool = False
    ) -> list[PlannedTopic | ProtocolError]:
        """Creates topics. Returns, per topic in order, what was (or would be) created, or the error: the codes of
        `state.Planner.topic`, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR, NOT_CONTROLLER.
        """
        if self._tenure.office is None:
            return [not_controller() for _ in topics]
        if timeout_ms <= 0 and not validate_only:
            planned = await self._tenure.office.topics.plan(topics)
            self._spawn(self._create_topics(topics, False), "creation of topics")
            return [plan if isinstance(plan, ProtocolError) else _begun() for plan in planned]
        change = self._create_topics(topics, validate_only)
        return await self._within(timeout_ms, change, validate_only, [topic.name for topic in topics])

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int) -> list[ProtocolError | None]:
        """Deletes topics. Returns, per name in order, None, or UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT,
        KAFKA_STORAGE_ERROR, NOT_CONTROLLER. A topic with replicas on brokers that are dead is deleted later.
        """
        if self._tenure.office is None:
            return [not_controller() for _ in names]
        return await self._within(timeout_ms, self._delete_topics(names), False, names)

    async def create_partitions(
        self, additions: Sequence[NewPartitions], *, timeout_ms: int, validate_only: bool = False
    ) -> list[ProtocolError | None]:
        """Adds partitions. Returns, per topic in order, None, or the reason why no partitions were added."""
        if self._tenure.office is None:
            return [not_controller() for _ in additions]
        if timeout_ms <= 0 and not validate_only:
            planned = await self._tenure.office.topics.plan_partitions(additions)
            self._spawn(self._create_partitions(additions, False), "creation of partitions")
            return [plan if isinstance(plan, ProtocolError) else _begun() for plan in planned]
        change = self._create_partitions(additions, validate_only)
        return await self._within(timeout_ms, change, validate_only, [addition.topic for addition in additions])

    # Leaders and replicas

    async def elect(
        self, election: ElectionType, partitions: Collection[TopicPartition], *, timeout_ms: int
    ) -> Outcomes:
        """Elects leaders, and waits until this broker knows them. Returns, per partition, None if it has a new leader,
        otherwise the codes of `Elections.elect`, REQUEST_TIMED_OUT, NOT_CONTROLLER.
        """
        try:
            elected = await self._tenure.ask(
                "election of leaders", lambda office: office.elections.elect(election, partitions)
            )
        except ProtocolError as error:
            return dict.fromkeys(partitions, error)
        outcomes: Outcomes = {
            key: outcome if isinstance(outcome, ProtocolError) else None for key, outcome in elected.items()
        }
        leaders = {key: outcome.leader for key, outcome in elected.items() if isinstance(outcome, PartitionState)}
        if leaders and self._tenure.office is not None:
            announced = self._tenure.office.channels.own_answered()
            for late in await self._waits.leaders_known(leaders, announced, timeout_ms):
                outcomes[late] = ProtocolError(ErrorCode.REQUEST_TIMED_OUT)
        return outcomes

    async def balance_leaders(self) -> None:
        """Elects preferred leaders where brokers lead too few partitions; does nothing if this is not the controller,
        or auto.leader.rebalance.enable is false.
        """
        if self._tenure.office is not None and self._config.auto_leader_rebalance_enable:
            percentage = self._config.leader_imbalance_per_broker_percentage
            await self._tenure.ask("balance of leaders", lambda office: office.elections.balance(percentage))

    def unclean_elections_allowed(self) -> None:
        """Elects leaders again, because a topic or the cluster allows unclean elections now."""
        if self._tenure.office is not None:
            self._tenure.office.elect_again()

    async def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Outcomes:
        """Starts or cancels reassignments; see `Reassignments.reassign`. Raises NOT_CONTROLLER."""

        async def reassign(office: Office) -> Outcomes:
            outcomes = await office.reassignments.reassign(targets)
            await office.brokers.lead_new([key for key, error in outcomes.items() if error is None])
            return outcomes

        outcomes = await self._tenure.ask("reassignment", reassign)
        await self._own_answered()
        return outcomes

    def reassignments(self, wanted: Collection[TopicPartition] | None) -> dict[TopicPartition, PartitionState]:
        """The partitions being reassigned, restricted to `wanted` unless it is None. Raises NOT_CONTROLLER."""
        found = self._tenure.current().context.reassigning()
        return {key: state for key, state in found.items() if wanted is None or key in wanted}

    # Requests of brokers

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Changes in-sync replicas; see `isr_changes.py`."""

        async def alter(office: Office) -> AlterPartitionResponse:
            response, changed = await office.isr_changes.alter(request)
            await office.reassignments.advance(changed)
            return response

        try:
            return await self._tenure.ask("change of in-sync replicas", alter)
        except ProtocolError as error:
            return AlterPartitionResponse(error_code=error.code)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Moves leaderships away from a broker that is about to stop. Returns the partitions that it still leads.

        Raises BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH, NOT_CONTROLLER.
        """
        return await self._tenure.ask(
            "shutdown of a broker", lambda office: office.brokers.shut_down(broker_id, broker_epoch)
        )

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """Returns producer ids that no other broker gets. Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH,
        KAFKA_STORAGE_ERROR, NOT_CONTROLLER.
        """
        return await self._tenure.ask(
            "producer ids", lambda office: office.producer_ids.allocate(broker_id, broker_epoch)
        )

    # Changes of topics

    async def _create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool
    ) -> list[PlannedTopic | ProtocolError]:
        if validate_only:
            return await self._each(topics, lambda office: office.topics.plan(topics))
        results: list[PlannedTopic | ProtocolError] = []
        for some in pieces(topics):
            results += await self._each(some, partial(_create, some))
        await self._own_answered()
        return results

    async def _delete_topics(self, names: Sequence[str]) -> list[ProtocolError | None]:
        try:
            refused = await self._tenure.ask("deletion of topics", lambda office: office.deletions.mark(names))
        except ProtocolError as error:
            return [error for _ in names]
        if self._tenure.office is not None:
            await self._tenure.office.deletions.ended([name for name in names if name not in refused])
        await self._own_answered()
        return [refused.get(name) for name in names]

    async def _create_partitions(
        self, additions: Sequence[NewPartitions], validate_only: bool
    ) -> list[ProtocolError | None]:
        if validate_only:
            return await self._each(additions, lambda office: office.topics.plan_partitions(additions))
        results = await self._each(additions, lambda office: office.topics.add_partitions(additions))
        await self._own_answered()
        return results

    async def _each(self, items: Sequence[Any], work: Callable[[Office], Awaitable[list[Any]]]) -> list[Any]:
        """Runs an event. If it fails, each item fails."""
        try:
            return await self._tenure.ask("change of topics", work)
        except ProtocolError as error:
            return [error for _ in items]

    async def _own_answered(self) -> None:
        """Waits until this broker has carried out what was sent to it (C)."""
        office = self._tenure.office
        while office is not None and await office.channels.own_answered() and office.own_losses:
            try:
                await self._tenure.ask("what this broker has lost", _nothing)
            except ProtocolError:
                return  # another controller is in office; the change is stored

    async def _within(
        self, timeout_ms: int, change: Coroutine[Any, Any, list[Any]], validate_only: bool, topics: Sequence[str]
    ) -> list[Any]:
        """Runs `change` and waits for at most `timeout_ms` (case B)."""
        task = self._spawn(change, "change of metadata")
        if validate_only or not topics:
            return await asyncio.shield(task)
        if timeout_ms > 0:
            await self._waits.topic_change(task, timeout_ms, topics)
        return task.result() if task.done() else [_begun() for _ in topics]


async def _create(topics: Sequence[NewTopic], office: Office) -> list[PlannedTopic | ProtocolError]:
    return await office.topics.create(topics)


async def _nothing(_office: Office) -> None:
    """The event that comes after all that are queued now."""


def _begun() -> ProtocolError:
    return ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "The change was started and continues in the background")
