"""Leaders and controllers are killed and restarted under producers: every acknowledged record is there once,
in order, and the replicas agree.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.cluster.agreement import assert_replicas_agree
from tests.cluster.cluster import Cluster
from tests.cluster.writer import Writer, percentile
from tests.soak import rounds

TOPIC, PARTITIONS = "numbers", 4
KILLS = rounds(3, in_soak=40)
LONGEST_PAUSE_S = 30
"""A generous limit: a session time-out, an election, and the producer's next attempt."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@contextlib.contextmanager
def writing(cluster: Cluster, dump_tool: list[str]) -> Iterator[Writer]:
    """Writes meanwhile. At the end everything that was written is there, and the replicas agree."""
    cluster.create_topic(TOPIC, PARTITIONS)
    writer = Writer(cluster.bootstrap, TOPIC, PARTITIONS)
    try:
        writer.until_acknowledged()
        yield writer
    finally:
        writer.finish()
    cluster.until_whole()
    writer.assert_written_once_and_in_order(cluster.bootstrap)
    assert_replicas_agree(cluster, dump_tool)


@pytest.mark.soak("40 kills of leaders under a producer", minutes=6)
def test_no_record_is_lost_doubled_or_reordered_when_leaders_are_killed(
    cluster: Cluster, dump_tool: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    leaderless: list[float] = []
    unacknowledged: list[float] = []
    with writing(cluster, dump_tool) as writer:
        for number in range(KILLS):
            partition = number % PARTITIONS
            leader = cluster.leader(TOPIC, partition)
            killed_at = time.monotonic()
            cluster.kill(leader)
            cluster.until_led_by_another(TOPIC, partition, leader)
            leaderless.append(time.monotonic() - killed_at)
            writer.until_acknowledged()
            unacknowledged.append(writer.longest_pause(partition, killed_at))
            cluster.launch(leader)
            cluster.until_whole()
    with capsys.disabled():
        print(
            f"\n{KILLS} kills, session time-out {cluster.session_timeout_ms} ms: "
            f"without a leader p50 {percentile(leaderless, 0.5):.2f} s, p99 {percentile(leaderless, 0.99):.2f} s; "
            f"without an acknowledgement p50 {percentile(unacknowledged, 0.5):.2f} s, "
            f"p99 {percentile(unacknowledged, 0.99):.2f} s"
        )
    assert max(unacknowledged) < LONGEST_PAUSE_S


@pytest.mark.soak("5 rolling restarts under a producer", minutes=2)
def test_no_record_is_lost_doubled_or_reordered_in_a_rolling_restart(cluster: Cluster, dump_tool: list[str]) -> None:
    with writing(cluster, dump_tool) as writer:
        for broker_id in [*cluster.nodes] * rounds(1, in_soak=5):
            cluster.terminate(broker_id)
            cluster.until_replaced(broker_id)
            writer.until_acknowledged()
            cluster.launch(broker_id)
            cluster.until_whole()


@pytest.mark.soak("20 kills of controllers under a producer", minutes=3)
def test_no_record_is_lost_doubled_or_reordered_when_controllers_are_killed(
    cluster: Cluster, dump_tool: list[str]
) -> None:
    with writing(cluster, dump_tool) as writer:
        for _ in range(rounds(3, in_soak=20)):
            controller = cluster.controller()
            cluster.kill(controller)
            cluster.until_replaced(controller)
            writer.until_acknowledged()
            cluster.launch(controller)
            cluster.until_whole()
