"""This broker's requests to the active controller, wherever it is: a call if this broker is the controller, otherwise a
request to the broker that the metadata names.

If the controller cannot be reached, is not known, or answers NOT_CONTROLLER, the request is sent again after a delay:
until then another controller may have been elected and may have announced itself. When the time is over, `NoController`
is raised. A request may have been carried out although its answer was lost.

Source: Kafka's `BrokerToControllerChannelManager`, `AutoTopicCreationManager`, `ProducerIdManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from odradek.broker.controller.controller import Controller
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.peers.peers import Peers
from odradek.clients.network_errors import NetworkError
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.producers import AllocateProducerIdsRequest
from odradek.protocol.messages.replica_control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
)
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import Clock

ALTER_PARTITION_TIMEOUT_MS = 10_000
PURPOSE = "controller-channel"
RETRY_MS = 100


class NoController(Exception):
    """No controller has answered in time."""


class ActiveController:
    """`own` is the controller of this broker, which may be the active one. `broker_epoch` returns the epoch of this
    broker's registration.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        peers: Peers,
        *,
        own: Controller,
        broker_epoch: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._metadata = metadata
        self._peers = peers
        self._own = own
        self._broker_epoch = broker_epoch
        self._clock = clock

    async def send(self, request: Message, timeout_ms: int) -> Any:
        """Returns the active controller's response. Raises NoController, and ProtocolError if this broker's own
        controller refuses the request.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        while True:
            try:
                response = await self._send_once(request, max(deadline_ms - self._clock.now_ms(), 1))
                reason = "the broker asked is not the controller"
                if response is not None and not _is_not_controller(response):
                    return response
            except NetworkError as error:
                reason = str(error)
            except ProtocolError as error:  # from this broker's own controller
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
                reason = str(error)
            if self._clock.now_ms() + RETRY_MS >= deadline_ms:
                raise NoController(f"no controller answered in {timeout_ms} ms: {reason}")
            await asyncio.sleep(RETRY_MS / 1000)

    async def _send_once(self, request: Message, timeout_ms: int) -> Any:
        controller_id = self._metadata.controller_id
        if controller_id == self._metadata.broker_id:
            return await self._own.answer(request)
        if controller_id < 0:
            return None
        return await self._peers.peer(controller_id, PURPOSE).send(request, timeout_ms=timeout_ms)

    # The requests

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Returns the response, which may be a refusal. Raises NoController, and ProtocolError."""
        response: AlterPartitionResponse = await self.send(request, ALTER_PARTITION_TIMEOUT_MS)
        return response

    async def controlled_shutdown(self, timeout_ms: int) -> list[TopicPartition]:
        """Asks the controller to move this broker's leaderships. Returns the partitions that it still leads. Raises
        NoController, and ProtocolError (STALE_BROKER_EPOCH).
        """
        request = ControlledShutdownRequest(broker_id=self._metadata.broker_id, broker_epoch=self._broker_epoch())
        response = await self.send(request, timeout_ms)
        _check(response)
        return [TopicPartition(left.topic_name, left.partition_index) for left in response.remaining_partitions]

    async def allocate_producer_ids(self, timeout_ms: int) -> range:
        """Returns a block of producer ids that is this broker's alone. Raises NoController, and ProtocolError."""
        request = AllocateProducerIdsRequest(broker_id=self._metadata.broker_id, broker_epoch=self._broker_epoch())
        response = await self.send(request, timeout_ms)
        _check(response)
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    async def create_topics(self, topics: Sequence[NewTopic], timeout_ms: int) -> list[ProtocolError | None]:
        """Creates topics. Returns, per topic in order, None or the error. Raises NoController."""
        request = CreateTopicsRequest(
            timeout_ms=timeout_ms,
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.num_partitions,
                    replication_factor=topic.replication_factor,
                    assignments=[],
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                        for name, value in topic.configs.items()
                    ],
                )
                for topic in topics
            ],
        )
        response = await self.send(request, timeout_ms)
        outcomes = {
            result.name: ProtocolError(ErrorCode.of(result.error_code), result.error_message or "")
            if result.error_code
            else None
            for result in response.topics
        }
        return [outcomes[topic.name] for topic in topics]


def _check(response: Any) -> None:
    if response.error_code:
        raise ProtocolError(ErrorCode.of(response.error_code))


def _is_not_controller(response: Any) -> bool:
    codes = [getattr(response, "error_code", None)]
    if codes == [None]:
        codes = [topic.error_code for topic in response.topics]
    return ErrorCode.NOT_CONTROLLER in codes
