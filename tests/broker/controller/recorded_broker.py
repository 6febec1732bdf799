"""A broker that carries out the controller's requests in memory, fences them as a broker does, and can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from odradek.clients.network_errors import NodeUnreachable
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.replica_control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import EPOCH_DURING_DELETE, LEADER_DURING_DELETE, LeaderAndIsrType

Leadership = LeaderAndIsrRequest.LeaderAndIsrPartitionState
Published = UpdateMetadataRequest.UpdateMetadataPartitionState


class RecordedBroker:
    """What one broker has been told. `disk`, the replicas that it has, survives its process."""

    def __init__(self, broker_id: int, disk: dict[TopicPartition, None]) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.controller_epoch = 0
        self.metadata_epoch = -1
        self.disk = disk
        self.requests: list[Any] = []
        self.roles: dict[TopicPartition, Leadership] = {}
        self.metadata: dict[TopicPartition, Published] = {}
        self.alive: dict[int, None] = {}
        self.offline: dict[TopicPartition, None] = {}
        self.undeletable: dict[TopicPartition, None] = {}
        self.is_reachable = True
        self.delay_s = 0.0
        self.before: Callable[[Any], Awaitable[None]] | None = None
        """Called before a request is carried out."""

    def leader(self, key: TopicPartition) -> int | None:
        """The leader that the broker knows."""
        known = self.metadata.get(key)
        return None if known is None else known.leader

    async def send(self, request: Any) -> Any:
        """A controller's request: see ControlTarget."""
        if self.before is not None:
            await self.before(request)
        await asyncio.sleep(self.delay_s)
        if not self.is_reachable:
            raise NodeUnreachable(f"broker {self.broker_id} is not reachable")
        self.requests.append(request)
        return self._carry_out(request)

    def _carry_out(self, request: Any) -> Any:
        error = ErrorCode.NONE
        if request.controller_epoch < self.controller_epoch:
            error = ErrorCode.STALE_CONTROLLER_EPOCH
        elif request.broker_epoch < self.broker_epoch:
            error = ErrorCode.STALE_BROKER_EPOCH
        else:
            self.controller_epoch = request.controller_epoch
        if isinstance(request, LeaderAndIsrRequest):
            response = LeaderAndIsrResponse(error_code=error, topics=[])
            return response if error else self._lead(request, response)
        if isinstance(request, StopReplicaRequest):
            stopped = StopReplicaResponse(error_code=error, partition_errors=[])
            return stopped if error else self._stop(request, stopped)
        if not error:
            self._update(request)
        return UpdateMetadataResponse(error_code=error)

    def _lead(self, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse) -> LeaderAndIsrResponse:
        told: dict[TopicPartition, None] = {}
        for topic in request.topic_states:
            errors = []
            for state in topic.partition_states:
                key = TopicPartition(topic.topic_name, state.partition_index)
                told[key] = None
                code = ErrorCode.KAFKA_STORAGE_ERROR if key in self.offline else ErrorCode.NONE
                known = self.roles.get(key)
                if code is ErrorCode.NONE and (known is None or known.leader_epoch < state.leader_epoch):
                    self.roles[key] = state
                    self.disk[key] = None
                errors.append(
                    LeaderAndIsrResponse.LeaderAndIsrPartitionError(partition_index=key.partition, error_code=code)
                )
            response.topics.append(
                LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors)
            )
        if request.type == LeaderAndIsrType.FULL:
            self.roles = {key: state for key, state in self.roles.items() if key in told}
            for stray in [key for key in self.disk if key not in told]:
                del self.disk[stray]  # a broker keeps such logs apart
        return response

    def _stop(self, request: StopReplicaRequest, response: StopReplicaResponse) -> StopReplicaResponse:
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = TopicPartition(topic.topic_name, state.partition_index)
                code = ErrorCode.KAFKA_STORAGE_ERROR if key in self.undeletable else ErrorCode.NONE
                known = self.roles.get(key)
                if known is not None and EPOCH_DURING_DELETE != state.leader_epoch < known.leader_epoch:
                    code = ErrorCode.FENCED_LEADER_EPOCH
                if code is ErrorCode.NONE:
                    self.roles.pop(key, None)
                    if state.delete_partition:
                        self.disk.pop(key, None)
                response.partition_errors.append(
                    StopReplicaResponse.StopReplicaPartitionError(
                        topic_name=key.topic, partition_index=key.partition, error_code=code
                    )
                )
        return response

    def _update(self, request: UpdateMetadataRequest) -> None:
        if request.broker_epoch > self.metadata_epoch:  # the first one of a registration is complete
            self.metadata_epoch = request.broker_epoch
            self.metadata.clear()
        self.alive = {broker.id: None for broker in request.live_brokers}
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = TopicPartition(topic.topic_name, state.partition_index)
                if state.leader == LEADER_DURING_DELETE:
                    self.metadata.pop(key, None)
                else:
                    self.metadata[key] = state

    def count(self, kind: type[Any]) -> int:
        """How many requests of this kind have arrived."""
        return sum(isinstance(request, kind) for request in self.requests)
