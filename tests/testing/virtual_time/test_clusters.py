"""A cluster in virtual time: what brokers send to each other arrives before time goes on, so nothing times out."""

from __future__ import annotations

import pytest
import structlog.testing

from odradek.protocol.errors import ErrorCode
from odradek.testing import ClusterThread, in_process_cluster
from tests.patience import until
from tests.testing.virtual_time.cluster_deadlines import fetches
from tests.wire.records import produce

THREE = {1, 2, 3}


@pytest.mark.parametrize("security", ["PLAINTEXT", "SASL_SSL"])
async def test_replicas_stay_in_sync_while_time_is_advanced(security: str) -> None:
    """A fetch waits for half a second, and its round trip takes no time."""
    async with in_process_cluster(security=security, time="virtual") as cluster:
        await cluster.create_topic("t")
        await cluster.wait_for_isr("t", 0, THREE)
        leader = cluster.leader("t", 0)
        assert leader is not None
        followers = [cluster.brokers[broker_id] for broker_id in THREE - {leader}]
        await until(lambda: all(fetches(follower, leader) > 0 for follower in followers))
        before = [fetches(follower, leader) for follower in followers]
        with structlog.testing.capture_logs() as logs:
            await cluster.advance(120)
        for follower, count in zip(followers, before, strict=True):
            assert 239 <= fetches(follower, leader) - count <= 242
        assert cluster.isr("t", 0) == THREE
        assert sorted(cluster.running) == sorted(THREE)
        assert [entry["event"] for entry in logs if entry["log_level"] in ("warning", "error")] == []


async def test_a_killed_broker_is_replaced_when_its_session_ends() -> None:
    async with in_process_cluster(2, zookeeper_session_timeout_ms=60_000, time="virtual") as cluster:
        await cluster.create_topic("t")
        await cluster.wait_for_isr("t", 0, {1, 2})
        dead = cluster.leader("t", 0)
        assert dead is not None
        before = cluster.virtual_time.now_us if cluster.virtual_time else 0
        cluster.kill(dead)
        await cluster.advance_until(lambda: cluster.leader("t", 0) == 3 - dead, within=120)
        assert cluster.virtual_time is not None
        assert 60 <= (cluster.virtual_time.now_us - before) / 1e6 < 70
        assert await produce(cluster.bootstrap_of(3 - dead), "t", b"x", acks=1) == ErrorCode.NONE
        await cluster.start(dead)
        await cluster.wait_for_isr("t", 0, {1, 2})


def test_a_cluster_in_a_thread_is_advanced_by_its_methods() -> None:
    with ClusterThread(2, zookeeper_session_timeout_ms=60_000, time="virtual") as cluster:
        cluster.create_topic("t")
        dead = cluster.leader("t", 0)
        assert dead is not None
        cluster.kill(dead)
        cluster.advance(30, keep_members=True)
        assert cluster.leader("t", 0) is None
        cluster.advance_until(lambda: cluster.leader("t", 0) == 3 - dead, what="another leader")
