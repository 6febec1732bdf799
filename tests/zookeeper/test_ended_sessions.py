"""Brokers whose session ZooKeeper has ended: what they still serve, before they know of it and after."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Create
from odradek.broker.server import Broker
from odradek.clients.network_client import NetworkClient
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.offsets import OffsetCommitRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.patience import until
from tests.wire import requests
from tests.wire.records import connect, produce_on, values
from tests.zookeeper.brokers import Brokers, brokers_on_zookeeper
from tests.zookeeper.stores import store_at

ONE, TWO = "one", "two"
"""Topics with one and with two replicas, both led by broker 2."""
OFFSETS = "__consumer_offsets"
GROUP_VERSION = 2
LATEST = -1


async def fetch_on(client: NetworkClient, topic: str, version: int, *, wait_ms: int = 0) -> ErrorCode:
    """Reads partition 0 from offset 1."""
    request = requests.fetch((TopicPartition(topic, 0), 1), max_wait_ms=wait_ms, session_epoch=-1)
    response = await client.send(request, version=version, timeout_ms=60_000)
    return ErrorCode.of(response.responses[0].partitions[0].error_code)


async def latest_offset_on(client: NetworkClient, topic: str) -> ErrorCode:
    response = await client.send(requests.list_offsets(topic, timestamp=LATEST), version=5)
    return ErrorCode.of(response.topics[0].partitions[0].error_code)


async def commit_on(client: NetworkClient) -> ErrorCode:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=ONE, partitions=[partition])]
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", retention_time_ms=-1, topics=topics
    )
    response = await client.send(request, version=GROUP_VERSION)
    return ErrorCode.of(response.topics[0].partitions[0].error_code)


async def outcomes(client: NetworkClient, topic: str) -> dict[str, ErrorCode]:
    """What becomes of requests for a partition."""
    return {
        "acks=1": await produce_on(client, topic, b"1", acks=1),
        "acks=all": await produce_on(client, topic, b"all", acks=-1),
        "a read from the leader": await fetch_on(client, topic, 10),
        "a read from any replica": await fetch_on(client, topic, 11),
        "the latest offset": await latest_offset_on(client, topic),
    }


def all_are(code: ErrorCode) -> dict[str, ErrorCode]:
    names = ("acks=1", "acks=all", "a read from the leader", "a read from any replica", "the latest offset")
    return dict.fromkeys(names, code)


async def end_session_unheard(brokers: Brokers, broker: Broker) -> None:
    """ZooKeeper ends the session of a broker that has no connection and gets none. The others act on it."""
    brokers.model.refuses = True
    session_id = broker.metadata_store.session_id
    brokers.model.drop_connections(session_id)
    brokers.model.expire(session_id)
    await until(lambda: not brokers.all[0].metadata.is_alive(broker.broker_id))


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"min_insync_replicas": 1, "offsets_topic_num_partitions": 1, "offsets_topic_replication_factor": 1}


async def test_a_leader_refuses_from_the_verdict_until_it_gets_its_roles_anew(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with brokers_on_zookeeper(tmp_path, 2, **settings) as brokers:
        old, other = brokers.all[1], brokers.all[0]
        await brokers.create(ONE, 2)
        await brokers.create(TWO, 2, 1)
        await brokers.create(OFFSETS, 2)
        taker = store_at(brokers.connect)
        await taker.open()
        async with await connect(old.bootstrap) as client, await connect(old.bootstrap) as waiting:
            await until(lambda: old.metadata.is_alive(2))
            assert await outcomes(client, ONE) == await outcomes(client, TWO) == all_are(ErrorCode.NONE)
            await committed(client)

            await end_session_unheard(brokers, old)
            await until(lambda: other.replica_manager.partitions.find(TopicPartition(TWO, 0)).is_leader)
            assert await outcomes(client, ONE) == all_are(ErrorCode.NONE)
            assert await produce_on(client, TWO, b"lost", acks=1) is ErrorCode.NONE
            assert await commit_on(client) is ErrorCode.NONE
            parked = asyncio.ensure_future(produce_on(waiting, TWO, b"waits", acks=-1, timeout_ms=60_000))
            await until(lambda: old.replica_manager.produce_purgatory.delayed)
            assert not parked.done()

            await taker.multi([Create(znodes.broker_path(2), b"{}", ephemeral=True)])
            brokers.bring_zookeeper_back()
            assert await parked is ErrorCode.NOT_LEADER_OR_FOLLOWER
            for topic in (ONE, TWO):
                assert await outcomes(client, topic) == all_are(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert await commit_on(client) is ErrorCode.NOT_COORDINATOR

            await taker.close()
            await until(lambda: old.replica_manager.partitions.find(TopicPartition(ONE, 0)).is_leader)
            assert await outcomes(client, ONE) == all_are(ErrorCode.NONE)
            await committed(client)
            assert await produce_on(client, TWO, b"no", acks=1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert b"lost" not in await values(other.bootstrap, TWO)


async def committed(client: NetworkClient) -> None:
    """Commits an offset, as soon as the coordinator has loaded."""

    async def is_committed() -> bool:
        return await commit_on(client) is ErrorCode.NONE

    await until(is_committed)


async def test_a_waiting_read_is_answered_at_the_verdict(tmp_path: Path) -> None:
    async with brokers_on_zookeeper(tmp_path, 1) as brokers:
        (broker,) = brokers.all
        await brokers.create(ONE, 1)
        async with await connect(broker.bootstrap) as client:
            assert await produce_on(client, ONE, b"1", acks=1) is ErrorCode.NONE
            reading = asyncio.ensure_future(fetch_on(client, ONE, 11, wait_ms=60_000))
            await until(lambda: broker.replica_manager.fetch_purgatory.delayed)
            brokers.model.expire(broker.metadata_store.session_id)
            assert await reading is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_controller_without_a_session_changes_nothing_and_is_obeyed_by_nobody(tmp_path: Path) -> None:
    """Its requests are on their way for a long time: they reach ZooKeeper when its session has ended, and the brokers
    when another controller is in office.
    """
    async with brokers_on_zookeeper(tmp_path, 2) as brokers:
        old, new = brokers.all
        term = old.controller.terms.term
        assert term is not None
        connection = brokers.model.connection_of(old.metadata_store.session_id)
        connection.hold()
        topic = NewTopic(ONE, assignments={0: (1, 2)})
        creating = asyncio.ensure_future(old.controller.topics.create([topic], timeout_ms=60_000))
        await until(lambda: connection.holds)

        brokers.model.expire(connection.session_id)
        await until(lambda: new.metadata.controller_epoch == 2)
        assert term.is_open
        with capture_logs() as logs:
            term.requests.publish_brokers()
            await term.send()
            await until(lambda: any("known_epoch" in line for line in logs))
        (refused,) = [line for line in logs if "known_epoch" in line]
        assert (refused["error"], refused["controller_epoch"]) == ("STALE_CONTROLLER_EPOCH", 1)

        connection.deliver()
        (outcome,) = await creating
        assert isinstance(outcome, ProtocolError)
        assert outcome.code is ErrorCode.NOT_CONTROLLER
        assert old.controller.terms.term is not term
        await until(lambda: all(len(broker.metadata.brokers) == 2 for broker in brokers.all))
        assert {broker.metadata.controller_id for broker in brokers.all} == {new.broker_id}
        assert await new.metadata_store.children(znodes.TOPICS) == []
        assert [broker.metadata.topic(ONE) for broker in brokers.all] == [None, None]


async def test_a_broker_that_stops_refuses_nothing_because_its_session_ends(tmp_path: Path) -> None:
    async with brokers_on_zookeeper(tmp_path, 1) as brokers:
        (broker,) = brokers.all
        await brokers.create(ONE, 1)
        with capture_logs() as logs:
            await broker.stop(hand_over=False)
        assert not any("lapsed" in line["event"] for line in logs)
        partition = broker.replica_manager.partitions.find(TopicPartition(ONE, 0))
        assert (partition.is_leader, partition.has_lapsed) == (True, False)
