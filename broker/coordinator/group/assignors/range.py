"""The range assignor: each topic's partitions in order, cut into ranges, one for each member in order.

Static members come first, by instance id, then the others by member id. Of a topic with n partitions and m subscribers
each gets n // m, and the first n % m one more. Topics with equally many partitions and the same subscribers are cut
alike, so that one member has the same partitions of each.

Worked example: 5 partitions, members A, B, C: A has 0, 1; B has 2, 3; C has 4.

Source: Kafka's RangeAssignor.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.coordinator.group.assignors.assignor import AssignmentSpec, MemberSpec, Partitions, Target


def assign(spec: AssignmentSpec) -> Steps[Target]:
    """Returns the target, which is the same for every order of the members in `spec`."""
    pace = Pace()
    subscribers: Counter[UUID] = Counter()
    for member in spec.members.values():
        subscribers.update(member.topics)
        if pace.step_ends(1 + len(member.topics)):
            yield
    cuts = {topic_id: _Cut(spec.partition_counts[topic_id], count) for topic_id, count in subscribers.items()}
    target: Target = {}
    for member_id, member in sorted(spec.members.items(), key=_place):
        part: dict[UUID, frozenset[int]] = {}
        for topic_id in member.topics:
            partitions = cuts[topic_id].next_range()
            if partitions:
                part[topic_id] = partitions
            if pace.step_ends():
                yield
        target[member_id] = _unless_equal(part, member.target)
    return target


def _place(entry: tuple[str, MemberSpec]) -> tuple[bool, str]:
    member_id, member = entry
    return (True, member_id) if member.instance_id is None else (False, member.instance_id)


def _unless_equal(part: Partitions, last: Partitions) -> Partitions:
    """Returns the last target if it is the same, so that no second copy of it is kept."""
    return last if part == last else part


_NONE: frozenset[int] = frozenset()


class _Cut:
    """A topic that is cut into ranges."""

    __slots__ = ("_begin", "_larger", "_size")

    def __init__(self, partitions: int, members: int) -> None:
        self._size, self._larger = divmod(partitions, members)
        self._begin = 0

    def next_range(self) -> frozenset[int]:
        begin, end = self._begin, self._begin + self._size
        if self._larger:
            self._larger -= 1
            end += 1
        self._begin = end
        return frozenset(range(begin, end)) if begin < end else _NONE
