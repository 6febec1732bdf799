"""The uniform assignor: every member gets equally many partitions, or one more, and keeps what it had.

Members with the same topics: each may have the quotient of all partitions by the members, and as many members as the
remainder one more. A member keeps of its last target what it may; the rest goes to members below their share.

Worked example: 7 partitions, members A (had 0-6), B, C: A keeps 0, 1, 2; B gets 3, 4; C gets 5, 6.

Members with different topics: `uniform_mixed`.

Source: Kafka's UniformAssignor, UniformHomogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from uuid import UUID

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.coordinator.group.assignors import uniform_mixed
from odradek.broker.coordinator.group.assignors.assignor import AssignmentSpec, Partitions, Target
from odradek.broker.coordinator.group.assignors.kept import Kept


def assign(spec: AssignmentSpec) -> Steps[Target]:
    """Returns the target. Sizes differ by at most one if all members have the same topics."""
    if not spec.is_homogeneous():
        return (yield from uniform_mixed.assign(spec))
    if not spec.members:
        return {}
    pace = Pace()
    counts = spec.partition_counts
    kept = Kept(counts)
    share, larger = divmod(sum(counts.values()), len(spec.members))
    left = len(spec.members)
    target: Target = {}
    below: list[tuple[str, int]] = []
    for member_id, member in spec.members.items():
        part, size = kept.keep(member.topics, member.target, share + (larger > 0))
        target[member_id] = part
        if pace.step_ends(1 + len(part)):
            yield
        if size > share or (larger > 0 and left <= larger):
            # It has one more, or must get it: all members after it will get one more.
            larger -= 1
            missing = share + 1 - size
        else:
            missing = share - size
        left -= 1
        if missing:
            below.append((member_id, missing))
    free = kept.free()
    for member_id, missing in below:
        target[member_id] = _with(target[member_id], islice(free, missing))
        if pace.step_ends(1 + missing):
            yield
    return target


def _with(part: Partitions, given: Iterator[tuple[UUID, int]]) -> Partitions:
    added: dict[UUID, list[int]] = {}
    for topic_id, partition in given:
        added.setdefault(topic_id, []).append(partition)
    none: frozenset[int] = frozenset()
    merged: Mapping[UUID, frozenset[int]] = {
        topic_id: part.get(topic_id, none).union(partitions) for topic_id, partitions in added.items()
    }
    return {**part, **merged}
