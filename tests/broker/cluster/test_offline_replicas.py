"""Replicas that are offline because of their disk: which come back, when, and what the command says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog.testing

from odradek.broker.cluster.offline_replicas import MOST_DELAY_MS, OfflineReplicas
from odradek.broker.replica.partition.offline_replica import OfflineReplica
from odradek.clients.admin.client import AdminClient
from odradek.clients.admin.missing_replicas import Reasons, why_out_of_sync
from odradek.clients.admin.overview import overview
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import Cluster, in_process_cluster
from tests.broker.replica.harness import T0, ReplicaHarness
from tests.patience import until
from tests.wire.records import produce, values

KEY = TopicPartition("t", 0)
THREE = {1, 2, 3}
FULL = OfflineReplica("no space", 0, is_full=True)
BROKEN = OfflineReplica("an error", 0)


async def reasons_of(cluster: Cluster, asked: int) -> Reasons:
    async with AdminClient(cluster.bootstrap_of(asked)) as admin:
        return await why_out_of_sync(admin, await overview(admin, patience_s=10), patience_s=10)


@pytest.mark.parametrize("sync", [False, True])
async def test_a_leader_whose_disk_was_full_comes_back_by_itself(sync: bool) -> None:
    settings = {"log.flush.interval.messages": "1"} if sync else {}
    async with in_process_cluster(settings=settings, time="virtual") as cluster:
        await cluster.create_topic("t", assignments={0: [1, 2, 3]})
        assert await produce(cluster.bootstrap_of(1), "t", b"before", acks=-1) is ErrorCode.NONE
        full = cluster.faults.add(disk="full", topic="t", broker=1)
        assert await produce(cluster.bootstrap_of(1), "t", b"refused", acks=-1) is ErrorCode.KAFKA_STORAGE_ERROR
        await cluster.advance_until(lambda: cluster.leader("t", 0) in (2, 3), within=20)
        leader = cluster.leader("t", 0)
        assert leader is not None
        assert await produce(cluster.bootstrap_of(leader), "t", b"after", acks=-1) is ErrorCode.NONE
        await cluster.advance(15)
        assert 1 not in (cluster.isr("t", 0) or ()), "it has no room for what it has missed"
        full.remove()
        await cluster.advance_until(lambda: cluster.isr("t", 0) == THREE, within=MOST_DELAY_MS / 1000 + 5)
        replicas = [cluster.replica(one, "t", 0) for one in THREE]
        ends = {replica.log.state.log_end_offset for replica in replicas if replica is not None}
        assert ends == {2}, "the refused record is nowhere"


async def test_a_leader_that_nobody_can_replace_is_read_while_its_disk_is_full_and_goes_on_with_room() -> None:
    async with in_process_cluster(2, min_insync_replicas=1, time="virtual") as cluster:
        await cluster.create_topic("t", assignments={0: [1, 2]})
        assert await produce(cluster.bootstrap_of(1), "t", b"before") is ErrorCode.NONE
        cluster.kill(2)
        await cluster.advance_until(lambda: cluster.isr("t", 0) == {1}, within=60)
        full = cluster.faults.add(disk="full", topic="t", broker=1)
        assert await produce(cluster.bootstrap_of(1), "t", b"refused") is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.leader("t", 0) == 1
        assert await values(cluster.bootstrap_of(1), "t") == [b"before"]
        full.remove()
        assert await produce(cluster.bootstrap_of(1), "t", b"after") is ErrorCode.NONE


async def test_a_replica_whose_fsync_failed_stays_out_until_its_broker_starts_again_and_says_so() -> None:
    settings = {"log.flush.interval.messages": "1"}
    async with in_process_cluster(settings=settings, time="virtual") as cluster:
        await cluster.create_topic("t", assignments={0: [1, 2, 3]})
        failing = cluster.faults.add(disk="fail sync", topic="t", broker=1)
        assert await produce(cluster.bootstrap_of(1), "t", b"lost") is not ErrorCode.NONE
        failing.remove()
        await cluster.advance_until(lambda: cluster.leader("t", 0) in (2, 3), within=20)
        await cluster.advance(120)
        assert cluster.isr("t", 0) == {2, 3}
        ((broker_id, reason),) = await reasons_of(cluster, 2)
        assert broker_id == 1
        assert reason.startswith("offline since ")
        assert "the log cannot be flushed: Input/output error; it needs a restart of the broker" in reason
        await cluster.restart(1)
        await cluster.advance_until(lambda: cluster.isr("t", 0) == THREE, within=20)


async def test_the_reasons_of_replicas_that_are_out_of_sync() -> None:
    async with in_process_cluster(time="virtual") as cluster:
        await cluster.create_topic("t", assignments={0: [1, 2, 3]})
        assert await reasons_of(cluster, 1) == {}
        cluster.freeze_replication(2)
        assert await produce(cluster.bootstrap_of(1), "t", b"v", acks=1) is ErrorCode.NONE
        cluster.kill(3)
        await cluster.advance_until(lambda: cluster.isr("t", 0) == {1}, within=60)
        expected = {(2, "lags behind the leader"): [KEY], (3, "the broker is not in the cluster"): [KEY]}
        assert await reasons_of(cluster, 1) == expected
        cluster.thaw(2)
        await cluster.advance_until(lambda: cluster.isr("t", 0) == {1, 2}, within=60)
        with structlog.testing.capture_logs() as logs:
            cluster.faults.add(disk="full", topic="t", broker=1, times=1)
            assert await produce(cluster.bootstrap_of(1), "t", b"refused", acks=1) is ErrorCode.KAFKA_STORAGE_ERROR
            await until(lambda: cluster.isr("t", 0) == {2})
            await cluster.wait_for_leader("t", 0)
            found = await reasons_of(cluster, 2)
        reasons = {broker_id: reason.partition(": ")[2] for broker_id, reason in found}
        assert reasons[1] == "the log cannot be written: No space left on device"
        (offline,) = [entry for entry in logs if entry["event"] == "replica offline"]
        assert (offline["needs_restart"], offline["log_level"]) == (False, "error")
        assert "No space left" in offline["reason"]


# When they are tried


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ReplicaHarness]:
    harness = ReplicaHarness(tmp_path)
    yield harness
    harness.logs.close()


def tried(harness: ReplicaHarness, replicas: OfflineReplicas, for_ms: int) -> list[int]:
    """The times at which a replica is tried, which fails each time."""
    offline, times = harness.manager.partitions.offline, []
    for _ in range(for_ms // 1000):
        replicas.bring_back()
        if T0 not in offline:
            times.append(harness.clock.now_ms() // 1000)
            offline[T0] = BROKEN
        harness.clock.advance(1000)
    return times


def test_a_replica_that_fails_again_is_tried_less_often(harness: ReplicaHarness) -> None:
    reports: list[None] = []
    replicas = OfflineReplicas(
        harness.manager.partitions, harness.manager.log_manager, harness.clock, lambda: reports.append(None)
    )
    assert replicas.idle_until_ms() > 0
    harness.manager.partitions.offline[T0] = BROKEN
    assert replicas.idle_until_ms() == 0
    first = harness.clock.now_ms() // 1000
    times = [time - first for time in tried(harness, replicas, 300_000)]
    assert times == [1, 4, 9, 18, 35, 68, 129, 190, 251], "the delay begins at the next look"
    assert len(reports) == len(times)


def test_a_replica_that_was_well_for_long_is_tried_soon(harness: ReplicaHarness) -> None:
    replicas = OfflineReplicas(harness.manager.partitions, harness.manager.log_manager, harness.clock, lambda: None)
    harness.manager.partitions.offline[T0] = BROKEN
    tried(harness, replicas, 100_000)
    del harness.manager.partitions.offline[T0]
    harness.clock.advance(700_000)
    harness.manager.partitions.offline[T0] = BROKEN
    replicas.bring_back()
    harness.clock.advance(1000)
    replicas.bring_back()
    assert T0 not in harness.manager.partitions.offline


def test_a_replica_on_a_full_disk_waits_for_room(harness: ReplicaHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = OfflineReplicas(harness.manager.partitions, harness.manager.log_manager, harness.clock, lambda: None)
    harness.lead(replicas=(0, 1))
    room = 0
    monkeypatch.setattr(harness.logs.files, "space", lambda path: (1 << 30, room))
    harness.manager.partitions.offline[T0] = FULL
    assert tried(harness, replicas, 100_000) == []
    room = 2 << 20
    replicas.bring_back()
    assert T0 not in harness.manager.partitions.offline


def test_a_replica_that_needs_a_restart_is_not_tried(harness: ReplicaHarness) -> None:
    replicas = OfflineReplicas(harness.manager.partitions, harness.manager.log_manager, harness.clock, lambda: None)
    harness.manager.partitions.offline[T0] = BROKEN._replace(needs_restart=True)
    assert tried(harness, replicas, 100_000) == []
    assert replicas.idle_until_ms() > 0
