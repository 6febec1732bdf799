"""The controller of a broker: while it is active, it carries out every change of topics, partitions, replicas and
leaders of the cluster.

A change is decided, stored, and sent to the brokers as control requests, also to this one. What was stored survives the
controller: the next one completes it.

    (A) Everything is an event (`events.py`), and there is one at a time: each decision sees the context as all earlier
        ones have left it.
    (B) NOT_CONTROLLER is the answer to every request while this broker is not active (`terms.py`).

Brokers ask it by their requests (`Controller.answer`), whether they come from another broker or from this one. What
clients ask for (`metadata/administration.py`) is in `topic_requests.py`, `replica_requests.py` and
`feature_requests.py`.

Source: Kafka's `KafkaController`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from odradek.broker.background.tasks import Spawn
from odradek.broker.background.turns import Turns
from odradek.broker.controller.control_channels import ControlTarget
from odradek.broker.controller.creation_requests import TopicCreations
from odradek.broker.controller.feature_requests import FeatureRequests
from odradek.broker.controller.replica_requests import ReplicaRequests
from odradek.broker.controller.request_waits import RequestWaits
from odradek.broker.controller.term import Dependencies, Term
from odradek.broker.controller.terms import Terms
from odradek.broker.controller.topic_requests import TopicRequests
from odradek.broker.metadata.metadata_cache import BrokerInfo
from odradek.broker.metadata_store.interface import MetadataStore
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.producers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.protocol.messages.replica_control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.protocol.schema import Message
from odradek.timer.clock import Clock


class Controller:
    """One for each broker. Start its `terms` when the store is open and the broker is registered, and stop it before
    the store is closed.
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
        turns: Turns,
        waits: RequestWaits,
        channel_to: Callable[[BrokerInfo], ControlTarget],
        on_active_controller: Callable[[int], object],
        first_features: Mapping[str, int],
        on_features_written: Callable[[Mapping[str, int], int], object],
    ) -> None:
        """`listener`: the name of the listener between brokers. `waits` parks the requests. `channel_to` opens the way
        to another broker. `on_active_controller` is called with the id of the active controller whenever it changes;
        -1: none is known. `first_features` are the levels of a new cluster; `on_features_written` is called with the
        levels and their epoch when this controller has begun, and when it has changed them.
        """
        dependencies = Dependencies(
            broker_id, listener, store, config, source, spawn, channel_to, first_features, on_features_written
        )
        self.terms = Terms(dependencies, clock, on_active_controller)
        self.topics = TopicRequests(self.terms, waits, spawn)
        self.replicas = ReplicaRequests(self.terms, waits, config)
        self.features = FeatureRequests(self.terms)
        self._answers: Mapping[type[Message], Callable[[Any], Awaitable[Message]]] = {
            AlterPartitionRequest: self._alter_partition,
            ControlledShutdownRequest: self._controlled_shutdown,
            AllocateProducerIdsRequest: self._allocate_producer_ids,
            CreateTopicsRequest: TopicCreations(self.topics, config, turns).answer,
        }

    @property
    def is_active(self) -> bool:
        """Whether this broker is the active controller."""
        return self.terms.is_active

    async def answer(self, request: Message) -> Any:
        """Answers a request that brokers send to the controller: one of those above. Raises ProtocolError if it is
        refused as a whole and its response has no place for the reason.
        """
        return await self._answers[type(request)](request)

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Changes in-sync replicas; see `isr_changes.py`."""

        async def alter(term: Term) -> AlterPartitionResponse:
            response, changed = await term.isr_changes.alter(request)
            await term.reassignments.advance(changed)
            return response

        try:
            return await self.terms.ask("change of in-sync replicas", alter)
        except ProtocolError as error:
            return AlterPartitionResponse(error_code=error.code)

    async def _controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Moves leaderships away from a broker that is about to stop. Responds with the partitions that it still leads.

        Raises BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH, NOT_CONTROLLER.
        """
        left = await self.terms.ask(
            "shutdown of a broker", lambda term: term.brokers.shut_down(request.broker_id, request.broker_epoch)
        )
        remaining = [
            ControlledShutdownResponse.RemainingPartition(topic_name=key.topic, partition_index=key.partition)
            for key in left
        ]
        return ControlledShutdownResponse(remaining_partitions=remaining)

    async def _allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        """Responds with producer ids that no other broker gets. Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH,
        KAFKA_STORAGE_ERROR, NOT_CONTROLLER.
        """
        block = await self.terms.ask(
            "producer ids", lambda term: term.producer_ids.allocate(request.broker_id, request.broker_epoch)
        )
        return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.size)
