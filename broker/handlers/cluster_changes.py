"""Requests between brokers: LeaderAndIsr, StopReplica and UpdateMetadata from the controller; ControlledShutdown,
AlterPartition and AllocateProducerIds to it (keys 4 to 7, 56 and 67).

A broker that is not the controller answers the latter three with NOT_CONTROLLER. Source: Kafka's `KafkaApis`.
"""

from __future__ import annotations

from odradek.broker.cluster.changes import ClusterChanges
from odradek.broker.controller.controller import Controller
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.messages.producers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.protocol.messages.replica_control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


class ClusterChangeHandlers:
    """The `context` of a request of this broker to its own controller is None."""

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

    async def alter_partition(
        self, request: AlterPartitionRequest, _context: RequestContext | None = None
    ) -> AlterPartitionResponse:
        """Responds with the in-sync replicas that are stored."""
        return await self._controller.alter_partition(request)

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest, _context: RequestContext | None = None
    ) -> ControlledShutdownResponse:
        """Responds with the partitions that the broker still leads."""
        left = await self._controller.controlled_shutdown(request.broker_id, request.broker_epoch)
        return ControlledShutdownResponse(
            remaining_partitions=[
                ControlledShutdownResponse.RemainingPartition(topic_name=key.topic, partition_index=key.partition)
                for key in left
            ]
        )

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, _context: RequestContext | None = None
    ) -> AllocateProducerIdsResponse:
        """Responds with a block of producer ids."""
        block = await self._controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
        return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.size)
