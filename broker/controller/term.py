"""One term of a controller: from its election until it resigns. All that it knows and does in this time is in here, and
ends with it.

    (A) It starts with what the store has: it loads the context, deletes old notifications, elects leaders for
        partitions whose leader has failed, and sends everything to every broker: one UpdateMetadata and one
        LeaderAndIsr for each. Then it goes on with deletions and reassignments that its predecessor has left behind.
    (B) `send` ends each event: the requests that the event has collected are built and queued.
    (C) When it is closed, its channels end, and each further call to the store raises ControllerMoved.

Source: Kafka's `KafkaController.onControllerFailover`, `onControllerResignation`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

import structlog

from odradek.broker.background.stepwise import others_between
from odradek.broker.background.tasks import Spawn
from odradek.broker.controller.broker_changes import BrokerChanges
from odradek.broker.controller.control_channels import ControlChannels, ControlTarget
from odradek.broker.controller.control_requests import (
    ControlRequest,
    ControlRequests,
    deleted_partitions,
    deletion_errors,
    leadership_errors,
)
from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.controller_election import Won
from odradek.broker.controller.elections import Elections
from odradek.broker.controller.feature_updates import FeatureUpdates
from odradek.broker.controller.fenced_store import FencedStore
from odradek.broker.controller.isr_changes import IsrChanges
from odradek.broker.controller.partition_changes import PartitionChanges
from odradek.broker.controller.producer_id_blocks import ProducerIdBlocks
from odradek.broker.controller.reassignments import Reassignments
from odradek.broker.controller.stored_requests import StoredRequests
from odradek.broker.controller.stored_topics import StoredTopics
from odradek.broker.controller.topic_changes import TopicChanges
from odradek.broker.controller.topic_deletions import TopicDeletions
from odradek.broker.controller.topic_planner import Planner
from odradek.broker.metadata.metadata_cache import BrokerInfo
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import MetadataStore
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.replica_control import LeaderAndIsrRequest, StopReplicaRequest

log = structlog.get_logger("controller")

Work = Callable[[], Awaitable[Any]]
RETRY_DELAY_S = 1.0
"""How long after a failure of the store a change is tried again."""


class Schedule(Protocol):
    """The events of this term, one after the other; each ends with `send`."""

    def each(self, name: str, work: Work, /) -> None:
        """Queues an event."""

    def once(self, name: str, work: Work, /, delay_s: float = 0) -> None:
        """Queues an event after a delay, unless one of this name waits already."""


class Dependencies(NamedTuple):
    """What every term of a controller uses. `listener` is the one between brokers."""

    broker_id: int
    listener: str
    store: MetadataStore
    config: BrokerConfig
    source: random.Random
    spawn: Spawn
    channel_to: Callable[[BrokerInfo], ControlTarget]
    first_features: Mapping[str, int]
    on_features_written: Callable[[Mapping[str, int], int], object]


class Term:
    """The term that began with the victory `won`. `own` carries out control requests on this broker."""

    def __init__(
        self, won: Won, dependencies: Dependencies, own: ControlTarget, schedule: Callable[[Term], Schedule]
    ) -> None:
        self.won = won
        self.is_open = True
        self._schedule = schedule(self)
        self.own_losses = 0
        """How many reports of lost replicas by this broker wait to be dealt with."""
        self._session = dependencies.store.session_epoch
        self._dependencies = dependencies
        self.context = context = ControllerContext(won.epoch)
        self.store = FencedStore(dependencies.store, won.epoch_version, self._in_term)
        self.channels = ControlChannels(
            dependencies.broker_id, own, dependencies.channel_to, self._answered, dependencies.spawn
        )
        self.requests = requests = ControlRequests(context, dependencies.broker_id, dependencies.listener)
        config = dependencies.config
        self.planner = Planner(
            context.metadata,
            dependencies.source,
            default_partitions=lambda: config.num_partitions,
            default_replication_factor=lambda: config.default_replication_factor,
            validate_config=config.check_topic_config,
            deleting=context.deletions,
            damaged=context.damaged,
            is_being_reassigned=context.is_topic_being_reassigned,
        )
        changes = PartitionChanges(self.store, context)
        self.topics = TopicChanges(self.store, context, requests, self.planner, dependencies.source)
        self.elections = Elections(context, changes, requests)
        self.isr_changes = IsrChanges(context, changes, requests)
        self.producer_ids = ProducerIdBlocks(self.store, context)
        self.deletions = TopicDeletions(self.store, context, requests, self._resume_deletions_later)
        self.reassignments = Reassignments(self.store, context, changes, requests, self._finish_reassignments_later)
        self.features = FeatureUpdates(
            self.store,
            context,
            dependencies.first_features,
            is_shared=dependencies.store.is_shared,
            written=dependencies.on_features_written,
            on_change=self._stored_events,
        )
        self.brokers = BrokerChanges(
            self.store,
            context,
            config,
            self.features,
            changes,
            requests,
            self.channels,
            self.deletions,
            self.reassignments,
            on_change=self._stored_events,
            try_later=self._settle_later,
        )
        self.stored_topics = StoredTopics(
            self.store,
            context,
            requests,
            self.brokers,
            dependencies.source,
            is_watched=dependencies.store.is_shared,
            on_change=lambda: self._schedule.once("topics in the store", self._read_stored_topics),
        )
        self.stored_requests = StoredRequests(
            self.store,
            context,
            config,
            self.deletions,
            self.reassignments,
            self.elections,
            on_change=lambda: self._schedule.once("requests in the store", self.stored_requests.changed),
        )

    async def begin(self) -> None:
        """Takes over (A). Raises ControllerMoved and MetadataStoreError."""
        context = self.context
        registered = await self.brokers.registered()
        await self.features.begin(registered.values())
        for broker in self.brokers.usable(registered).values():
            context.put_broker(broker)
        for parent in (znodes.LOG_DIR_EVENTS, znodes.ISR_CHANGES):
            names = await self.store.children(parent)
            await self.brokers.forget_notifications(f"{parent}/{name}" for name in names)
        restarted = await self.stored_topics.load()
        await self.deletions.enqueue(await self.stored_requests.topics_to_delete())
        for name in context.metadata.topic_names():
            async for key in others_between(context.partitions_of(name)):
                state = context.state(key)
                assert state is not None
                context.load_phases(key, state)
        self.brokers.introduce(context.brokers)
        await self.brokers.have_restarted(restarted)
        await self.brokers.settle()
        await self.brokers.directories_failed()
        await self.stored_requests.begin()
        await self.reassignments.resume()
        await self.deletions.resume()
        await self.send()
        log.info(
            "controller started",
            epoch=context.epoch,
            brokers=list(context.brokers),
            topics=context.metadata.topic_count,
            partitions=context.metadata.partition_count,
        )

    async def send(self) -> None:
        """Queues the requests that were collected (B)."""
        for addressed in await self.requests.take():
            self.channels.put(addressed)
        self.context.event_ended()

    def elect_again(self) -> None:
        """Elects leaders where that is possible now."""
        self._schedule.once("leaders", self.brokers.settle)

    def close(self) -> None:
        """Ends the term (C)."""
        self.is_open = False
        self.channels.close()
        self.deletions.close()

    def _in_term(self) -> bool:
        return self.is_open and self._dependencies.store.session_epoch == self._session

    # Events

    def _stored_events(self) -> None:
        self._schedule.once("brokers or log directories", self._read_stored_events)

    async def _read_stored_topics(self) -> None:
        """A request may have waited for a topic whose entry was damaged."""
        if await self.stored_topics.changed():
            await self.stored_requests.changed()

    async def _read_stored_events(self) -> None:
        await self.brokers.changed()
        await self.brokers.directories_failed()

    def _settle_later(self) -> None:
        self._schedule.once("leaders", self.brokers.settle, RETRY_DELAY_S)

    def _resume_deletions_later(self) -> None:
        self._schedule.once("deletions", self.deletions.resume, RETRY_DELAY_S)

    def _finish_reassignments_later(self) -> None:
        self._schedule.once("reassignments", self.reassignments.finish_all, RETRY_DELAY_S)

    def _answered(self, broker_id: int, request: ControlRequest, response: Any) -> None:
        if response is not None and response.error_code:
            kind, code = type(request).__name__, response.error_code
            log.warning("control request refused", broker=broker_id, request=kind, error_code=code)
        if isinstance(request, LeaderAndIsrRequest):
            errors = leadership_errors(request, response)
            has_lost = ErrorCode.KAFKA_STORAGE_ERROR in errors.values()
            if has_lost or self.context.offline_replicas.get(broker_id):
                self._of_broker(broker_id, request, lambda: self.brokers.replicas_answered(broker_id, errors))
                if broker_id == self._dependencies.broker_id:
                    self.own_losses += 1
                    self._schedule.each("losses dealt with", self._own_losses_dealt_with)
        elif isinstance(request, StopReplicaRequest):
            with_topic = deletion_errors(request, response, with_topic=True)
            if with_topic:
                self._of_broker(broker_id, request, lambda: self.deletions.stopped(broker_id, with_topic))
            removed = deletion_errors(request, response, with_topic=False)
            if removed:
                self._of_broker(broker_id, request, lambda: self.reassignments.stopped(broker_id, removed))
        elif self.context.deletions:
            deleted = deleted_partitions(request)
            if deleted:
                self._of_broker(broker_id, request, lambda: self.deletions.told(broker_id, deleted))

    def _of_broker(self, broker_id: int, request: ControlRequest, work: Work) -> None:
        """Queues an event that a broker has caused, which is dropped if the broker registers again before."""

        async def unless_restarted() -> None:
            broker = self.context.brokers.get(broker_id)
            if broker is not None and broker.epoch == request.broker_epoch:
                await work()

        self._schedule.each(f"response of broker {broker_id}", unless_restarted)

    async def _own_losses_dealt_with(self) -> None:
        self.own_losses -= 1
