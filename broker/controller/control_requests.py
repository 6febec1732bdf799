"""The requests with which the controller tells brokers what has changed, collected during one event: at most one
LeaderAndIsr, one UpdateMetadata and one StopReplica for each broker.

    (A) A request contains the state of a partition as it is when the requests are built, which is once per event.
    (B) LeaderAndIsr comes before UpdateMetadata: clients find a leader only when it leads. If brokers have come, gone
        or moved, UpdateMetadata comes first, because a follower needs the address of its leader.
    (C) A broker that is new to this controller gets everything: all replicas that it holds (even if there are none),
        with the type FULL, and the metadata of all partitions. Type FULL is not used while there are damaged topics,
        whose replicas are not known.
    (D) A partition of a topic that is being deleted has the leader -2 in UpdateMetadata, and StopReplica the leader
        epoch -2, which is newer than any other.
    (E) Requests share their parts, so nobody may modify a request.
    (F) A response counts only for what its request was sent for: earlier ones about the same partitions may still be
        under way when a topic is deleted. A request that got no usable response, or that was refused as a whole, says
        nothing about leaderships: another event follows (the broker has registered again, or another controller is
        elected). A deletion has then failed.

The versions are those of inter.broker.protocol.version 3.0: LeaderAndIsr 5, StopReplica 3, UpdateMetadata 7.
Source: Kafka's `ControllerBrokerRequestBatch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.broker.background.stepwise import others_between
from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.partition_states import NO_EPOCH, is_new
from odradek.broker.metadata.metadata_cache import BrokerInfo, PartitionState
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.replica_control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    LeaderAndIsrType,
    SecurityProtocol,
)

ControlRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
ByBroker = Mapping[int, ControlRequest]

COST = 3
"""The cost of a partition in a request, in items of a step."""

Leadership = LeaderAndIsrRequest.LeaderAndIsrPartitionState
Published = UpdateMetadataRequest.UpdateMetadataPartitionState


class Addressed(NamedTuple):
    """A request and the broker that it is for."""

    broker_id: int
    request: ControlRequest


class ControlRequests:
    """Collects the changes for each broker until `take` builds the requests. `listener` is the inter-broker one."""

    def __init__(self, context: ControllerContext, controller_id: int, listener: str) -> None:
        self._context = context
        self._controller_id = controller_id
        self._listener = listener
        self._leads: dict[int, dict[TopicPartition, bool]] = {}
        self._stops: dict[int, dict[TopicPartition, bool]] = {}
        self._published: dict[TopicPartition, None] = {}
        self._introduced: dict[int, None] = {}
        self._brokers_changed = False

    def lead(self, brokers: Iterable[int], key: TopicPartition, *, is_new: bool = False) -> None:
        """Sends the partition's leader and in-sync replicas to these brokers. `is_new`: they may have no log of it."""
        for broker in brokers:
            if broker in self._context.brokers:
                leads = self._leads.setdefault(broker, {})
                leads[key] = is_new or leads.get(key, False)

    def stop(self, broker_id: int, key: TopicPartition, *, delete: bool) -> None:
        """Stops the broker's replica."""
        if broker_id in self._context.brokers:
            stops = self._stops.setdefault(broker_id, {})
            stops[key] = delete or stops.get(key, False)

    def publish(self, key: TopicPartition) -> None:
        """Sends the partition's metadata to all brokers."""
        self._published[key] = None

    def publish_brokers(self) -> None:
        """Sends the live brokers to all of them (B)."""
        self._brokers_changed = True

    def introduce(self, broker_id: int) -> None:
        """Sends everything to a broker (C), and the broker to all others."""
        self._introduced[broker_id] = None
        self._brokers_changed = True

    async def take(self) -> list[Addressed]:
        """Builds the requests and forgets what was collected. Other tasks run in between."""
        context, introduced = self._context, self._introduced
        for broker in introduced:
            self._leads.setdefault(broker, {})
        async for key, state in others_between(context.partitions() if introduced else ()):
            for broker in state.replicas:
                if broker in introduced and not is_new(state):
                    self._leads.setdefault(broker, {}).setdefault(key, False)
        leads = {broker: await self._leader_and_isr(broker, self._leads[broker]) for broker in self._alive(self._leads)}
        metadata = await self._update_metadata()
        stops = {broker: await self._stop_replica(broker, self._stops[broker]) for broker in self._alive(self._stops)}
        by_kind = self._in_order(leads, metadata, stops)
        self._leads, self._stops, self._published, self._introduced = {}, {}, {}, {}
        self._brokers_changed = False
        return [Addressed(broker, kind[broker]) for broker in context.brokers for kind in by_kind if broker in kind]

    def _alive(self, brokers: Iterable[int]) -> list[int]:
        """Returns those that have not died since something was collected for them."""
        return sorted(broker for broker in brokers if broker in self._context.brokers)

    def _in_order(self, leads: ByBroker, metadata: ByBroker, stops: ByBroker) -> list[ByBroker]:
        """Returns the requests by kind, in the order in which a broker gets them (B)."""
        return [metadata, leads, stops] if self._brokers_changed else [leads, metadata, stops]

    async def _leader_and_isr(self, broker_id: int, keys: Mapping[TopicPartition, bool]) -> LeaderAndIsrRequest:
        context = self._context
        topics: dict[str, LeaderAndIsrRequest.LeaderAndIsrTopicState] = {}
        leaders: dict[int, None] = {}
        async for key, is_new_replica in others_between(keys.items(), COST):
            topic, state = context.topic(key.topic), context.state(key)
            if topic is None or state is None:
                continue
            if key.topic not in topics:
                topics[key.topic] = LeaderAndIsrRequest.LeaderAndIsrTopicState(
                    topic_name=key.topic, topic_id=topic.topic_id, partition_states=[]
                )
            topics[key.topic].partition_states.append(_leadership(state, is_new_replica))
            leaders[state.leader] = None
        return LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker_id].epoch,
            type=self._type_for(broker_id),
            topic_states=list(topics.values()),
            live_leaders=self._nodes(leader for leader in sorted(leaders) if leader in context.brokers),
        )

    def _type_for(self, broker_id: int) -> LeaderAndIsrType:
        is_full = broker_id in self._introduced and not self._context.damaged
        return LeaderAndIsrType.FULL if is_full else LeaderAndIsrType.INCREMENTAL

    def _nodes(self, brokers: Iterable[int]) -> list[LeaderAndIsrRequest.LeaderAndIsrLiveLeader]:
        found = ((broker, self._context.brokers[broker].endpoint(self._listener)) for broker in brokers)
        return [
            LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=broker, host_name=endpoint.host, port=endpoint.port)
            for broker, endpoint in found
            if endpoint is not None
        ]

    async def _update_metadata(self) -> dict[int, UpdateMetadataRequest]:
        if not self._published and not self._brokers_changed:
            return {}
        context = self._context
        changed = await self._published_topics(self._published)
        everything = changed
        if self._introduced:
            keys = {key: None async for key, _ in others_between(context.partitions())}
            keys.update(self._published)
            everything = await self._published_topics(keys)
        brokers = [_described(broker) for broker in context.brokers.values()]
        return {
            broker.broker_id: UpdateMetadataRequest(
                controller_id=self._controller_id,
                controller_epoch=context.epoch,
                broker_epoch=broker.epoch,
                topic_states=everything if broker.broker_id in self._introduced else changed,
                live_brokers=brokers,
            )
            for broker in context.brokers.values()
        }

    async def _published_topics(
        self, keys: Mapping[TopicPartition, None]
    ) -> list[UpdateMetadataRequest.UpdateMetadataTopicState]:
        context = self._context
        topics: dict[str, UpdateMetadataRequest.UpdateMetadataTopicState] = {}
        async for key in others_between(keys, COST):
            topic, state = context.topic(key.topic), context.state(key)
            if topic is None or state is None or is_new(state):
                continue
            if key.topic not in topics:
                topics[key.topic] = UpdateMetadataRequest.UpdateMetadataTopicState(
                    topic_name=key.topic, topic_id=topic.topic_id, partition_states=[]
                )
            topics[key.topic].partition_states.append(self._published_state(key, state))
        return list(topics.values())

    def _published_state(self, key: TopicPartition, state: PartitionState) -> Published:
        is_deleted = key.topic in self._context.deletions
        online = self._context.electable(key, state)
        return Published(
            partition_index=key.partition,
            controller_epoch=state.controller_epoch,
            leader=LEADER_DURING_DELETE if is_deleted else state.leader,
            leader_epoch=0 if is_deleted else state.leader_epoch,
            isr=list(state.isr),
            zk_version=0 if is_deleted else state.partition_epoch,
            replicas=list(state.replicas),
            offline_replicas=[broker for broker in state.replicas if broker not in online],
        )

    async def _stop_replica(self, broker_id: int, keys: Mapping[TopicPartition, bool]) -> StopReplicaRequest:
        context = self._context
        topics: dict[str, StopReplicaRequest.StopReplicaTopicState] = {}
        async for key, delete in others_between(keys.items(), COST):
            state = context.state(key)
            epoch = NO_EPOCH if state is None else state.leader_epoch
            if key.topic in context.deletions:
                epoch = EPOCH_DURING_DELETE
            if key.topic not in topics:
                topics[key.topic] = StopReplicaRequest.StopReplicaTopicState(topic_name=key.topic, partition_states=[])
            topics[key.topic].partition_states.append(
                StopReplicaRequest.StopReplicaPartitionState(
                    partition_index=key.partition, leader_epoch=epoch, delete_partition=delete
                )
            )
        return StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker_id].epoch,
            topic_states=list(topics.values()),
        )


def _leadership(state: PartitionState, is_new_replica: bool) -> Leadership:
    return Leadership(
        partition_index=state.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding),
        removing_replicas=list(state.removing),
        is_new=is_new_replica,
    )


def _described(broker: BrokerInfo) -> UpdateMetadataRequest.UpdateMetadataBroker:
    return UpdateMetadataRequest.UpdateMetadataBroker(
        id=broker.broker_id,
        endpoints=[
            UpdateMetadataRequest.UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=SecurityProtocol[endpoint.security_protocol],
            )
            for endpoint in broker.endpoints.values()
        ],
        rack=broker.rack,
    )


# --- what brokers answer (F) ----------------------------------------------------------------------------------


def leadership_errors(
    request: LeaderAndIsrRequest, response: LeaderAndIsrResponse | None
) -> dict[TopicPartition, ErrorCode]:
    """Returns the error of each partition of a LeaderAndIsr; NONE if the broker has accepted its role."""
    if response is None or response.error_code:
        return {}
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    return {
        TopicPartition(names[topic.topic_id], partition.partition_index): ErrorCode.of(partition.error_code)
        for topic in response.topics
        if topic.topic_id in names
        for partition in topic.partition_errors
    }


def deletion_errors(
    request: StopReplicaRequest, response: StopReplicaResponse | None, *, with_topic: bool
) -> dict[TopicPartition, ErrorCode]:
    """Returns the error of each replica that a StopReplica deletes; NONE if it is deleted. `with_topic`: those that are
    deleted with their topic, otherwise those that a reassignment has removed.
    """
    error = ErrorCode.UNKNOWN_SERVER_ERROR if response is None else ErrorCode.of(response.error_code)
    errors = {
        TopicPartition(topic.topic_name, partition.partition_index): error
        for topic in request.topic_states
        for partition in topic.partition_states
        if partition.delete_partition and (partition.leader_epoch == EPOCH_DURING_DELETE) is with_topic
    }
    for partition in () if response is None else response.partition_errors:
        key = TopicPartition(partition.topic_name, partition.partition_index)
        if key in errors and partition.error_code:
            errors[key] = ErrorCode.of(partition.error_code)
    return errors


def deleted_partitions(request: UpdateMetadataRequest) -> dict[str, int]:
    """Returns the topics whose deletion an UpdateMetadata reports, with the number of their partitions in it."""
    return {
        topic.topic_name: len(topic.partition_states)
        for topic in request.topic_states
        if all(partition.leader == LEADER_DURING_DELETE for partition in topic.partition_states)
    }
