"""Brokers that are asked to stop while nobody takes their leaderships: how long that takes, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog.testing

from odradek.broker.cluster.member import LEAVE_PATIENCE_S
from odradek.broker.server import STEP_PATIENCE_S
from odradek.testing import Cluster, in_process_cluster

BOUND_S = 45
SETTINGS: dict[str, Any] = {
    "zookeeper_session_timeout_ms": 18_000,
    "controlled_shutdown_retry_backoff_ms": 5000,
    "replica_socket_timeout_ms": 30_000,
    "time": "virtual",
}
"""Those that a broker has by default."""


async def stopped_in_s(cluster: Cluster, broker_id: int) -> float:
    """Stops a broker, and returns how long that took."""
    assert cluster.virtual_time is not None
    began_us = cluster.virtual_time.now_us
    stopping = asyncio.ensure_future(cluster.stop(broker_id))
    await cluster.advance_until(stopping.done, within=200)
    await stopping
    return (cluster.virtual_time.now_us - began_us) / 1e6


def another_than_the_controller(cluster: Cluster) -> tuple[int, int]:
    controller = cluster.controller
    assert controller is not None
    return controller, next(one for one in cluster.ids if one != controller)


async def test_a_broker_whose_controller_hangs_but_keeps_its_session_stops_within_the_bound() -> None:
    async with in_process_cluster(**SETTINGS) as cluster:
        await cluster.create_topic("t", partitions=3)
        controller, leaving = another_than_the_controller(cluster)
        hanging = cluster.faults.add(api="ControlledShutdown", broker=controller, hold=True)
        with structlog.testing.capture_logs() as logs:
            took_s = await stopped_in_s(cluster, leaving)
        hanging.remove()
        assert took_s < BOUND_S
        (given_up,) = [entry for entry in logs if entry["event"] == "leaderships not moved"]
        assert given_up["controller"] == controller
        assert "controlled shutdown" in given_up["gives_up"]


async def test_a_broker_hands_over_to_the_controller_that_follows_one_that_was_killed() -> None:
    async with in_process_cluster(**SETTINGS) as cluster:
        await cluster.create_topic("t", partitions=3)
        controller, leaving = another_than_the_controller(cluster)
        cluster.kill(controller)
        with structlog.testing.capture_logs() as logs:
            took_s = await stopped_in_s(cluster, leaving)
        assert 18 <= took_s < LEAVE_PATIENCE_S
        assert "leaderships not moved" not in [entry["event"] for entry in logs]


async def test_a_broker_hands_over_to_the_controller_that_follows_one_that_hangs_until_its_session_ends() -> None:
    async with in_process_cluster(**SETTINGS) as cluster:
        await cluster.create_topic("t", partitions=3)
        controller, leaving = another_than_the_controller(cluster)
        cluster.pause(controller)
        with structlog.testing.capture_logs() as logs:
            took_s = await stopped_in_s(cluster, leaving)
        assert took_s < LEAVE_PATIENCE_S
        assert "leaderships not moved" not in [entry["event"] for entry in logs]


async def test_a_part_of_a_broker_that_does_not_end_is_given_up() -> None:
    async with in_process_cluster(2, **SETTINGS) as cluster:
        broker = cluster.brokers[2]

        async def never_ends() -> None:
            await asyncio.Event().wait()

        broker._undo[broker._undo.index(broker.cluster.stop)] = never_ends
        with structlog.testing.capture_logs() as logs:
            took_s = await stopped_in_s(cluster, 2)
        assert STEP_PATIENCE_S <= took_s < BOUND_S
        assert "shutdown step given up" in [entry["event"] for entry in logs]
        assert broker.unclean_directories == {}
