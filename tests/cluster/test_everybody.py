"""Everybody's programs over three brokers, while one is lost: they go on without a rebalance, and lose nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.clients.members.crew import Programs
from tests.clients.members.everybody import GROUPS, PARTITIONS, TARGETS, TOPIC, everybody_at_work
from tests.cluster.cluster import Cluster
from tests.cluster.process_cluster import process_cluster

KEPT = "confluent"
"""Whose copier keeps its group's coordinator: librdkafka waits for ever for one that is gone from the metadata, if a
transaction sends offsets to it (its issue 5511). The others lose theirs."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with process_cluster(tmp_path) as cluster:
        cluster.create_offsets_topic()
        yield cluster


def group_of(cluster: Cluster, name: str, lost: int) -> str:
    """The name of a group whose coordinator is lost, or kept."""
    names = map(f"group-of-{name}-{{}}".format, count())
    return next(each for each in names if (cluster.until_coordinator(each) == lost) is (name != KEPT))


@pytest.mark.timeout(600)
def test_everybody_goes_on_where_they_were_when_a_coordinator_is_lost(
    cluster: Cluster, everybodys_programs: Programs, tmp_path: Path
) -> None:
    for topic in (TOPIC, *TARGETS.values()):
        cluster.create_topic(topic, PARTITIONS)
    lost = cluster.leader(TOPIC, 0)
    groups = {name: group_of(cluster, name, lost) for name in GROUPS}
    with everybody_at_work(cluster.bootstrap, groups, everybodys_programs, tmp_path) as everybody:
        shared = everybody.look()
        cluster.kill(lost)
        cluster.until_replaced(lost)
        everybody.until_all_work()
        cluster.launch(lost)
        cluster.until_whole()
        everybody.until_all_work()
        assert everybody.look() == shared
