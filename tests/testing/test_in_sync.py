"""What the kit says of in-sync replicas: at a cut that keeps them, and where a test waits for others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.testing import Cluster, ClusterThread, NotReached, in_process_cluster
from tests.wire.records import produce

OK = ErrorCode.NONE
SAID = "cut keeps ISR as it is, acks=all waits until it heals"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A topic `orders` with three replicas, which another broker leads than the controller."""
    async with in_process_cluster(replica_lag_time_max_ms=600) as cluster:
        controller, other, _ = roles(cluster)
        await cluster.create_topic("orders", assignments={0: [other, *(each for each in cluster.ids if each != other)]})
        assert cluster.controller == controller
        yield cluster


def roles(cluster: Cluster) -> tuple[int, int, int]:
    """The controller, the leader of `orders`, and the third broker."""
    controller = cluster.controller
    assert controller is not None
    leader, third = (each for each in cluster.ids if each != controller)
    return controller, leader, third


async def test_a_cut_between_leader_and_controller_is_a_warning_that_names_the_better_pair(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    controller, leader, third = roles(cluster)
    cluster.cut(controller, leader)
    said = capfd.readouterr().err
    assert SAID in said
    assert f"instead='cut({leader}, {third})'" in said
    assert f"controller={controller}" in said
    assert "partitions=['orders-0']" in said
    producing = asyncio.create_task(produce(cluster.bootstrap_of(leader), "orders", b"waits"))
    led = cluster.replica(leader, "orders", 0)
    await cluster.wait_until(lambda: led is not None and led.isr.proposal is not None)
    with pytest.raises(NotReached) as failure:
        await cluster.wait_for_isr("orders", 0, {leader, third}, within=0)
    assert (
        f"broker {controller} counts as in sync: the leader, broker {leader}, asks for the ISR "
        f"{sorted((leader, third))}, and is cut off from the controller, broker {controller}"
    ) in str(failure.value)
    assert SAID in str(failure.value)
    assert not producing.done()
    cluster.heal(controller)
    assert await producing is OK


async def test_the_pair_that_the_warning_names_lets_the_isr_shrink_and_is_no_warning(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    _, leader, third = roles(cluster)
    cluster.cut(leader, third)
    assert await produce(cluster.bootstrap_of(leader), "orders", b"goes on") is OK
    await cluster.wait_for_isr("orders", 0, set(cluster.ids) - {third})
    assert SAID not in capfd.readouterr().err


async def test_without_another_follower_the_warning_moves_the_leader_to_the_controller(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    controller, leader, third = roles(cluster)
    await cluster.create_topic("pairs", assignments={0: [third, controller]})
    cluster.cut(third, controller)
    assert f"instead=\"move_leader('pairs', 0, {controller}), then cut({controller}, {third})\"" in (
        capfd.readouterr().err
    )
    cluster.heal(third)
    await cluster.move_leader("pairs", 0, controller)
    cluster.cut(controller, third)
    assert await produce(cluster.bootstrap_of(controller), "pairs", b"goes on") is not OK  # one replica is too few
    await cluster.wait_for_isr("pairs", 0, {controller})
    assert leader not in cluster.network.cuts_of(third)
    assert SAID not in capfd.readouterr().err


def test_a_cluster_in_a_thread_says_so_too(capfd: pytest.CaptureFixture[str]) -> None:
    with ClusterThread() as cluster:
        controller = cluster.controller
        assert controller is not None
        leader = next(each for each in cluster.ids if each != controller)
        cluster.create_topic("orders", 5, assignments={number: [leader, controller] for number in range(5)})
        cluster.cut(leader, controller)
        assert "'and 2 more'" in (said := capfd.readouterr().err)
        assert SAID in said


async def test_a_wait_says_that_a_replica_that_lacks_nothing_stays_in_sync(cluster: Cluster) -> None:
    controller, leader, third = roles(cluster)
    led = cluster.replica(leader, "orders", 0)
    assert led is not None
    await cluster.wait_until(lambda: led.remote_replicas[third].log_end_offset == 0)  # it has fetched once
    cluster.freeze_replication(third)
    with pytest.raises(NotReached) as failure:
        await cluster.wait_for_isr("orders", 0, {controller, leader}, within=0)
    assert (
        f"broker {third} counts as in sync: it has all records up to 0, and leaves the ISR only when it lacks some for "
        "600 ms: produce one"
    ) in str(failure.value)
    assert await produce(cluster.bootstrap_of(leader), "orders", b"one") is OK
    await cluster.wait_for_isr("orders", 0, {controller, leader})
    with pytest.raises(NotReached, match=f"broker {third} does not count: its replication is frozen"):
        await cluster.wait_for_isr("orders", 0, {1, 2, 3}, within=0)
    with pytest.raises(NotReached, match=f"orders-0 is .*: broker {third} does not count: its replication is frozen"):
        await cluster.wait_until_stable(within=0)


async def test_a_wait_says_how_long_a_replica_may_lag_still() -> None:
    async with in_process_cluster(replica_lag_time_max_ms=60_000) as cluster:
        controller, leader, third = roles(cluster)
        await cluster.create_topic("orders", assignments={0: [leader, controller, third]})
        cluster.freeze_replication(third)
        assert await produce(cluster.bootstrap_of(leader), "orders", b"one", acks=1) is OK
        lags = rf"broker {third} counts as in sync: it had all records \d+ ms ago, and may lag for 60000 ms"
        with pytest.raises(NotReached, match=lags):
            await cluster.wait_for_isr("orders", 0, {controller, leader}, within=0)
        with pytest.raises(NotReached, match=f"broker {leader} counts as in sync: it is the leader"):
            await cluster.wait_for_isr("orders", 0, {controller, third}, within=0)
        cluster.pause(leader)
        with pytest.raises(NotReached, match=f"its leader, broker {leader}, is paused, and only a leader changes"):
            await cluster.wait_for_isr("orders", 0, {1, 2}, within=0)


async def test_a_wait_says_why_a_replica_does_not_come_back(cluster: Cluster) -> None:
    controller, leader, third = roles(cluster)
    cluster.kill(third)
    with pytest.raises(
        NotReached, match=f"broker {third} counts as in sync: it is killed, and its session has not end"
    ):
        await cluster.wait_for_isr("orders", 0, {controller, leader}, within=0)
    await cluster.wait_for_isr("orders", 0, {controller, leader})
    with pytest.raises(NotReached, match=f"broker {third} does not count: it is killed"):
        await cluster.wait_for_isr("orders", 0, {1, 2, 3}, within=0)
    cluster.cut(leader, third)
    await cluster.start(third)
    with pytest.raises(
        NotReached, match=f"broker {third} does not count: it is cut off from the leader, broker {leader}"
    ):
        await cluster.wait_for_isr("orders", 0, {1, 2, 3}, within=0)
