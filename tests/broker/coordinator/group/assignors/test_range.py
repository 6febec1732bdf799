"""The range assignor gives what Kafka's gives, whatever the order of the members."""

from __future__ import annotations

from random import Random

from odradek.broker.coordinator.group.assignors.assignor import AssignmentSpec, MemberSpec
from odradek.broker.coordinator.group.assignors.range import assign
from tests.broker.coordinator.group.assignors.random_groups import after, assigned, random_spec, topic

T1, T2 = topic(1), topic(2)


def member(*topics: int, instance: str | None = None) -> MemberSpec:
    return MemberSpec(instance, frozenset(map(topic, topics)), {})


def test_the_first_members_get_one_more() -> None:
    spec = AssignmentSpec({name: member(1) for name in "BCA"}, {T1: 5})
    assert assigned(assign, spec) == {"A": {T1: {0, 1}}, "B": {T1: {2, 3}}, "C": {T1: {4}}}


def test_more_members_than_partitions_leave_the_last_ones_without() -> None:
    spec = AssignmentSpec({name: member(1, 2) for name in "ABC"}, {T1: 2, T2: 1})
    assert assigned(assign, spec) == {"A": {T1: {0}, T2: {0}}, "B": {T1: {1}}, "C": {}}


def test_static_members_come_first_by_their_instances() -> None:
    spec = AssignmentSpec({"A": member(1), "B": member(1, instance="y"), "C": member(1, instance="x")}, {T1: 3})
    assert assigned(assign, spec) == {"C": {T1: {0}}, "B": {T1: {1}}, "A": {T1: {2}}}


def test_each_topic_is_cut_among_its_own_subscribers() -> None:
    spec = AssignmentSpec({"A": member(1), "B": member(1, 2), "C": member(2)}, {T1: 3, T2: 3})
    assert assigned(assign, spec) == {"A": {T1: {0, 1}}, "B": {T1: {2}, T2: {0, 1}}, "C": {T2: {2}}}


def test_a_group_without_members_has_no_target() -> None:
    assert assigned(assign, AssignmentSpec({}, {})) == {}


def test_random_groups_are_cut_evenly_and_alike_for_every_order_and_every_last_target() -> None:
    random = Random(1)
    for _ in range(3000):
        spec = random_spec(random, mixed=random.random() < 0.5)
        target = assigned(assign, spec)
        for topic_id, count in spec.partition_counts.items():
            sizes = [
                len(target[name].get(topic_id, ())) for name, each in spec.members.items() if topic_id in each.topics
            ]
            assert max(sizes) - min(sizes) <= 1
            assert sum(sizes) == count
        names = list(spec.members)
        random.shuffle(names)
        shuffled = spec._replace(members={name: spec.members[name] for name in names})
        assert assigned(assign, shuffled) == target
        again = assigned(assign, after(spec, target))
        assert all(again[name] is target[name] for name in names), "an unchanged part is not copied"
