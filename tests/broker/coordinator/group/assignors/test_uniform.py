"""What a client may rely on in the uniform assignor: balance, completeness, and few moves; in 10,000 random groups."""

from __future__ import annotations

from random import Random
from uuid import UUID

from odradek.broker.coordinator.group.assignors.assignor import AssignmentSpec, MemberSpec, Target
from odradek.broker.coordinator.group.assignors.uniform import assign
from tests.broker.coordinator.group.assignors.random_groups import (
    after,
    assigned,
    changed,
    kept,
    random_spec,
    size,
    topic,
)

T1, T2 = topic(1), topic(2)
BOTH = frozenset((T1, T2))


def test_a_newcomer_gets_what_is_above_the_share_of_the_others() -> None:
    alone = AssignmentSpec({"A": MemberSpec(None, BOTH, {})}, {T1: 4, T2: 3})
    first = assigned(assign, alone)
    assert size(first["A"]) == 7
    spec = after(AssignmentSpec({name: MemberSpec(None, BOTH, {}) for name in "ABC"}, {T1: 4, T2: 3}), first)
    second = assigned(assign, spec)
    assert sorted(map(size, second.values())) == [2, 2, 3]
    assert second["A"] == {T1: {0, 1, 2}}, "who has most gives up least"


def test_a_member_that_already_has_one_more_keeps_it() -> None:
    last: Target = {"A": {T1: frozenset((0, 1))}, "B": {T1: frozenset((2, 3, 4))}}
    spec = after(AssignmentSpec({name: MemberSpec(None, frozenset((T1,)), {}) for name in "AB"}, {T1: 5}), last)
    assert assigned(assign, spec) == last


def test_a_last_target_that_gives_a_partition_twice_or_one_that_does_not_exist_is_corrected() -> None:
    last: Target = {"A": {T1: frozenset((0, 7, -1))}, "B": {T1: frozenset((0, 1))}}
    spec = after(AssignmentSpec({name: MemberSpec(None, frozenset((T1,)), {}) for name in "AB"}, {T1: 2}), last)
    assert assigned(assign, spec) == {"A": {T1: {0}}, "B": {T1: {1}}}


def test_members_with_equal_topics_have_equal_shares_and_keep_as_much_as_these_allow() -> None:
    random = Random(2)
    for _ in range(5000):
        spec = random_spec(random, mixed=False)
        for _ in range(2):
            target = assigned(assign, spec)
            sizes = sorted(map(size, target.values()))
            assert sizes[-1] - sizes[0] <= 1
            assert kept(spec, target) == most_kept(spec)
            again = assigned(assign, after(spec, target))
            assert all(again[name] is target[name] for name in target), "nothing moves without a reason"
            spec = changed(random, after(spec, target))


def most_kept(spec: AssignmentSpec) -> int:
    """Returns how many partitions can stay if all shares are equal, or larger by one for as many as must be."""
    share, larger = divmod(sum(spec.partition_counts.values()), len(spec.members))
    had = [
        sum(1 for topic_id, each in pairs(member) if each < spec.partition_counts.get(topic_id, 0))
        for member in spec.members.values()
    ]
    above = sum(1 for each in had if each > share)
    return sum(min(each, share) for each in had) + min(above, larger)


def pairs(member: MemberSpec) -> list[tuple[UUID, int]]:
    return [(topic_id, each) for topic_id, partitions in member.target.items() for each in partitions]


def test_members_with_different_topics_are_balanced_so_far_as_single_moves_can_and_keep_what_balance_allows() -> None:
    random = Random(3)
    for _ in range(5000):
        spec = random_spec(random, mixed=True)
        for _ in range(2):
            target = assigned(assign, spec)
            loads = {name: size(part) for name, part in target.items()}
            for name, part in target.items():
                for topic_id in part:
                    for other, each in spec.members.items():
                        if topic_id in each.topics:
                            assert loads[name] <= loads[other] + 1, f"{name} could give {other} one of {topic_id}"
            again = assigned(assign, after(spec, target))
            assert all(again[name] is target[name] for name in target), "nothing moves without a reason"
            spec = changed(random, after(spec, target))


def test_a_newcomer_among_different_topics_moves_little_more_than_it_gets() -> None:
    random = Random(4)
    got = moved = 0
    for _ in range(1000):
        spec = random_spec(random, mixed=True)
        target = assigned(assign, spec)
        topics = frozenset(spec.partition_counts)
        joined = after(spec, target)
        joined = joined._replace(members={**joined.members, "newcomer": MemberSpec(None, topics, {})})
        new = assigned(assign, joined)
        got += size(new["newcomer"])
        moved += sum(spec.partition_counts.values()) - kept(joined, new)
    assert got <= moved <= 1.2 * got


def test_a_thousand_members_with_two_kinds_of_subscriptions_are_balanced() -> None:
    counts = {topic(number): 50 for number in range(20)}
    ids = sorted(counts)
    kinds = [frozenset(ids[:12]), frozenset(ids[8:])]
    spec = AssignmentSpec({f"m{n}": MemberSpec(None, kinds[n % 2], {}) for n in range(1000)}, counts)
    target = assigned(assign, spec)
    assert {size(part) for part in target.values()} == {1}
