"""Groups of real clients, while brokers are killed, restarted or stopped: they go on without a rebalance, unless one
was under way, and process every record once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.members.crew import Crew, Member, Programs
from tests.clients.members.watch import Watch, Work
from tests.clients.test_rebalance import assert_all_is_processed, until_all_work
from tests.cluster.agreement import assert_replicas_agree
from tests.cluster.cluster import Cluster
from tests.patience import block_until
from tests.soak import rounds

TOPIC, PARTITIONS, PER_SECOND = "orders", 6, 300
KINDS = ("aiokafka", "java", "confluent")
"""Without kafka-python 3.0.12, which may fall silent for ever when it loses its coordinator (see also load.py)."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture
def crew(cluster: Cluster, java_programs: list[str], tmp_path: Path) -> Iterator[Crew]:
    """A crew without members for a new topic."""
    cluster.create_topic(TOPIC, PARTITIONS)
    crew = Crew(
        cluster.bootstrap, "crew", TOPIC, "range", Programs([], java_programs, Path()), tmp_path / "members.log"
    )
    yield crew
    crew.end()
    for member in crew.all:
        print(member.kind, len(member.records), member.events)
    if crew.all:
        print(crew.log.read_text()[-30_000:])


def present(crew: Crew) -> list[Member]:
    """The members that run."""
    return [member for member in crew.all if member.process.poll() is None]


@contextlib.contextmanager
def working(cluster: Cluster, crew: Crew, dump_tool: list[str]) -> Iterator[Watch]:
    """Members of each kind share the topic, and records are written meanwhile. At the end all are processed."""
    cluster.until_coordinator(crew.group)
    watch = Watch(crew.bootstrap, crew.group, crew.topic, PARTITIONS)
    for kind in KINDS:
        crew.start(kind)
    watch.until_stable(len(KINDS))
    work = Work(crew.bootstrap, crew.topic, PARTITIONS, PER_SECOND)
    try:
        until_all_work(crew.all)
        yield watch
        until_all_work(present(crew))
    finally:
        work.finish()
    cluster.until_whole()
    watch.until_all_is_committed()
    for member in present(crew):
        member.leave()
    assert_all_is_processed(crew, watch.ends())
    assert_replicas_agree(cluster, dump_tool)


def kill_brokers(cluster: Cluster, crew: Crew) -> None:
    """Kills the coordinator, then a leader of orders, then the controller."""
    for lost in (
        lambda: cluster.until_coordinator(crew.group),
        lambda: cluster.leader(TOPIC, 0),
        cluster.controller,
    ):
        broker_id = lost()
        cluster.kill(broker_id)
        cluster.until_replaced(broker_id)
        until_all_work(crew.all)
        cluster.launch(broker_id)
        cluster.until_whole()


def restart_brokers(cluster: Cluster, crew: Crew) -> None:
    """Restarts all brokers, one after the other."""
    for broker_id in cluster.nodes:
        cluster.terminate(broker_id)
        cluster.until_replaced(broker_id)
        until_all_work(crew.all)
        cluster.launch(broker_id)
        cluster.until_whole()


def stop_the_coordinator(cluster: Cluster, crew: Crew) -> None:
    """Stops the coordinator for long. It leads a third of the orders, too, unless it was stopped before."""
    cluster.stop_for_long(cluster.until_coordinator(crew.group))
    cluster.until_whole()


@pytest.mark.soak("5 rounds of each fault under a group", minutes=4)
@pytest.mark.parametrize("fault", [kill_brokers, restart_brokers, stop_the_coordinator])
def test_a_group_goes_on_without_a_rebalance(
    cluster: Cluster, crew: Crew, dump_tool: list[str], fault: Callable[[Cluster, Crew], None]
) -> None:
    with working(cluster, crew, dump_tool) as watch:
        assigned = watch.look()
        events = [list(member.events) for member in crew.all]
        for _ in range(rounds(1, in_soak=5)):
            fault(cluster, crew)
            until_all_work(crew.all)
        assert watch.look() == assigned
        noticed = [[event for event in member.events if "commit-failed" not in event] for member in crew.all]
        assert noticed == events


@pytest.mark.soak("10 kills of a coordinator in a rebalance", minutes=3)
def test_a_group_whose_coordinator_is_lost_in_a_rebalance_finishes_it(
    cluster: Cluster, crew: Crew, dump_tool: list[str]
) -> None:
    with working(cluster, crew, dump_tool) as watch:
        for number in range(rounds(2, in_soak=10)):
            coordinator = cluster.until_coordinator(crew.group)
            joins = crew.start(KINDS[-1 - number % 2])
            block_until(lambda: cluster.group_state(crew.group) != "Stable")
            cluster.kill(coordinator)
            cluster.until_coordinator(crew.group, other_than=coordinator)
            watch.until_stable(len(KINDS) + 1)
            until_all_work(present(crew))
            joins.leave()
            watch.until_stable(len(KINDS))
            cluster.launch(coordinator)
            cluster.until_whole()
