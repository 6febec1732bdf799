"""The cluster at a glance, and the changes between two glances."""

from __future__ import annotations

from odradek.clients.admin.client import AdminClient
from odradek.clients.admin.overview import BrokerOverview, ClusterOverview, PartitionOverview, changes, overview
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import in_process_cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def broker(broker_id: int, port: int = 9092) -> BrokerOverview:
    return BrokerOverview(broker_id, "host", port, None, 0, 0, 0)


def cluster(controller: int, brokers: list[BrokerOverview], *partitions: PartitionOverview) -> ClusterOverview:
    by_id, by_key = {one.broker_id: one for one in brokers}, {one.key: one for one in partitions}
    return ClusterOverview("id", controller, by_id, by_key, knows_reassignments=True)


def partition(
    key: TopicPartition = T0, leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1, 2)
) -> PartitionOverview:
    return PartitionOverview(key, leader, epoch, (1, 2), isr)


async def test_an_overview_has_brokers_partitions_and_reassignments() -> None:
    async with in_process_cluster(settings_of={2: {"broker.rack": "b"}}) as cluster:
        await cluster.create_topic("t", assignments={0: [1, 2], 1: [2, 3]})
        async with AdminClient(cluster.bootstrap_of(1)) as admin:
            found = await overview(admin, patience_s=10)
            assert found.controller == cluster.controller
            assert found.partitions[T1] == PartitionOverview(T1, 2, 0, (2, 3), (2, 3))
            assert [broker.rack for broker in found.brokers.values()] == [None, "b", None]
            assert [broker[4:] for broker in found.brokers.values()] == [(1, 1, 1), (1, 2, 2), (0, 1, 1)]
            assert f"{found.brokers[3].host}:{found.brokers[3].port}" == cluster.bootstrap_of(3)
            assert (found.topics, found.offline, found.under_replicated, found.reassigned) == (1, 0, 0, 0)
            cluster.freeze_replication(3)
            controller = cluster.controller
            assert controller is not None
            await cluster.run(controller, cluster.brokers[controller].controller.replicas.reassign({T0: [1, 3]}))
            later = await overview(admin, patience_s=10)
            assert later.partitions[T0] == PartitionOverview(T0, 1, 1, (1, 3, 2), (1, 2), (3,), (2,))
            assert (later.under_replicated, later.reassigned, later.knows_reassignments) == (0, 1, True)


async def test_without_a_controller_reassignments_are_unknown() -> None:
    async with in_process_cluster(settings={"zookeeper.session.timeout.ms": 60_000}) as cluster:
        controller = cluster.controller
        assert controller is not None
        cluster.kill(controller)
        async with AdminClient(cluster.bootstrap_of(cluster.running[0])) as admin:
            found = await overview(admin, patience_s=0.1)
        assert not found.knows_reassignments
        assert found.controller == controller


def test_the_problems_of_a_partition() -> None:
    assert partition().problems == []
    assert partition(isr=(1,)).problems == ["under-replicated"]
    assert partition(leader=-1, isr=(2,)).problems == ["offline"]
    growing = PartitionOverview(T0, 1, 0, (1, 2, 3), (1, 2), adding=(3,))
    assert growing.problems == ["reassigned"]
    assert growing._replace(isr=(1, 3)).problems == ["under-replicated", "reassigned"]


def test_nothing_has_changed() -> None:
    now = cluster(1, [broker(1)], partition())
    assert list(changes(now, now)) == []
    assert list(changes(now, cluster(1, [broker(1)], partition(isr=(2, 1))))) == []


def test_changes_of_brokers_and_controller() -> None:
    before = cluster(1, [broker(1), broker(2)])
    after = cluster(-1, [broker(2, 9093), broker(3)])
    assert list(changes(before, after)) == [
        "controller: 1 -> none",
        "broker 1: left",
        "broker 2: moved to host:9093",
        "broker 3: joined at host:9092",
    ]


def test_changes_of_partitions() -> None:
    before = cluster(1, [], partition(), partition(T1))
    failed = cluster(1, [], partition(leader=2, epoch=1, isr=(2,)))
    assert list(changes(before, failed)) == ["t-0: leader 1 -> 2 in epoch 1, ISR 1,2 -> 2", "t-1: deleted"]
    assert list(changes(failed, before)) == [
        "t-0: leader 2 -> 1 in epoch 0, ISR 2 -> 1,2",
        "t-1: created with leader 1, replicas 1,2",
    ]
    growing = partition()._replace(replicas=(1, 2, 3), adding=(3,))
    assert list(changes(cluster(1, [], partition()), cluster(1, [], growing))) == [
        "t-0: replicas 1,2 -> 1,2,3, reassignment begun"
    ]
    other = growing._replace(adding=(), removing=(3,))
    assert list(changes(cluster(1, [], growing), cluster(1, [], other))) == ["t-0: another reassignment"]
    assert list(changes(cluster(1, [], other), cluster(1, [], partition()))) == [
        "t-0: replicas 1,2,3 -> 1,2, reassignment ended"
    ]
