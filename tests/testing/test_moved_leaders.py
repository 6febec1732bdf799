"""Leaderships and coordinators that a test moves to the broker of its choice."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from odradek.clients.admin.client import AdminClient
from odradek.protocol.errors import ErrorCode
from odradek.protocol.wire_codes import CoordinatorType
from odradek.testing import Cluster, ClusterThread, NotReached, in_process_cluster
from tests.wire.records import produce, values

OK = ErrorCode.NONE


async def coordinator(cluster: Cluster, kind: CoordinatorType, key: str) -> int:
    async with AdminClient(cluster.bootstrap) as admin:
        return await admin.coordinator(kind, key)


async def test_each_broker_in_turn_leads_a_partition_with_its_records() -> None:
    async with in_process_cluster() as cluster:
        await cluster.create_topic("t")
        for broker_id in (2, 3, 3, 1):
            await cluster.move_leader("t", 0, broker_id)
            known = [broker.metadata.partition("t", 0) for broker in cluster.brokers.values()]
            assert [state and state.leader for state in known] == [broker_id] * 3
            assert await produce(cluster.bootstrap_of(broker_id), "t", b"%d" % broker_id) is OK
        assert cluster.isr("t", 0) == {1, 2, 3}
        assert await values(cluster.bootstrap_of(1), "t") == [b"2", b"3", b"3", b"1"]


async def test_a_broker_without_a_replica_gets_the_records_and_replaces_the_last_one() -> None:
    async with in_process_cluster() as cluster:
        await cluster.create_topic("t", assignments={0: [1, 2]})
        assert await produce(cluster.bootstrap_of(1), "t", b"1") is OK
        await cluster.move_leader("t", 0, 3)
        state = cluster.partition("t", 0)
        assert state is not None
        assert state.replicas == (3, 1)
        assert cluster.leader("t", 0) == 3
        assert await values(cluster.bootstrap_of(3), "t") == [b"1"]


async def test_a_producer_follows_the_leader() -> None:
    async with in_process_cluster() as cluster:
        await cluster.create_topic("t")
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True) as producer:
            for number, broker_id in enumerate((1, 2, 3)):
                await cluster.move_leader("t", 0, broker_id)
                sent = await producer.send_and_wait("t", b"x", partition=0)
                assert sent.offset == number


@pytest.mark.parametrize(
    ("kind", "named"),
    [(CoordinatorType.GROUP, {"group": "billing"}), (CoordinatorType.TRANSACTION, {"transactional_id": "billing"})],
)
async def test_each_broker_in_turn_is_the_coordinator(kind: CoordinatorType, named: dict[str, Any]) -> None:
    async with in_process_cluster() as cluster:
        for broker_id in (3, 1, 2):
            await cluster.move_coordinator(broker_id, **named)
            assert await coordinator(cluster, kind, "billing") == broker_id


async def test_a_broker_that_does_not_follow_does_not_lead() -> None:
    async with in_process_cluster(replica_lag_time_max_ms=300, replica_fetch_wait_max_ms=100) as cluster:
        await cluster.create_topic("t", assignments={0: [1, 2, 3]})
        cluster.freeze_replication(3)
        assert await produce(cluster.bootstrap_of(1), "t", b"1") is OK
        await cluster.wait_for_isr("t", 0, {1, 2})
        with pytest.raises(NotReached, match=r"broker 3 in the ISR of t-0: not in 0\.2 s: broker 3 is not in sync"):
            await cluster.move_leader("t", 0, 3, within=0.2)
        cluster.thaw(3)
        await cluster.move_leader("t", 0, 3)


async def test_what_cannot_be_moved_is_an_error() -> None:
    async with in_process_cluster() as cluster:
        with pytest.raises(ValueError, match="there is no topic 't'"):
            await cluster.move_leader("t", 0, 1)
        await cluster.create_topic("t")
        with pytest.raises(ValueError, match="topic t has no partition 1; it has 1"):
            await cluster.move_leader("t", 1, 1)
        neither: dict[str, Any] = {}
        for named in (neither, {"group": "a", "transactional_id": "b"}):
            with pytest.raises(ValueError, match="name a group or a transactional_id"):
                await cluster.move_coordinator(1, **named)
        cluster.kill(3)
        with pytest.raises(ValueError, match="broker 3 is killed"):
            await cluster.move_leader("t", 0, 3)
        with pytest.raises(ValueError, match="broker 3 is killed"):
            await cluster.move_coordinator(3, group="billing")


def test_a_thread_of_blocking_clients_moves_them_too() -> None:
    with ClusterThread(brokers=2) as cluster:
        cluster.create_topic("t")
        for broker_id in (2, 1):
            cluster.move_leader("t", 0, broker_id)
            assert cluster.leader("t", 0) == broker_id
            cluster.move_coordinator(broker_id, group="billing")
            found = coordinator(cluster.cluster, CoordinatorType.GROUP, "billing")
            assert cluster.run(found) == broker_id


async def test_leaders_move_in_virtual_time_and_with_logins() -> None:
    async with in_process_cluster(time="virtual", security="SASL_SSL") as cluster:
        await cluster.create_topic("t")
        for broker_id in (3, 2):
            await cluster.move_leader("t", 0, broker_id)
            assert cluster.leader("t", 0) == broker_id
