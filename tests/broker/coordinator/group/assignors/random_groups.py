"""Random groups for assignors: members with topics and a last target, which may be old, odd or of other members."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from uuid import UUID

from odradek.broker.background.stepwise import finished
from odradek.broker.coordinator.group.assignors.assignor import (
    AssignmentSpec,
    Assignor,
    MemberSpec,
    Partitions,
    Target,
)


def topic(number: int) -> UUID:
    return UUID(int=number + 1)


def random_spec(random: Random, *, mixed: bool) -> AssignmentSpec:
    """Returns a group without a last target."""
    counts = {topic(number): random.randint(1, 12) for number in range(random.randint(1, 6))}
    everything = frozenset(counts)
    members = {}
    for number in range(random.randint(1, 10)):
        topics = everything
        if mixed:
            topics = frozenset(random.sample(sorted(counts), random.randint(0, len(counts))))
        instance = f"i{random.randint(0, 99)}-{number}" if random.random() < 0.3 else None
        members[f"m{random.randint(0, 999)}-{number}"] = MemberSpec(instance, topics, {})
    used = frozenset().union(*(member.topics for member in members.values()))
    return AssignmentSpec(members, {topic_id: count for topic_id, count in counts.items() if topic_id in used})


def after(spec: AssignmentSpec, target: Mapping[str, Partitions]) -> AssignmentSpec:
    """Returns the group with a last target."""
    members = {name: member._replace(target=target.get(name, {})) for name, member in spec.members.items()}
    return spec._replace(members=members)


def changed(random: Random, spec: AssignmentSpec) -> AssignmentSpec:
    """Returns the group after members came and went, and topics grew and vanished. Its last target is as it was."""
    counts = {topic_id: count + random.choice((0, 0, 3)) for topic_id, count in spec.partition_counts.items()}
    if len(counts) > 1 and random.random() < 0.3:
        del counts[random.choice(sorted(counts))]
    members = {
        name: member._replace(topics=frozenset(member.topics & counts.keys()))
        for name, member in spec.members.items()
        if random.random() < 0.8
    }
    topics = frozenset(counts)
    if members:
        topics = random.choice(list(members.values())).topics
    for number in range(random.randint(0 if members else 1, 3)):
        members[f"new{random.randint(0, 999)}-{number}"] = MemberSpec(None, topics, {})
    used = frozenset().union(*(member.topics for member in members.values()))
    return AssignmentSpec(members, {topic_id: count for topic_id, count in counts.items() if topic_id in used})


def assigned(assign: Assignor, spec: AssignmentSpec) -> Target:
    """Returns the target, after checks of what holds for every assignor."""
    target = finished(assign(spec))
    assert target.keys() == spec.members.keys(), "every member has a part"
    owners: dict[tuple[UUID, int], str] = {}
    for name, part in target.items():
        for topic_id, partitions in part.items():
            assert partitions, "no topic is without partitions"
            assert topic_id in spec.members[name].topics, f"{name} is not subscribed"
            for partition in partitions:
                assert owners.setdefault((topic_id, partition), name) == name, "a partition has two owners"
    expected = {(topic_id, each) for topic_id, count in spec.partition_counts.items() for each in range(count)}
    assert owners.keys() == expected, "every partition has an owner"
    return target


def size(part: Partitions) -> int:
    return sum(map(len, part.values()))


def kept(spec: AssignmentSpec, target: Target) -> int:
    """Returns how many partitions stay with the member that had them."""
    return sum(
        len(partitions & member.target.get(topic_id, frozenset()))
        for name, member in spec.members.items()
        for topic_id, partitions in target[name].items()
    )
