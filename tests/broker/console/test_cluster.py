"""The console of a broker in a cluster: roles, in-sync replicas, and what waits for another broker."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer

from odradek.broker.server import Broker
from odradek.testing import Cluster, in_process_cluster
from tests.broker.console.test_api import api, purgatory, rows
from tests.broker.replica.test_over_sockets import batch, client_of, create
from tests.patience import until
from tests.wire.requests import produce

SETTINGS = {
    "odradek.metrics.port": "0",
    "replica.lag.time.max.ms": "1500",
    "zookeeper.session.timeout.ms": "600000",  # the leader shrinks the ISR, not the controller
}


def member_of(cluster: Cluster, broker_id: int) -> Broker:
    broker = cluster.member(broker_id).broker
    assert broker is not None
    return broker


def port_of(cluster: Cluster, broker_id: int) -> int:
    broker = member_of(cluster, broker_id)
    assert broker.metrics_server is not None
    return broker.metrics_server.port


async def test_each_broker_shows_its_roles_and_who_is_in_sync() -> None:
    async with in_process_cluster(3, SETTINGS) as cluster:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            await producer.send_and_wait("orders", b"value", partition=0)
        leader = await cluster.wait_for_leader("orders", 0)
        follower, other = sorted(
            (each for each in cluster.ids if each != leader), key=lambda each: each != cluster.controller
        )
        [led, *_] = await rows(port_of(cluster, leader), "partitions?name=orders")
        [followed, *_] = await rows(port_of(cluster, follower), "partitions?name=orders")
        assert (led["role"], led["leader"], sorted(led["isr"]), led["high_watermark"]) == (
            "leader",
            leader,
            [1, 2, 3],
            1,
        )
        assert sorted(each["broker_id"] for each in led["followers"]) == sorted((follower, other))
        assert (followed["role"], followed["leader"], followed["followers"]) == ("follower", leader, [])
        found = await api(port_of(cluster, leader), "overview")
        assert [broker["id"] for broker in found["brokers"]] == [1, 2, 3]
        assert sum(broker["is_controller"] for broker in found["brokers"]) == 1

        cluster.pause(other)  # not the controller, which must confirm the new ISR
        async with client_of(member_of(cluster, leader)) as client:
            await client.call(produce("orders", batch(1), acks=1), 9)  # now the other one lags

        async def is_out_of_sync() -> bool:
            [partition, *_] = await rows(port_of(cluster, leader), "partitions?name=orders")
            return bool(other not in partition["isr"])

        await until(is_out_of_sync)
        counts = (await api(port_of(cluster, leader), "overview"))["partitions"]
        assert counts["under_replicated"] >= 1
        assert counts["isr_shrinks"] >= 1
        assert counts["in_sync_of_led"] < counts["replicas_of_led"]
        cluster.resume(other)


async def test_a_waiting_produce_names_the_broker_that_it_waits_for() -> None:
    settings = {"odradek.metrics.port": "0", "replica.lag.time.max.ms": "600000", "num.partitions": "1"}
    settings["zookeeper.session.timeout.ms"] = "600000"
    async with in_process_cluster(3, settings) as cluster:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", client_id="shop")
        async with producer:
            await producer.send_and_wait("orders", b"value")
            leader = await cluster.wait_for_leader("orders", 0)
            other = next(each for each in cluster.ids if each != leader)
            cluster.pause(other)
            sending = asyncio.ensure_future(producer.send_and_wait("orders", b"value"))

            async def reasons() -> list[str]:
                found = (await purgatory(port_of(cluster, leader), "Produce"))["rows"]
                return [row["why"] for row in found if row["clients"] and row["clients"][0]["client_id"] == "shop"]

            async def names_only_that_one() -> bool:
                return await reasons() == [f"acks: orders-0 is replicated up to 1, needs 2 (broker {other} is at 1)"]

            await until(names_only_that_one)
            cluster.resume(other)
            await sending
            assert await reasons() == []


async def test_offsets_of_other_brokers_are_unknown_here() -> None:
    async with in_process_cluster(2, {**SETTINGS, "default.replication.factor": "1"}) as cluster:
        await until(lambda: cluster.controller)
        async with client_of(member_of(cluster, cluster.controller or 0)) as client:
            await create(client, "orders", 2)
        for broker_id in cluster.ids:
            member = member_of(cluster, broker_id)
            await until(
                lambda member=member: member.metadata.topic("orders") and len(member.replica_manager.partitions)
            )
            for partition in await rows(port_of(cluster, broker_id), "partitions?name=orders"):
                is_here = partition["leader"] == broker_id
                assert partition["role"] == ("leader" if is_here else None)
                assert partition["log_end_offset"] == (0 if is_here else None)
