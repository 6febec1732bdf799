"""The changes that the controller sends to this broker, in one ordered queue: roles in partitions, and metadata.

The controller sends LeaderAndIsr, StopReplica and UpdateMetadata. Whether they arrive over the network or, from the
controller of this very broker, by a call, they become deltas here (deltas.py), which are applied one request at a time
and in the order of their arrival.

(A) A request of an older controller epoch than the last one is refused with STALE_CONTROLLER_EPOCH; a request that was
    meant for this broker before it registered anew, with STALE_BROKER_EPOCH. Neither changes anything. A broker that
    starts accepts connections before it registers, and its address may be that of its predecessor, whose registration
    is still there: until it knows its own broker epoch, requests wait. So do those that arrive when its session has
    ended, until it has registered anew.
(B) LeaderAndIsr changes roles (replica/role_changes.py); each partition has its own error. UpdateMetadata changes the
    metadata cache, which clients' requests read. The controller sends it after the roles, so that clients are sent to
    leaders that know of their leadership.
(C) Deleted partitions are those whose leader UpdateMetadata gives as -2.
(D) The first UpdateMetadata of a controller for a registration has all brokers. From Odradek's controllers it has all
    partitions, too; from a new one of Apache Kafka it may have none, and the partitions follow in the next one.
    So the metadata store says which topics have gone meanwhile; and until a request has partitions, an unknown
    partition may exist, unless the store has no topics. The request says which registration it is for; this broker may
    learn of it later than the controller.
(E) The first LeaderAndIsr of type FULL of a controller has all roles of this broker. Replicas that are not in it, or
    are of earlier topics, are stopped; their logs stay. A later one may be a late copy, and is taken role by role.
(F) When the session with the metadata store has ended, this broker leads no partition until a LeaderAndIsr for the next
    registration says so. Roles of a request that was taken before, and is still being applied, are refused.

Source: Kafka's `KafkaApis.handleLeaderAndIsrRequest`, `handleStopReplicaRequest`, `handleUpdateMetadataRequest`,
`ZkMetadataCache`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any

import structlog

from odradek.broker.background.stepwise import others_between
from odradek.broker.cluster.deltas import (
    BrokersChanged,
    Delta,
    Deltas,
    RolesChanged,
    RolesEnded,
    TopicChanged,
    TopicsListed,
)
from odradek.broker.cluster.dynamic_configs import DynamicConfigs
from odradek.broker.cluster.settings_in_effect import SettingsInEffect
from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo, MetadataCache, PartitionState
from odradek.broker.metadata_store.interface import MetadataStoreError
from odradek.broker.replica.role_changes import Errors, Role, RoleChanges, Stop
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.replica_control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import LEADER_DURING_DELETE, LeaderAndIsrType, SecurityProtocol

NO_BROKER_EPOCH = -1
COST = 3
"""The cost of one partition, in items of a step."""

log = structlog.get_logger("broker.cluster")

ControlRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest


class ClusterChanges:
    """`registered` returns once this broker has registered, `broker_epoch` the epoch of its registration.
    `stored_topics` reads which topics the metadata store has, and raises MetadataStoreError.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        roles: RoleChanges,
        configs: DynamicConfigs,
        settings: SettingsInEffect,
        deltas: Deltas,
        *,
        registered: Callable[[], Awaitable[None]],
        broker_epoch: Callable[[], int],
        stored_topics: Callable[[], Awaitable[Collection[str]]],
    ) -> None:
        self._metadata = metadata
        self._roles = roles
        self._configs = configs
        self._settings = settings
        self._deltas = deltas
        self._registered = registered
        self._broker_epoch = broker_epoch
        self._stored_topics = stored_topics
        self._applying = asyncio.Lock()
        self._compared_in: tuple[int, int] | None = None
        """The controller epoch and the broker epoch for which the topics were last compared with those in the store
        (D)."""
        self._full_in: tuple[int, int] | None = None
        """The controller epoch and the broker epoch of the last LeaderAndIsr that had everything (E)."""
        self._deltas_of: dict[type[Message], Callable[[Any], AsyncIterator[Delta]]] = {
            LeaderAndIsrRequest: self._roles_of,
            StopReplicaRequest: self._stops_of,
            UpdateMetadataRequest: self._metadata_of,
        }

    async def send(self, request: ControlRequest) -> Any:
        """See ControlTarget. Applies a request in its turn; refuses an old one (A). Responds when the roles have
        changed, the logs to be deleted are removed, and clients see the metadata.
        """
        response, fill = _RESPONSES[type(request)]
        async with self._applying:
            await self._registered()
            refusal = self._refusal(request)
            if refusal is not ErrorCode.NONE:
                return response(error_code=refusal)
            self._metadata.controller_epoch = request.controller_epoch
            errors = await self._deltas.apply(self._deltas_of[type(request)](request))
            return response() if fill is None else await fill(request, errors)

    def _refusal(self, request: ControlRequest) -> ErrorCode:
        """Returns why a request is refused (A), or NONE."""
        own_epoch = self._broker_epoch()
        if request.broker_epoch != NO_BROKER_EPOCH and request.broker_epoch < own_epoch:
            code, known = ErrorCode.STALE_BROKER_EPOCH, own_epoch
        elif request.controller_epoch < self._metadata.controller_epoch:
            code, known = ErrorCode.STALE_CONTROLLER_EPOCH, self._metadata.controller_epoch
        else:
            return ErrorCode.NONE
        log.warning(
            "control request refused",
            request=type(request).__name__,
            error=code.name,
            controller=request.controller_id,
            controller_epoch=request.controller_epoch,
            broker_epoch=request.broker_epoch,
            known_epoch=known,
        )
        return code

    def _epochs_of(self, request: ControlRequest) -> tuple[int, int]:
        """Returns the epoch of the controller of a request, and that of the registration that the request is for."""
        registration = self._broker_epoch() if request.broker_epoch == NO_BROKER_EPOCH else request.broker_epoch
        return request.controller_epoch, registration

    def session_ended(self) -> None:
        """The leaderships lapse (F)."""
        self._roles.lapse()

    async def _roles_of(self, request: LeaderAndIsrRequest) -> AsyncIterator[Delta]:
        lapses, settings = self._roles.lapses, self._settings.changes
        await self._configs.ensure(topic.topic_name for topic in request.topic_states)
        roles: list[Role] = []
        for topic in request.topic_states:
            config = self._settings.log_config(topic.topic_name)
            async for state in others_between(topic.partition_states, COST):
                key = TopicPartition(topic.topic_name, state.partition_index)
                roles.append(Role(key, topic.topic_id, _state(state), config, state.is_new))
        yield RolesChanged(roles, self._is_full(request), lapses, settings)

    def _is_full(self, request: LeaderAndIsrRequest) -> bool:
        """Whether a request has all roles of this broker, as they are now (E)."""
        epochs = self._epochs_of(request)
        if request.type != LeaderAndIsrType.FULL or self._full_in == epochs:
            return False
        self._full_in = epochs
        return True

    async def _stops_of(self, request: StopReplicaRequest) -> AsyncIterator[Delta]:
        """The leader epoch -2 stands for any: the topic is being deleted. -1 stands for any, too: it is not known."""
        yield RolesEnded(
            [
                Stop(
                    TopicPartition(topic.topic_name, state.partition_index),
                    None if state.leader_epoch < 0 else state.leader_epoch,
                    state.delete_partition,
                )
                for topic in request.topic_states
                for state in topic.partition_states
            ]
        )

    async def _metadata_of(self, request: UpdateMetadataRequest) -> AsyncIterator[Delta]:
        """All live brokers, the topics that are new, changed or deleted (C), and of the first request all (D)."""
        yield BrokersChanged(request.controller_id, map(_broker, request.live_brokers))
        await self._configs.ensure(topic.topic_name for topic in request.topic_states)
        async for topic in others_between(request.topic_states, COST):
            states = [_known_state(state) for state in topic.partition_states if state.leader != LEADER_DURING_DELETE]
            deleted = [one.partition_index for one in topic.partition_states if one.leader == LEADER_DURING_DELETE]
            yield TopicChanged(topic.topic_name, topic.topic_id, states, deleted)
        if self._compared_in != self._epochs_of(request):
            try:
                stored = await self._stored_topics()
            except MetadataStoreError as error:
                log.warning("topics not compared with the metadata store", reason=str(error))
            else:
                yield TopicsListed({*stored, *(topic.topic_name for topic in request.topic_states)})
                self._compared_in = self._epochs_of(request)


def _state(state: LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> PartitionState:
    return PartitionState(
        state.partition_index,
        state.leader,
        state.leader_epoch,
        tuple(state.replicas),
        tuple(state.isr),
        state.controller_epoch,
        state.partition_epoch,
        tuple(state.adding_replicas),
        tuple(state.removing_replicas),
    )


def _known_state(state: UpdateMetadataRequest.UpdateMetadataPartitionState) -> PartitionState:
    return PartitionState(
        state.partition_index,
        state.leader,
        state.leader_epoch,
        tuple(state.replicas),
        tuple(state.isr),
        state.controller_epoch,
        state.zk_version,
        offline=tuple(state.offline_replicas),
    )


def _broker(broker: UpdateMetadataRequest.UpdateMetadataBroker) -> BrokerInfo:
    endpoints = {
        endpoint.listener: BrokerEndpoint(
            endpoint.listener, endpoint.host, endpoint.port, SecurityProtocol(endpoint.security_protocol).name
        )
        for endpoint in broker.endpoints
    }
    return BrokerInfo(broker.id, endpoints, broker.rack)


async def _outcomes_of_roles(request: LeaderAndIsrRequest, errors: Errors) -> LeaderAndIsrResponse:
    topics = []
    async for topic in others_between(request.topic_states, COST):
        outcomes = [
            LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                partition_index=state.partition_index,
                error_code=errors[TopicPartition(topic.topic_name, state.partition_index)],
            )
            for state in topic.partition_states
        ]
        topics.append(LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=outcomes))
    return LeaderAndIsrResponse(topics=topics)


async def _outcomes_of_stops(_request: StopReplicaRequest, errors: Errors) -> StopReplicaResponse:
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaResponse.StopReplicaPartitionError(
                topic_name=key.topic, partition_index=key.partition, error_code=error
            )
            for key, error in errors.items()
        ]
    )


_RESPONSES: Mapping[type[Message], tuple[type[Any], Callable[[Any, Errors], Awaitable[Message]] | None]] = {
    LeaderAndIsrRequest: (LeaderAndIsrResponse, _outcomes_of_roles),
    StopReplicaRequest: (StopReplicaResponse, _outcomes_of_stops),
    UpdateMetadataRequest: (UpdateMetadataResponse, None),
}
"""The response to each request, and what returns it with the outcomes of its partitions."""
