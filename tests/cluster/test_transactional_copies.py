"""Consume, transform, produce, send offsets, commit, while brokers and the copier are lost: each input is copied once
and in order.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.clients.members.watch import Watch
from tests.clients.transactions import CopierProcess, Numbers, read_committed, until_no_transaction_is_open
from tests.cluster.agreement import assert_replicas_agree
from tests.cluster.cluster import NOBODY, TRANSACTION, Cluster
from tests.sequences import assert_same
from tests.soak import rounds

FROM, TO, PARTITIONS, PER_SECOND = "from", "to", 4, 500
TRANSACTIONAL_ID = "copier"
SPARES_THE_GROUP = {"confluent"}
"""librdkafka waits for ever for a group's coordinator that is gone from the metadata, if a transaction sends offsets to
it: its issue 5511. So these copiers keep theirs.
"""


class Fault(NamedTuple):
    """What happens to a broker: "kill", "terminate" or "stop_for_long"; and which brokers it may happen to."""

    what: str
    brokers: Callable[[Cluster, str], list[int]]


def leaders(cluster: Cluster, _group: str) -> list[int]:
    return [cluster.leader(TO, partition) for partition in range(PARTITIONS)]


FAULTS = (
    Fault("kill", lambda cluster, _group: [cluster.until_coordinator(TRANSACTIONAL_ID, TRANSACTION)]),
    Fault("kill", lambda cluster, group: [cluster.until_coordinator(group)]),
    Fault("kill", leaders),
    Fault("kill", lambda cluster, _group: [cluster.controller()]),
    Fault("terminate", leaders),
    Fault("stop_for_long", leaders),
)


def group_apart(cluster: Cluster) -> str:
    """The name of a group whose coordinator is not that of the transactions."""
    other = cluster.until_coordinator(TRANSACTIONAL_ID, TRANSACTION)
    return next(name for name in map("copiers-{}".format, count()) if cluster.until_coordinator(name) != other)


pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture
def commands(java_programs: list[str], newest_java_programs: list[str]) -> dict[str, list[str]]:
    """The command of each copier. The newest one has an epoch for each transaction."""
    return {
        "confluent": [sys.executable, "-m", "tests.clients.copiers.confluent_copier"],
        "java": [*java_programs, "odradek.Copier"],
        "newest java": [*newest_java_programs, "odradek.Copier"],
    }


@contextlib.contextmanager
def copying(cluster: Cluster, program: list[str], group: str, log: Path) -> Iterator[CopierProcess]:
    copier = CopierProcess([*program, cluster.bootstrap, FROM, TO, group, TRANSACTIONAL_ID], log)
    copier.start()
    try:
        yield copier
    finally:
        with contextlib.suppress(AssertionError):
            copier.kill()


@pytest.mark.soak("36 faults of brokers under a copier of each kind", minutes=10)
@pytest.mark.parametrize("kind", ["confluent", "java", "newest java"])
def test_a_copier_copies_each_record_once_and_in_order_while_brokers_are_lost(
    cluster: Cluster, commands: dict[str, list[str]], dump_tool: list[str], tmp_path: Path, kind: str
) -> None:
    chance = random.Random(18)
    for topic in (FROM, TO):
        cluster.create_topic(topic, PARTITIONS)
    group = group_apart(cluster)
    cluster.until_whole()
    numbers = Numbers(cluster.bootstrap, FROM, PARTITIONS, PER_SECOND)
    with copying(cluster, commands[kind], group, tmp_path / "copier.log") as copier:
        for number, fault in enumerate(FAULTS * rounds(1, in_soak=6)):
            copier.until_it_works()
            threading.Event().wait(chance.random() / 2)
            spared = cluster.until_coordinator(group) if kind in SPARES_THE_GROUP else NOBODY
            lost = next((one for one in fault.brokers(cluster, group) if one != spared), NOBODY)
            if lost == NOBODY:
                continue
            getattr(cluster, fault.what)(lost)
            if number % 4 == 3:
                copier.kill()
                copier.start()
            copier.until_it_works()
            if lost not in cluster.running:
                cluster.launch(lost)
            cluster.until_whole()
            cluster.elect_preferred_leaders()
        copier.until_it_works()
        written = numbers.finish()
        Watch(cluster.bootstrap, group, FROM, PARTITIONS).until_all_is_committed()
        until_no_transaction_is_open(cluster.bootstrap, TO, PARTITIONS)
    read = read_committed(cluster.bootstrap, TO, PARTITIONS)
    for partition in range(PARTITIONS):
        wanted = [f"copy of {value}" for value in range(partition, written, PARTITIONS)]
        assert_same(read[partition], wanted)
    assert_replicas_agree(cluster, dump_tool)
