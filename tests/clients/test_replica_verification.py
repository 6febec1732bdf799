"""Kafka's ReplicaVerificationTool compares the replicas of our brokers.

It sends the newest version of Fetch only, with the replica id -2. If brokers lack that version, it reports nothing.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import kafka
import pytest

from odradek.testing import ClusterThread

TOOL = "org.apache.kafka.tools.ReplicaVerificationTool"
pytestmark = pytest.mark.timeout(120)

LAG = re.compile(r"max lag is (\d+) for partition t-0 at offset (\d+) among 1 partitions")


@pytest.fixture
def cluster() -> Iterator[ClusterThread]:
    with ClusterThread(brokers=2, min_insync_replicas=1) as cluster:
        cluster.create_topic("t")
        yield cluster


def reports(tool: list[str], bootstrap: str, until: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """The (lag, offset) that the tool has reported, the last of which is the first to satisfy `until`."""
    arguments = ["--broker-list", bootstrap, "--topics-include", "t", "--report-interval-ms", "200", "--time", "-2"]
    found: list[tuple[int, int]] = []
    with subprocess.Popen([*tool, TOOL, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout or ():
                if match := LAG.search(line):
                    found.append((int(match[1]), int(match[2])))
                    if until(*found[-1]):
                        break
        finally:
            process.kill()
    return found


def produce(cluster: ClusterThread, count: int) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap, acks=1)
    for number in range(count):
        producer.send("t", b"%d" % number)
    producer.flush()
    producer.close()


def test_replicas_that_agree_have_no_lag(cluster: ClusterThread, java_tools: list[str]) -> None:
    produce(cluster, 100)
    cluster.wait_until_stable()
    lags = reports(java_tools, cluster.bootstrap, until=lambda lag, offset: (lag, offset) == (0, 100))
    assert lags[-1] == (0, 100)


def test_a_follower_that_is_behind_has_a_lag(cluster: ClusterThread, java_tools: list[str]) -> None:
    leader = cluster.wait_for_leader("t", 0)
    cluster.freeze_replication(3 - leader)
    produce(cluster, 100)
    cluster.wait_for_isr("t", 0, {leader})
    assert reports(java_tools, cluster.bootstrap, until=lambda lag, _: lag == 100)[-1] == (100, 0)
