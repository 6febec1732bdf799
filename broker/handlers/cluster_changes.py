"""Requests between brokers: LeaderAndIsr, StopReplica and UpdateMetadata from the controller; ControlledShutdown,
AlterPartition and AllocateProducerIds to it (keys 4 to 7, 56 and 67).

A broker that is not the controller answers the latter three with NOT_CONTROLLER. Source: Kafka's `KafkaApis`.
"""

from __future__ import annotations

from odradek.broker.cluster.changes import ClusterChanges, ControlRequest
from odradek.broker.metadata.administration import Administration
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.schema import Message


class ClusterChangeHandlers:
    """`changes` carries out what the controller sends."""

    def __init__(self, changes: ClusterChanges, administration: Administration) -> None:
        self._changes = changes
        self._administration = administration

    async def from_controller(self, request: ControlRequest, _context: RequestContext) -> Message:
        """Responds when the change is made."""
        response: Message = await self._changes.send(request)
        return response

    async def for_controller(self, request: Message, _context: RequestContext) -> Message:
        """Responds as the controller does, or with NOT_CONTROLLER."""
        response: Message = await self._administration.answer(request)
        return response
