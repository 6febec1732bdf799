"""Consumers with different clients in one group: whatever happens to them, every record is processed.

The members process, then commit. So no record is skipped, and none is processed twice, unless the first member that
processed it was killed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from tests.clients.conftest import ClientBroker
from tests.clients.members.crew import Crew, Member, Programs
from tests.clients.members.watch import Seen, Watch, Work, until

NewTopicName = Callable[[int], str]
PARTITIONS = 8
PER_SECOND = 400
STALL_S = 10.0

CREWS = {
    "range": ("kafka-python", "aiokafka", "confluent", "console", "franz-go"),
    "roundrobin": ("console", "kafka-python", "aiokafka", "confluent", "franz-go"),
    "sticky": ("aiokafka", "franz-go", "kafka-python", "console", "java"),
    "cooperative-sticky": ("confluent", "console", "franz-go", "kafka-python", "java"),
}
"""The clients that support each strategy. librdkafka has no sticky, aiokafka no cooperative-sticky."""
LEAVES = {"range": "confluent", "roundrobin": "console", "sticky": "franz-go", "cooperative-sticky": "java"}
KILLED = {"range": "console", "roundrobin": "kafka-python", "sticky": "aiokafka", "cooperative-sticky": "franz-go"}
STALLS = {
    "range": "kafka-python",
    "roundrobin": "aiokafka",
    "sticky": "java",
    "cooperative-sticky": "confluent",
}
"""The clients that stall beyond max.poll.interval.ms. franz-go has none; the console consumer takes no orders."""
COME_BACK = {
    "range": (("console", "franz-go", "confluent"), ("kafka-python", "aiokafka")),
    "roundrobin": (("kafka-python", "confluent"), ("console", "aiokafka")),
    "sticky": (("aiokafka", "java"), ("kafka-python", "console")),
    "cooperative-sticky": (("confluent", "java"), ("kafka-python", "console")),
}
"""The static members that are killed and return together, one group of them after the other. franz-go is missing in
two: if it leads, it compares its assignment with the one that it would make (JoinGroup 9, KIP-814), and the sticky
strategies make another one for a member that does not know what it had. Then it asks for a rebalance."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def crew(
    client_broker: ClientBroker,
    new_topic: NewTopicName,
    java_tools: list[str],
    java_programs: list[str],
    franz_go: Path,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> Iterator[Crew]:
    """A crew without members, with the test's own group and topic. The strategy is the test's parameter, or range."""
    topic = new_topic(PARTITIONS)
    strategy = request.node.callspec.params.get("strategy", "range") if hasattr(request.node, "callspec") else "range"
    programs = Programs(java_tools, java_programs, franz_go)
    crew = Crew(client_broker.bootstrap, f"group-{topic}", topic, strategy, programs, tmp_path / "members.log")
    yield crew
    crew.end()
    for member in crew.all:
        print(member.kind, len(member.records), member.events)
    if crew.all:
        print(crew.log.read_text()[-30_000:])


@contextlib.contextmanager
def work_for(crew: Crew) -> Iterator[Watch]:
    """Produces continuously. At the end the group finishes the records, all members leave, and the sums are checked."""
    watch = Watch(crew.bootstrap, crew.group, crew.topic, PARTITIONS)
    work = Work(crew.bootstrap, crew.topic, PARTITIONS, PER_SECOND)
    try:
        yield watch
    finally:
        work.finish()
    watch.until_all_is_committed()
    for member in crew.all:
        if member.process.poll() is None:
            member.leave()
    assert_all_is_processed(crew, watch.ends())


def assert_all_is_processed(crew: Crew, ends: dict[int, int], repeating: Collection[str] = ()) -> None:
    """`repeating`: the kinds of members that may process a record again."""
    done = crew.processed_by()
    skipped = [(p, offset) for p, end in ends.items() for offset in range(end) if (p, offset) not in done]
    assert not skipped, f"{len(skipped)} skipped, the first {skipped[:3]}"
    assert len(done) == sum(ends.values()), "nothing that was not written"
    spared = {*repeating, *(["console"] if crew.strategy == "cooperative-sticky" else [])}
    twice = {position: [m.kind for m in who] for position, who in done.items() if not was_once(who, spared)}
    assert not twice, f"{len(twice)} twice: {list(twice.items())[:3]}; {[(m.kind, m.events) for m in crew.all]}"
    for member in crew.all:
        if member.kind not in repeating:
            assert_in_order(member)


def was_once(who: list[Member], spared: set[str]) -> bool:
    """Whether all members that processed a record, but the last, were killed.

    The console consumer in a cooperative group is spared, on any broker: it commits before it rejoins, cannot commit
    while it rejoins but still reads, and gives partitions back without another commit. It is spared only if it was
    first: the others have committed what they processed.
    """
    return all(member.kind in spared for member in [one for one in who if not one.killed][:-1])


def assert_in_order(member: Member) -> None:
    at: dict[int, int] = {}
    for partition, offset in member.records:
        assert offset > at.get(partition, -1), f"{member.kind}: {partition}/{offset} after {at[partition]}"
        at[partition] = offset


@pytest.mark.parametrize("strategy", CREWS)
def test_mixed_members_process_every_record_while_they_join_leave_stall_and_die(crew: Crew, strategy: str) -> None:
    kinds = CREWS[strategy]
    with work_for(crew) as watch:
        first = crew.start(kinds[0])
        watch.until_stable(1)
        by_kind = {kinds[0]: first} | {kind: crew.start(kind) for kind in kinds[1:]}
        watch.until_stable(len(kinds))
        by_kind[LEAVES[strategy]].leave()
        watch.until_stable(len(kinds) - 1)
        crew.start(LEAVES[strategy])
        watch.until_stable(len(kinds))
        stalled = by_kind[STALLS[strategy]]
        stalled.stall(STALL_S)
        by_kind[KILLED[strategy]].kill()
        watch.until_stable(len(kinds) - 2)
        until(lambda: stalled.events, lambda events: any("commit-after-stall" in e for e in events), "end of the stall")
        assert "commit-after-stall accepted" not in stalled.events
        seen = len(stalled.records)
        watch.until_stable(len(kinds) - 1)
        until(lambda: len(stalled.records), lambda count: count > seen, "work of the one who stalled")


@pytest.mark.parametrize("leader", CREWS["range"])
def test_a_topic_that_gains_partitions_is_reassigned(crew: Crew, leader: str) -> None:
    """The leader's client detects the change and rejoins."""
    with work_for(crew) as watch:
        crew.start(leader)
        watch.until_stable(1)
        crew.start("confluent" if leader != "confluent" else "kafka-python")
        watch.until_stable(2)
        watch.grow(PARTITIONS + 2)
        watch.until_stable(2)


@pytest.mark.parametrize("strategy", COME_BACK)
def test_a_returning_static_member_gets_its_partitions_back_without_a_rebalance(crew: Crew, strategy: str) -> None:
    kinds = CREWS[strategy]
    with work_for(crew) as watch:
        members = {kind: crew.start(kind, instance=f"static-{kind}") for kind in kinds}
        assigned = watch.until_stable(len(kinds)).assigned
        assert set(assigned) == {f"static-{kind}" for kind in kinds}
        for gone in COME_BACK[strategy]:
            until_all_work(list(members.values()))
            others = [member for kind, member in members.items() if kind not in gone]
            noticed = [list(member.events) for member in others]
            for kind in gone:
                members[kind].kill()
            members |= {kind: crew.start(kind, instance=f"static-{kind}") for kind in gone}
            until_all_work(list(members.values()))
            assert watch.look() == Seen("STABLE", assigned)
            assert [member.events for member in others] == noticed


def until_all_work(members: list[Member]) -> None:
    seen = [len(member.records) for member in members]
    until(
        lambda: [len(member.records) for member in members],
        lambda now: all(n > before for n, before in zip(now, seen, strict=True)),
        "work of all",
    )


@pytest.mark.parametrize("kind", ["confluent", "kafka-python"])
def test_a_second_member_with_the_same_instance_id_fences_the_first(crew: Crew, kind: str) -> None:
    with work_for(crew) as watch:
        older = crew.start(kind, instance="the-one")
        before = watch.until_stable(1).assigned
        until_all_work([older])
        younger = crew.start(kind, instance="the-one")
        until(older.process.poll, lambda status: status is not None, "end of the older")
        assert older.process.returncode == 3
        assert "FENCED" in " ".join(older.events).upper(), older.events
        older.killed = True  # what it processed after it was fenced is not committed
        until_all_work([younger])
        assert watch.look().assigned == before
