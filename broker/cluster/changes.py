"""The changes that the controller sends to this broker, in one ordered queue: roles in partitions, and metadata.

The controller sends LeaderAndIsr, StopReplica and UpdateMetadata. Whether they arrive over the network or, from the
controller of this very broker, by a call, they are applied here, one at a time and in the order of their arrival.

(A) A request of an older controller epoch than the last one is refused with STALE_CONTROLLER_EPOCH; a request that was
    meant for this broker before it registered anew, with STALE_BROKER_EPOCH. Neither changes anything. A broker that
    starts accepts connections before it registers, and its address may be that of its predecessor, whose registration
    is still there: until it knows its own broker epoch, requests wait. So do those that arrive when its session has
    ended, until it has registered anew.
(B) LeaderAndIsr changes roles (replica/role_changes.py); each partition has its own error. UpdateMetadata changes the
    metadata cache, which clients' requests read. The controller sends it after the roles, so that clients are sent to
    leaders that know of their leadership.
(C) Deleted partitions are those whose leader UpdateMetadata gives as -2. After the last partition of a topic, what this
    broker knows of the topic elsewhere (settings, committed offsets) is removed.
(D) The first UpdateMetadata of a controller for a registration has all brokers. From Odradek's controllers it has all
    partitions, too; from one of Apache Kafka that takes office it may have none, and the partitions follow in the next
    one. So the metadata store says which topics have gone meanwhile; and until a request has partitions, an unknown
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
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import Any

import structlog

from odradek.broker.background.stepwise import others_between
from odradek.broker.cluster.dynamic_configs import DynamicConfigs
from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo, MetadataCache, PartitionState
from odradek.broker.metadata_store.interface import MetadataStoreError
from odradek.broker.replica.role_changes import Role, RoleChanges, Stop
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
    `stored_topics` reads which topics the metadata store has, and raises MetadataStoreError. `topic_deleted(name)`
    removes, in steps, what other components know of a deleted topic. `brokers_changed` is called when the live brokers
    may have changed.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        roles: RoleChanges,
        configs: DynamicConfigs,
        *,
        registered: Callable[[], Awaitable[None]],
        broker_epoch: Callable[[], int],
        stored_topics: Callable[[], Awaitable[Collection[str]]],
        topic_deleted: Callable[[str], Iterator[None]],
        brokers_changed: Callable[[], object],
    ) -> None:
        self._metadata = metadata
        self._roles = roles
        self._configs = configs
        self._registered = registered
        self._broker_epoch = broker_epoch
        self._stored_topics = stored_topics
        self._topic_deleted = topic_deleted
        self._brokers_changed = brokers_changed
        self._applying = asyncio.Lock()
        self._compared_in: tuple[int, int] | None = None
        """The controller epoch and the broker epoch for which the topics were last compared with those in the store
        (D)."""
        self._full_in: tuple[int, int] | None = None
        """The controller epoch and the broker epoch of the last LeaderAndIsr that had everything (E)."""
        self._changes: dict[type[Message], tuple[Callable[[Any], Awaitable[Any]], Callable[..., Any]]] = {
            LeaderAndIsrRequest: (self._leader_and_isr, LeaderAndIsrResponse),
            StopReplicaRequest: (self._stop_replica, StopReplicaResponse),
            UpdateMetadataRequest: (self._update_metadata, UpdateMetadataResponse),
        }

    async def send(self, request: ControlRequest) -> Any:
        """See ControlTarget. Applies a request in its turn; refuses an old one (A)."""
        change, response = self._changes[type(request)]
        async with self._applying:
            await self._registered()
            refusal = self._refusal(request)
            if refusal is not ErrorCode.NONE:
                return response(error_code=refusal)
            self._metadata.controller_epoch = request.controller_epoch
            return await change(request)

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

    # Roles

    def session_ended(self) -> None:
        """The leaderships lapse (F)."""
        self._roles.lapse()

    async def _leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Makes this broker leader or follower of partitions. Responds when the roles have changed."""
        lapses, changes = self._roles.lapses, self._configs.changes
        await self._configs.ensure(topic.topic_name for topic in request.topic_states)
        roles = [role async for role in self._roles_of(request)]
        if self._is_full(request):
            await self._roles.stop_others(roles)
        errors = await self._roles.change(roles, lapses)
        if self._configs.changes != changes:
            await self._configs.apply_again(topic.topic_name for topic in request.topic_states)
        topics = others_between(request.topic_states, COST)
        return LeaderAndIsrResponse(topics=[self._topic_errors(topic, errors) async for topic in topics])

    def _is_full(self, request: LeaderAndIsrRequest) -> bool:
        """Whether a request has all roles of this broker, as they are now (E)."""
        epochs = self._epochs_of(request)
        if request.type != LeaderAndIsrType.FULL or self._full_in == epochs:
            return False
        self._full_in = epochs
        return True

    async def _roles_of(self, request: LeaderAndIsrRequest) -> Any:
        for topic in request.topic_states:
            config = self._configs.log_config(topic.topic_name)
            async for state in others_between(topic.partition_states, COST):
                yield Role(
                    TopicPartition(topic.topic_name, state.partition_index),
                    topic.topic_id,
                    PartitionState(
                        state.partition_index,
                        state.leader,
                        state.leader_epoch,
                        tuple(state.replicas),
                        tuple(state.isr),
                        state.controller_epoch,
                        state.partition_epoch,
                        tuple(state.adding_replicas),
                        tuple(state.removing_replicas),
                    ),
                    config,
                    state.is_new,
                )

    @staticmethod
    def _topic_errors(
        topic: LeaderAndIsrRequest.LeaderAndIsrTopicState, errors: dict[TopicPartition, ErrorCode]
    ) -> LeaderAndIsrResponse.LeaderAndIsrTopicError:
        return LeaderAndIsrResponse.LeaderAndIsrTopicError(
            topic_id=topic.topic_id,
            partition_errors=[
                LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                    partition_index=state.partition_index,
                    error_code=errors[TopicPartition(topic.topic_name, state.partition_index)],
                )
                for state in topic.partition_states
            ],
        )

    async def _stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Ends this broker's role in partitions. Responds when the logs of those to be deleted are removed."""
        errors = await self._roles.stop(list(_stops(request)))
        return StopReplicaResponse(
            partition_errors=[
                StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=key.topic, partition_index=key.partition, error_code=error
                )
                for key, error in errors.items()
            ]
        )

    # Metadata

    async def _update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Replaces the live brokers, and adds, changes or removes partitions (C, D). Responds when clients see it."""
        metadata = self._metadata
        metadata.controller_id = request.controller_id
        metadata.put_brokers(_broker(broker) for broker in request.live_brokers)
        self._brokers_changed()
        await self._configs.ensure(topic.topic_name for topic in request.topic_states)
        topics = others_between(request.topic_states, COST)
        deleted = [topic.topic_name async for topic in topics if self._update_topic(topic)]
        if self._compared_in != self._epochs_of(request):
            await self._compare_with_store(request)
        metadata.is_complete = metadata.is_complete or bool(request.topic_states)
        await self._forget(deleted)
        return UpdateMetadataResponse()

    def _update_topic(self, topic: UpdateMetadataRequest.UpdateMetadataTopicState) -> bool:
        """Returns whether the topic was deleted with this change."""
        gone = {state.partition_index for state in topic.partition_states if state.leader == LEADER_DURING_DELETE}
        states = {
            state.partition_index: PartitionState(
                state.partition_index,
                state.leader,
                state.leader_epoch,
                tuple(state.replicas),
                tuple(state.isr),
                state.controller_epoch,
                state.zk_version,
                offline=tuple(state.offline_replicas),
            )
            for state in topic.partition_states
            if state.leader != LEADER_DURING_DELETE and not self._is_known(topic, state)
        }
        if states:
            self._metadata.put_partitions(topic.topic_name, topic.topic_id, states)
        return bool(gone) and self._metadata.remove_partitions(topic.topic_name, gone)

    def _is_known(self, topic: Any, state: UpdateMetadataRequest.UpdateMetadataPartitionState) -> bool:
        """Whether a newer state of the partition is known: the request is a late copy."""
        if self._metadata.topic_id(topic.topic_name) != topic.topic_id:
            return False
        known = self._metadata.partition(topic.topic_name, state.partition_index)
        return known is not None and (known.leader_epoch, known.partition_epoch) > (
            state.leader_epoch,
            state.zk_version,
        )

    async def _compare_with_store(self, request: UpdateMetadataRequest) -> None:
        """Removes the topics that neither the request nor the store has (D). The offsets of their groups stay: when the
        topics were deleted, those who coordinated the groups knew.
        """
        try:
            stored = await self._stored_topics()
        except MetadataStoreError as error:
            log.warning("topics not compared with the metadata store", reason=str(error))
            return
        kept = {*stored, *(topic.topic_name for topic in request.topic_states)}
        for name in self._metadata.topic_names():
            if name not in kept:
                self._metadata.remove_topic(name)
                self._configs.forget(name)
        self._compared_in = self._epochs_of(request)
        self._metadata.is_complete = self._metadata.is_complete or not stored

    async def _forget(self, topics: Iterable[str]) -> None:
        for name in topics:
            self._configs.forget(name)
            for _ in self._topic_deleted(name):
                await asyncio.sleep(0)


def _stops(request: StopReplicaRequest) -> Iterator[Stop]:
    """The leader epoch -2 stands for any: the topic is being deleted. -1 stands for any, too: it is not known."""
    for topic in request.topic_states:
        for state in topic.partition_states:
            epoch = None if state.leader_epoch < 0 else state.leader_epoch
            yield Stop(TopicPartition(topic.topic_name, state.partition_index), epoch, state.delete_partition)


def _broker(broker: UpdateMetadataRequest.UpdateMetadataBroker) -> BrokerInfo:
    endpoints = {
        endpoint.listener: BrokerEndpoint(
            endpoint.listener, endpoint.host, endpoint.port, SecurityProtocol(endpoint.security_protocol).name
        )
        for endpoint in broker.endpoints
    }
    return BrokerInfo(broker.id, endpoints, broker.rack)
