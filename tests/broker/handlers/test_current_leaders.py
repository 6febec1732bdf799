"""Produce 10 and Fetch 16 name the leader of a partition that another broker leads, and its address (KIP-951)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from odradek.clients.network_client import NetworkClient
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import Cluster, in_process_broker, in_process_cluster
from tests.patience import until
from tests.wire import requests
from tests.wire.records import connect

NOT_LEADER, FENCED = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH
RACKS = {broker_id: {"broker.rack": f"rack-{broker_id}"} for broker_id in (1, 2, 3)}
WITH_LEADERS = [(0, 10), (0, 11), (1, 16), (1, 17)]
WITHOUT = [(0, 9), (1, 12), (1, 13), (1, 15)]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three brokers; the single replica of "alone" is on one of them, and all of them have "t"."""
    async with in_process_cluster(settings_of=RACKS) as cluster:
        await cluster.create_topic("alone", replication_factor=1, configs={"min.insync.replicas": 1})
        await cluster.create_topic("t")
        yield cluster


def leader_of(cluster: Cluster, topic: str) -> int:
    leader = cluster.leader(topic, 0)
    assert leader is not None
    return leader


def epoch_of(cluster: Cluster, topic: str) -> int:
    state = cluster.partition(topic, 0)
    assert state is not None
    return state.leader_epoch


async def ask(client: NetworkClient, key: int, version: int, *topics: str, epoch: int = -1) -> Any:
    """Produces to, or fetches from, partition 0 of the topics."""
    if key == 0:
        batch = build_batch([Record(0, 1_700_000_000_000, None, b"v")])
        data = [ProduceRequest.PartitionProduceData(index=0, records=batch)]
        sent = [ProduceRequest.TopicProduceData(name=topic, partition_data=data) for topic in topics]
        return await client.send(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=sent), version=version)
    asked = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    described = await client.send(MetadataRequest(topics=asked, allow_auto_topic_creation=False), version=11)
    partitions = [FetchRequest.FetchPartition(partition=0, partition_max_bytes=1000, current_leader_epoch=epoch)]
    wanted = [
        FetchRequest.FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=partitions)
        for topic in described.topics
    ]
    request = FetchRequest(max_wait_ms=100, min_bytes=1, session_epoch=-1, topics=wanted)
    return await client.send(request, version=version)


def leaders(answer: Any) -> list[tuple[int, tuple[int, int] | None]]:
    """(error, (leader, epoch) or None) of each partition."""
    return [
        (data.error_code, data.current_leader and (data.current_leader.leader_id, data.current_leader.leader_epoch))
        for topic in answer.responses
        for data in getattr(topic, "partition_responses", None) or topic.partitions
    ]


def addresses(answer: Any) -> list[tuple[int, str, str | None]]:
    return [(node.node_id, f"{node.host}:{node.port}", node.rack) for node in answer.node_endpoints]


@pytest.mark.parametrize(("key", "version"), WITH_LEADERS)
async def test_a_broker_without_a_replica_names_the_leader(cluster: Cluster, key: int, version: int) -> None:
    leader = leader_of(cluster, "alone")
    other = next(broker_id for broker_id in cluster.ids if broker_id != leader)
    async with await connect(cluster.bootstrap_of(other)) as client:
        answer = await ask(client, key, version, "alone")
    assert leaders(answer) == [(NOT_LEADER, (leader, epoch_of(cluster, "alone")))]
    assert addresses(answer) == [(leader, cluster.bootstrap_of(leader), f"rack-{leader}")]


@pytest.mark.parametrize(("key", "version"), WITHOUT)
async def test_earlier_versions_name_no_leader(cluster: Cluster, key: int, version: int) -> None:
    other = next(broker_id for broker_id in cluster.ids if broker_id != leader_of(cluster, "alone"))
    async with await connect(cluster.bootstrap_of(other)) as client:
        answer = await ask(client, key, version, "alone")
    assert leaders(answer) == [(NOT_LEADER, None)]
    assert addresses(answer) == []


async def test_a_leader_is_addressed_once_and_other_errors_name_none(cluster: Cluster) -> None:
    await cluster.create_topic("also", replication_factor=1, configs={"min.insync.replicas": 1})
    leader = leader_of(cluster, "alone")
    other = next(one for one in cluster.ids if one not in (leader, leader_of(cluster, "also")))
    async with await connect(cluster.bootstrap_of(other)) as client:
        for key, version in WITH_LEADERS:
            answer = await ask(client, key, version, "alone", "none", "also")
            named = {each for _, each in leaders(answer) if each is not None}
            assert named == {(leader_of(cluster, topic), epoch_of(cluster, topic)) for topic in ("alone", "also")}
            assert sorted(addresses(answer)) == sorted(
                {(one, cluster.bootstrap_of(one), f"rack-{one}") for one, _ in named}
            )


async def test_an_old_leader_names_the_new_one(cluster: Cluster) -> None:
    """A client goes to the new leader without asking for Metadata."""
    old = leader_of(cluster, "t")
    epoch = epoch_of(cluster, "t")
    async with await connect(cluster.bootstrap_of(old)) as client:
        assert leaders(await ask(client, 0, 11, "t")) == [(0, None)]
        cluster.cut_off(old)
        await cluster.wait_until(lambda: cluster.leader("t", 0) not in (None, old))
        cluster.heal(old)
        new = leader_of(cluster, "t")
        replica = cluster.replica(old, "t", 0)
        assert replica is not None
        await until(lambda: replica.leader_id == new)
        fenced = await ask(client, 1, 17, "t", epoch=epoch)
        refused = await ask(client, 0, 10, "t")
    now = (new, epoch_of(cluster, "t"))
    assert leaders(fenced) == [(FENCED, now)]
    assert leaders(refused) == [(NOT_LEADER, now)]
    assert addresses(fenced) == addresses(refused) == [(new, cluster.bootstrap_of(new), f"rack-{new}")]
    async with await connect(addresses(fenced)[0][1]) as client:
        assert leaders(await ask(client, 0, 11, "t")) == [(0, None)]
        assert leaders(await ask(client, 1, 17, "t", epoch=now[1])) == [(0, None)]


async def test_a_dead_leader_has_no_address(cluster: Cluster) -> None:
    leader = leader_of(cluster, "alone")
    epoch = epoch_of(cluster, "alone")
    other = next(broker_id for broker_id in cluster.ids if broker_id != leader)
    cluster.kill(leader)
    await cluster.wait_until(lambda: cluster.leader("alone", 0) is None)
    async with await connect(cluster.bootstrap_of(other)) as client:
        for key, version in WITH_LEADERS:

            async def is_known(key: int = key, version: int = version) -> bool:
                return leaders(await ask(client, key, version, "alone")) == [(NOT_LEADER, (-1, epoch + 1))]

            await until(is_known)
            assert addresses(await ask(client, key, version, "alone")) == []


async def test_a_single_broker_names_itself_to_a_fetch_with_an_old_epoch() -> None:
    """Its address is that of the listener that the client uses."""
    listeners = {
        "listeners": "ONE://127.0.0.1:0,TWO://127.0.0.1:0",
        "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT",
        "inter.broker.listener.name": "ONE",
    }
    async with in_process_broker(listeners) as broker:
        for endpoint in broker.endpoints:
            address = f"127.0.0.1:{endpoint.port}"
            async with await connect(address) as client:
                await client.send(requests.create_topics("t"), version=5)
                state = broker.metadata.partition("t", 0)
                assert state is not None
                broker.replica_manager.partitions.find(TopicPartition("t", 0)).make_leader(
                    state._replace(leader_epoch=3)
                )
                answer = await ask(client, 1, 16, "t", epoch=2)
                assert leaders(answer) == [(FENCED, (broker.broker_id, 3))]
                assert addresses(answer) == [(broker.broker_id, address, None)]
