"""Snapshots of clusters at rest, and clusters that start from one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import SystemRandom
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka import TopicPartition

from odradek.broker.metadata.metadata_cache import GROUP_TOPIC
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.server import Broker
from odradek.broker.start_error import StartError
from odradek.clients.admin.acls import AclAdmin, AclFilter
from odradek.clients.admin.client import AdminClient
from odradek.clients.admin.groups import GroupAdmin
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition as Key
from odradek.testing import (
    BrokerThread,
    Cluster,
    ClusterThread,
    Security,
    Snapshot,
    SnapshotError,
    allow,
    in_process_broker,
    in_process_cluster,
)
from odradek.testing import security as kit_security
from tests.patience import PATIENCE_S, until
from tests.wire.records import produce, values

PARTITIONS = 6
SECURITY = Security(
    users={"alice": "alice-secret", "bob": "bob-secret"},
    super_users=["alice"],
    acls=[allow("bob", "READ", topic="orders")],
)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with in_process_cluster() as cluster:
        await cluster.create_topic("orders", PARTITIONS, configs={"retention.ms": 123_456_789})
        yield cluster


def leaders(cluster: Cluster, topic: str = "orders", partitions: int = PARTITIONS) -> list[int | None]:
    return [cluster.leader(topic, number) for number in range(partitions)]


def admin_of(cluster: Cluster, security: Security | None = None) -> AdminClient:
    connect = None if security is None else security.of_brokers().connect(SystemRandom())
    return AdminClient(cluster.bootstrap) if connect is None else AdminClient(cluster.bootstrap, connect=connect)


async def value_at(cluster: Cluster) -> list[bytes]:
    leader = cluster.leader("orders", 0)
    assert leader is not None
    return await values(cluster.bootstrap_of(leader), "orders")


async def written(cluster: Cluster, value: bytes, *, acks: int = -1) -> None:
    leader = cluster.leader("orders", 0)
    assert leader is not None
    assert await produce(cluster.bootstrap_of(leader), "orders", value, acks=acks) == ErrorCode.NONE


async def test_a_fork_has_the_topics_leaders_records_groups_and_settings_of_the_cluster(cluster: Cluster) -> None:
    for partition, broker_id in enumerate((3, 3, 1)):
        await cluster.move_leader("orders", partition, broker_id)
    await cluster.move_coordinator(2, group="readers")
    await written(cluster, b"one")
    async with admin_of(cluster) as admin:
        await GroupAdmin(admin).commit("readers", {Key("orders", 0): 1})
        topic_id = (await admin.topic("orders")).topic_id
    snapshot = await cluster.snapshot()
    assert (snapshot.broker_ids, snapshot.is_of_cluster) == ((1, 2, 3), True)
    await written(cluster, b"only in the old one")
    for _ in range(2):
        async with in_process_cluster(snapshot=snapshot) as fork:
            assert fork.ids == cluster.ids
            assert leaders(fork) == leaders(cluster)
            assert leaders(fork, GROUP_TOPIC, 5) == leaders(cluster, GROUP_TOPIC, 5)
            assert await value_at(fork) == [b"one"]
            await written(fork, b"only in the fork")
            assert await value_at(fork) == [b"one", b"only in the fork"]
            async with admin_of(fork) as admin:
                assert await GroupAdmin(admin).committed("readers") == {Key("orders", 0): 1}
                assert (await admin.topic("orders")).topic_id == topic_id
            for broker_id, broker in fork.brokers.items():
                assert broker.metadata.cluster_id == cluster.brokers[1].metadata.cluster_id
                assert broker.cluster.settings.log_config("orders").retention_ms == 123_456_789
                assert fork.isr("orders", 0) == {1, 2, 3}, broker_id
    assert await value_at(cluster) == [b"one", b"only in the old one"]


async def test_brokers_of_a_fork_die_and_come_back_as_those_of_any_cluster(cluster: Cluster) -> None:
    await written(cluster, b"one")
    async with in_process_cluster(snapshot=await cluster.snapshot()) as fork:
        leader = fork.leader("orders", 0)
        assert leader is not None
        fork.kill(leader)
        await fork.wait_for_isr("orders", 0, {1, 2, 3} - {leader})
        await written(fork, b"two")
        await fork.start(leader)
        await fork.wait_until_stable()
        assert await value_at(fork) == [b"one", b"two"]
        async with in_process_cluster(snapshot=await fork.snapshot()) as second:
            assert await value_at(second) == [b"one", b"two"]


async def test_nobody_is_elected_though_the_first_controller_could_be_there_before_a_leader(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's broker loads its logs for as long as it takes the others to stand for election."""
    for partition in range(PARTITIONS):
        await cluster.move_leader("orders", partition, 1)
    snapshot = await cluster.snapshot()
    stores: list[SharedStore] = []

    class Store(SharedStore):
        def __init__(self, **arguments: Any) -> None:
            super().__init__(**arguments)
            stores.append(self)

    load_logs = Broker._load_logs

    async def slow(broker: Broker) -> None:
        if broker.broker_id == 1:
            (store,) = stores
            await until(lambda: len(store._candidates) == 2 or is_controlled(store))
        await load_logs(broker)

    monkeypatch.setattr("odradek.testing.cluster.SharedStore", Store)
    monkeypatch.setattr(Broker, "_load_logs", slow)
    async with in_process_cluster(snapshot=snapshot) as fork:
        assert leaders(fork) == [1] * PARTITIONS
        for before, now in zip(cluster.states("orders"), fork.states("orders"), strict=True):
            assert now.leader_epoch == before.leader_epoch + 1  # a leader that has started anew; nobody came between
        assert fork.isr("orders", 0) == {1, 2, 3}


def is_controlled(store: SharedStore) -> bool:
    """Whether a controller has been elected and has taken the leaderships of broker 1 away."""
    entry = store.entry(znodes.state_path("orders", 0))
    return entry is not None and znodes.parse_state("orders", 0, (), entry.data, 0).leader != 1


async def test_users_of_a_fork_have_the_passwords_that_it_is_given_and_acls_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with in_process_cluster(security=SECURITY) as cluster:
        await cluster.create_topic("orders")
        snapshot = await cluster.snapshot()
    monkeypatch.setattr(kit_security, "_password_of_brokers", lambda: "that-of-another-process-secret")
    security = Security(users={"alice": "changed-secret"}, super_users=["alice"])
    async with in_process_cluster(snapshot=snapshot, security=security) as fork:
        settings = fork.client_settings("aiokafka")
        assert settings["sasl_plain_password"] == "changed-secret"
        async with aiokafka.AIOKafkaProducer(acks="all", **settings) as producer:
            await producer.send_and_wait("orders", b"an order")
        bob = {**settings, "sasl_plain_username": "bob", "sasl_plain_password": "bob-secret"}
        async with aiokafka.AIOKafkaConsumer(auto_offset_reset="earliest", **bob) as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            assert (await consumer.getone()).value == b"an order"
        async with admin_of(fork, security) as admin:
            (acl,) = await AclAdmin(admin).acls([AclFilter()])
            assert acl.principal == "User:bob"


async def test_a_snapshot_waits_for_followers_that_have_not_caught_up(cluster: Cluster) -> None:
    """A record with acks=1 is on its leader alone for a moment."""
    held = cluster.faults.add(api="Fetch", topic="orders", partition=0, hold=True, optional=True)
    await written(cluster, b"one", acks=1)
    await cluster.wait_for_hits(held)
    with pytest.raises(SnapshotError, match=r"a cluster at rest: not in 0\.05 s: the .*orders-0 .*\b1\b") as refusal:
        await cluster.snapshot(within=0.05)
    assert "broker 1, running" in str(refusal.value)
    taking = asyncio.create_task(cluster.snapshot())
    await asyncio.sleep(0)
    held.remove()
    async with in_process_cluster(snapshot=await taking) as fork:
        assert await value_at(fork) == [b"one"]


REFUSALS: dict[str, Callable[[Cluster], None]] = {
    "broker 2 is killed: a snapshot is of a cluster whose brokers all run and reach each other": lambda it: it.kill(2),
    "broker 2 is paused": lambda it: it.pause(2),
    "broker 2 is cut off": lambda it: it.cut(2, 3),
    "broker 3 is cut off": lambda it: it.cut_from_store(3),
    "the replication of broker 2 is frozen": lambda it: it.freeze_replication(2),
}


@pytest.mark.parametrize("reason", REFUSALS)
async def test_a_cluster_that_will_not_come_to_rest_has_no_snapshot(
    cluster: Cluster, reason: str, tmp_path: Path
) -> None:
    REFUSALS[reason](cluster)
    with pytest.raises(SnapshotError, match=reason):
        await cluster.snapshot(tmp_path / "snapshot")
    assert not (tmp_path / "snapshot").exists()


async def test_a_cluster_whose_replicas_are_reassigned_has_no_snapshot(cluster: Cluster) -> None:
    await cluster.create_topic("moved", assignments={0: [1, 2]})
    held = cluster.faults.add(api="Fetch", topic="moved", hold=True, optional=True)
    await written(cluster, b"one")
    assert await produce(cluster.bootstrap_of(1), "moved", b"one", acks=1) == ErrorCode.NONE
    async with admin_of(cluster) as admin:
        await admin.alter_reassignments({Key("moved", 0): (1, 3)})
    with pytest.raises(SnapshotError, match="moved is being deleted or reassigned"):
        await cluster.snapshot(within=0.05)
    held.remove()
    async with in_process_cluster(snapshot=await cluster.snapshot()) as fork:
        assert fork.isr("moved", 0) == {1, 3}


async def test_a_broker_that_ends_meanwhile_ends_the_snapshot(cluster: Cluster) -> None:
    cluster.faults.add(api="Fetch", topic="orders", partition=0, hold=True, optional=True)
    await written(cluster, b"one", acks=1)
    taking = asyncio.create_task(cluster.snapshot())
    await asyncio.sleep(0)
    cluster.kill(2)
    with pytest.raises(SnapshotError, match="was stopped while the snapshot was taken"):
        await taking


async def test_the_two_kinds_of_snapshots_are_not_mistaken_for_each_other(cluster: Cluster, tmp_path: Path) -> None:
    of_cluster = await cluster.snapshot()
    with pytest.raises(SnapshotError, match="is of a cluster of 3 brokers: start a cluster from it, with in_process_c"):
        async with in_process_broker(snapshot=of_cluster):
            pass
    async with in_process_broker() as broker:
        of_broker = await broker.snapshot()
    with pytest.raises(SnapshotError, match="is of a single broker: start one from it, with in_process_broker or Bro"):
        async with in_process_cluster(snapshot=of_broker):
            pass
    with pytest.raises(ValueError, match="brokers=2, but the snapshot is of 3: leave brokers out"):
        async with in_process_cluster(2, snapshot=of_cluster):
            pass
    (tmp_path / "broker-2" / "orders-0").mkdir(parents=True)
    with pytest.raises(StartError, match="broker-2 has data: a cluster starts from a snapshot in an empty directory"):
        async with in_process_cluster(snapshot=of_cluster, data_dir=tmp_path):
            pass


async def test_a_changed_file_of_a_snapshot_is_found(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.snapshot(tmp_path / "kept")
    for changed in ("store/metadata.snapshot", "broker-3/meta.properties"):
        file = tmp_path / "kept" / "data" / changed
        before = file.read_bytes()
        file.write_bytes(before.swapcase())
        with pytest.raises(SnapshotError, match=f"{changed} was changed since the snapshot was taken"):
            Snapshot.load(tmp_path / "kept")
        file.write_bytes(before)
    async with in_process_cluster(snapshot=tmp_path / "kept") as fork:
        assert leaders(fork) == leaders(cluster)


async def test_a_cluster_with_virtual_time_starts_from_a_snapshot_and_has_one() -> None:
    async with in_process_cluster(time="virtual") as cluster:
        await cluster.create_topic("orders", PARTITIONS)
        await written(cluster, b"one", acks=1)
        await cluster.advance(1)
        snapshot = await cluster.snapshot()
    async with in_process_cluster(snapshot=snapshot, time="virtual") as fork:
        assert await value_at(fork) == [b"one"]
        await fork.advance(60)
        assert fork.isr("orders", 0) == {1, 2, 3}


def test_blocking_clients_keep_a_snapshot_and_start_from_it(tmp_path: Path) -> None:
    with ClusterThread(brokers=2) as cluster:
        cluster.create_topic("orders")
        producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
        producer.send("orders", b"an order").get(timeout=PATIENCE_S)
        producer.close()
        cluster.snapshot(tmp_path / "shop").save(tmp_path / "copy")
        with pytest.raises(SnapshotError, match="a broker of a cluster has no snapshot of its own"):
            cluster.run(cluster.cluster.run(1, kept_alone(cluster.cluster)))
    with ClusterThread(snapshot=Snapshot.load(tmp_path / "copy")) as fork:
        assert fork.ids == [1, 2]
        consumer = kafka.KafkaConsumer("orders", bootstrap_servers=fork.bootstrap, auto_offset_reset="earliest")
        assert next(consumer).value == b"an order"
        consumer.close()
    with pytest.raises(SnapshotError, match="start a cluster from it"):
        BrokerThread(snapshot=tmp_path / "copy").start()


async def kept_alone(cluster: Cluster) -> None:
    from odradek.testing.snapshots.taking import take_snapshot

    await take_snapshot(cluster.brokers[1], None)


@pytest.mark.odradek_cluster(2)
def test_the_fixture_has_snapshots_too(odradek_cluster: ClusterThread) -> None:
    with odradek_cluster.snapshot() as snapshot:
        assert snapshot.broker_ids == (1, 2)
        path = snapshot.path
    assert not path.exists()
