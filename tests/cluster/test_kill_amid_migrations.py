"""kill -9 of coordinators, leaders and the controller of three brokers amid groups that change their protocol and
transactions of version 2.

No log is cleaned: each broker would keep tombstones until another time, and the replicas are compared byte by byte.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.cluster.agreement import assert_replicas_agree
from tests.cluster.cluster import TRANSACTION, Cluster, Start
from tests.cluster.conftest import ON_ZOOKEEPER
from tests.scenarios.migrants import SETTINGS
from tests.scenarios.newer_load import GROUP, PARTITIONS, TOPIC, newer_load
from tests.soak import rounds

KILLS = rounds(4, in_soak=100)
AT_ONCE = 0.3
"""How often a broker is back before the others know that it was away."""
VICTIMS: tuple[Callable[[Cluster], int], ...] = (
    lambda cluster: cluster.until_coordinator(GROUP),
    lambda cluster: cluster.until_coordinator("producer-0", TRANSACTION),
    lambda cluster: cluster.leader(TOPIC, 0),
    lambda cluster: cluster.controller(),
)


@pytest.mark.long
@pytest.mark.soak("100 kills in a cluster amid migrations and transactions of version 2", minutes=25)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "start", ["as processes", pytest.param(ON_ZOOKEEPER, marks=pytest.mark.programs)], indirect=True
)
def test_no_commit_is_lost_and_no_transaction_half_seen_when_coordinators_are_killed(
    start: Start, tmp_path: Path, dump_tool: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    chance = Random(42)
    with start(tmp_path, SETTINGS) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        for victim in VICTIMS:
            victim(cluster)
        cluster.until_whole()
        with newer_load(cluster.bootstrap, chance) as load:
            for number in range(KILLS):
                load.next_era()
                load.until_all_work()
                time.sleep(chance.random())
                load.note_the_kind_of_the_group()
                lost = VICTIMS[number % len(VICTIMS)](cluster)
                cluster.kill(lost)
                if chance.random() >= AT_ONCE:
                    load.until_all_work()
                cluster.launch(lost)
                cluster.until_whole()
        with capsys.disabled():
            print(f"\n{KILLS} kills: {load.summary()}")
        assert_replicas_agree(cluster, dump_tool)
