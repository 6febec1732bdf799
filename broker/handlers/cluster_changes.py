"""Requests between brokers: LeaderAndIsr, StopReplica and UpdateMetadata from the controller; ControlledShutdown,
AlterPartition, AllocateProducerIds and CreateTopics (which clients send, too) to it (keys 4 to 7, 19, 56 and 67).

A broker that is not the controller answers the latter four with NOT_CONTROLLER. Source: Kafka's `KafkaApis`.
"""

from __future__ import annotations

from odradek.broker.cluster.changes import ClusterChanges
from odradek.broker.controller.controller import Controller
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.messages.replica_control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from odradek.protocol.schema import Message


class ClusterChangeHandlers:
    """`changes` carries out what the controller sends; `controller` is this broker's own."""

    def __init__(self, changes: ClusterChanges, controller: Controller) -> None:
        self._changes = changes
        self._controller = controller

    async def leader_and_isr(self, request: LeaderAndIsrRequest, _context: RequestContext) -> LeaderAndIsrResponse:
        """Responds when the roles have changed."""
        return await self._changes.leader_and_isr(request)

    async def stop_replica(self, request: StopReplicaRequest, _context: RequestContext) -> StopReplicaResponse:
        """Responds when the replicas have stopped, and those to be deleted are removed."""
        return await self._changes.stop_replica(request)

    async def update_metadata(self, request: UpdateMetadataRequest, _context: RequestContext) -> UpdateMetadataResponse:
        """Responds when clients see the change."""
        return await self._changes.update_metadata(request)

    async def for_controller(self, request: Message, _context: RequestContext) -> Message:
        """Responds as the controller does, or with NOT_CONTROLLER."""
        response: Message = await self._controller.answer(request)
        return response
