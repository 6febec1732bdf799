"""Requests between brokers that were recorded in one epoch, and are sent again in a later one of the broker, of the
controller or of the leader: each is refused with Kafka's code, and nothing changes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.server import Broker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.producers import AllocateProducerIdsRequest, InitProducerIdRequest
from odradek.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from odradek.protocol.messages.replica_control import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from odradek.protocol.records import Record, build_batch
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.cluster.recorded_cluster import RecordedCluster, recorded_cluster
from tests.patience import until
from tests.wire import requests

CONTROLLER, RESTARTED, OTHER = 1, 2, 3
TOPIC = "t"
ASSIGNMENTS = [
    [RESTARTED, OTHER, CONTROLLER],
    [CONTROLLER, OTHER, RESTARTED],
    [OTHER, CONTROLLER, RESTARTED],
]
TO_BROKERS = (LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest)
TO_CONTROLLER = (ControlledShutdownRequest, AlterPartitionRequest, AllocateProducerIdsRequest)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RecordedCluster]:
    """A cluster in which every request was sent: a broker was restarted, and leaders and replicas have moved."""
    async with recorded_cluster(tmp_path) as cluster:
        assert cluster.controller() == CONTROLLER
        await create_topic(cluster)
        begin = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        assert (await cluster.ask(RESTARTED, begin)).error_code == 0
        await cluster.stop(RESTARTED)
        await cluster.start(RESTARTED)
        await cluster.until_settled()
        every = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=20_000)
        assert (await cluster.ask(CONTROLLER, every)).error_code == 0
        for replicas in ([CONTROLLER, RESTARTED], ASSIGNMENTS[1]):
            await reassign(cluster, 1, replicas)
        await cluster.until_settled()
        yield cluster


async def create_topic(cluster: RecordedCluster) -> None:
    created = await cluster.ask(CONTROLLER, requests.create_assigned(TOPIC, *ASSIGNMENTS))
    assert [each.error_code for each in created.topics] == [0]
    await until(lambda: all(leads(cluster.brokers[leader], number) for number, (leader, *_) in enumerate(ASSIGNMENTS)))
    for number, (leader, *_) in enumerate(ASSIGNMENTS):
        batch = build_batch([Record(0, int(time.time() * 1000), b"k", b"v")])
        produced = await cluster.ask(leader, requests.produce(TOPIC, batch, number))
        assert [each.error_code for each in produced.responses[0].partition_responses] == [0]


def leads(broker: Broker, number: int) -> bool:
    partition = broker.replica_manager.partitions.get(TopicPartition(TOPIC, number))
    return partition is not None and partition.is_leader


async def reassign(cluster: RecordedCluster, partition: int, replicas: list[int]) -> None:
    """Returns when the partition has these replicas."""
    wanted = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=partition, replicas=replicas)
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=TOPIC, partitions=[wanted])
    started = await cluster.ask(CONTROLLER, AlterPartitionReassignmentsRequest(topics=[topic]))
    assert (started.error_code, started.responses[0].partitions[0].error_code) == (0, 0)

    async def is_done() -> bool:
        left = await cluster.ask(CONTROLLER, ListPartitionReassignmentsRequest(topics=None))
        return not left.topics

    await until(is_done)
    await cluster.until_settled()


def codes(responses: Sequence[Any]) -> list[ErrorCode]:
    return [ErrorCode.of(response.error_code) for response in responses]


def kinds(requests: Sequence[Message]) -> set[type[Message]]:
    return {type(request) for request in requests}


async def test_requests_of_an_earlier_broker_epoch_are_refused(cluster: RecordedCluster) -> None:
    epoch = cluster.brokers[RESTARTED].links.registration.broker_epoch()
    stale = [each for each in cluster.between(*TO_BROKERS, receiver=RESTARTED) if each.broker_epoch < epoch]
    own = [each for each in cluster.between(*TO_CONTROLLER, sender=RESTARTED) if each.broker_epoch < epoch]
    assert kinds(stale) == {*TO_BROKERS}
    assert kinds(own) >= {ControlledShutdownRequest, AllocateProducerIdsRequest}
    before = await cluster.everything()
    assert set(codes(await cluster.replay(RESTARTED, stale))) == {ErrorCode.STALE_BROKER_EPOCH}
    assert set(codes(await cluster.replay(CONTROLLER, own))) == {ErrorCode.STALE_BROKER_EPOCH}
    assert await cluster.everything() == before


async def test_requests_of_an_earlier_leader_epoch_are_refused(cluster: RecordedCluster) -> None:
    epochs = {
        partition.topic_partition: partition.leader_epoch
        for partition in cluster.brokers[OTHER].replica_manager.partitions
    }
    roles = cluster.between(LeaderAndIsrRequest, receiver=OTHER)
    stops = cluster.between(StopReplicaRequest, receiver=OTHER)
    proposals = cluster.between(AlterPartitionRequest, sender=OTHER)
    before = await cluster.everything()
    refused = 0
    for request, response in zip(roles, await cluster.replay(OTHER, roles), strict=True):
        assert response.error_code == 0
        for topic, answered in zip(request.topic_states, response.topics, strict=True):
            for state, error in zip(topic.partition_states, answered.partition_errors, strict=True):
                if state.leader_epoch < epochs[TopicPartition(TOPIC, state.partition_index)]:
                    assert error.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
                    refused += 1
    assert refused >= 3
    assert len(stops) >= 1
    for response in await cluster.replay(OTHER, stops):
        assert response.error_code == 0
        assert {error.error_code for error in response.partition_errors} == {ErrorCode.FENCED_LEADER_EPOCH}
    fenced = [
        ErrorCode.of(partition.error_code)
        for request, response in zip(proposals, await cluster.replay(CONTROLLER, proposals), strict=True)
        for asked, answered in zip(request.topics, response.topics, strict=True)
        for proposal, partition in zip(asked.partitions, answered.partitions, strict=True)
        if proposal.leader_epoch < epochs[TopicPartition(TOPIC, proposal.partition_index)]
    ]
    assert set(fenced) == {ErrorCode.FENCED_LEADER_EPOCH}
    assert await cluster.everything() == before


async def test_requests_of_an_earlier_controller_epoch_are_refused(cluster: RecordedCluster) -> None:
    await cluster.stop(CONTROLLER)
    await until(lambda: cluster.controller())
    await cluster.start(CONTROLLER)
    await cluster.until_settled()
    controller = cluster.controller()
    receiver = OTHER if controller == RESTARTED else RESTARTED
    epoch = cluster.brokers[receiver].links.registration.broker_epoch()
    stale = [
        each
        for each in cluster.between(*TO_BROKERS, sender=CONTROLLER, receiver=receiver)
        if each.broker_epoch == epoch
    ]
    assert kinds(stale) >= {LeaderAndIsrRequest, UpdateMetadataRequest}
    proposals = cluster.between(*TO_CONTROLLER, sender=OTHER)
    assert AlterPartitionRequest in kinds(proposals)
    before = await cluster.everything()
    assert set(codes(await cluster.replay(receiver, stale))) == {ErrorCode.STALE_CONTROLLER_EPOCH}
    assert set(codes(await cluster.replay(CONTROLLER, proposals))) == {ErrorCode.NOT_CONTROLLER}
    assert await cluster.everything() == before
