"""The target assignment of a group: when it is computed, of what, and the records of its result.

It is computed for the group's epoch, of the members, their topics and the last target. For a small group that takes no
longer than a heartbeat. For a large group it takes many steps, in which the group goes on with its last target; what
has changed meanwhile is left out of the result, and the group's epoch, which has grown, asks for another one.

Source: Kafka's TargetAssignmentBuilder, GroupMetadataManager (maybeUpdateTargetAssignment).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.coordinator.group.consumer.group import UNKNOWN_TIME, ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import NOTHING, ConsumerMember, Partitions
from odradek.broker.coordinator.group.consumer.records import target_epoch_record, target_record
from odradek.broker.coordinator.group.consumer.subscriptions import ResolvedRegex, topics_of
from odradek.broker.coordinator.group.consumer.topics import Topics
from odradek.broker.coordinator.runtime.record import CoordinatorRecord

if TYPE_CHECKING:
    from odradek.broker.coordinator.group.assignors.assignor import AssignmentSpec, Assignor, Target

LARGEST_AT_ONCE = 2000
"""How many members and partitions together are assigned within a heartbeat. A topic that does not exist counts, too."""

MOST_AT_ONCE = 500
"""How many records of a target are written in one step."""
RECORD_OVERHEAD = 32
"""The most bytes that a record takes in a batch besides its key and value."""


def assignor(name: str) -> Assignor:
    """Returns the assignor of this name, which a member may send. It is imported when a group is assigned first."""
    from odradek.broker.coordinator.group.assignors import range as range_assignor
    from odradek.broker.coordinator.group.assignors import uniform

    return {"uniform": uniform.assign, "range": range_assignor.assign}[name]


def due_in_ms(group: ConsumerGroup, epoch: int, now_ms: int, interval_ms: int) -> int | None:
    """Returns in how many ms the target for the group's epoch may be computed; None if it has been.

    At most one target is computed in an interval, so that many members that join at once cause few of them.
    """
    if epoch <= group.target_epoch:
        return None
    last_ms = group.target_timestamp_ms
    if last_ms == UNKNOWN_TIME or last_ms > now_ms:  # The clock went back, or another broker's is ahead.
        return 0
    return max(last_ms + interval_ms - now_ms, 0)


def is_large(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> bool:
    """Whether the target of the group must be computed in steps. The member may be new, or have a new subscription."""
    left = LARGEST_AT_ONCE - group.size
    if left >= 0:
        for name in group.subscriptions.names() | member.subscribed_topics:
            topic_id = topics.topic_id(name)
            left -= (topics.partition_count(topic_id) or 1) if topic_id is not None else 1
            if left < 0:
                break
    return left < 0


class Assignment:
    """One computation of a target for `epoch`. It takes what it needs from the group when it is created.

    `change`: the state of a member before and after the request that is being handled; the state before is None for a
    new member, and may have another id. The group does not know the change yet.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        epoch: int,
        topics: Topics,
        known_assignors: Sequence[str],
        change: tuple[ConsumerMember | None, ConsumerMember] | None = None,
    ) -> None:
        old, new = change or (None, None)
        self.epoch = epoch
        self._group_id = group.group_id
        self._topics = topics
        self._assign = assignor(group.preferred_assignor(known_assignors, old, new))
        self._resolved: Mapping[str, ResolvedRegex] = dict(group.subscriptions.resolved)
        self._targets = dict(group.targets)
        self._members = dict(group.members_by_id)
        if new is not None:
            if old is not None and old.member_id != new.member_id:
                del self._members[old.member_id]
                if old.member_id in self._targets:
                    self._targets[new.member_id] = self._targets.pop(old.member_id)
            self._members[new.member_id] = new

    def steps(self) -> Steps[Target]:
        """Computes the target."""
        spec = yield from _spec_steps(self._members, self._targets, self._resolved, self._topics)
        return (yield from self._assign(spec))

    def records(self, target: Target, now_ms: int) -> list[CoordinatorRecord]:
        """Returns the records of a target that was computed at once. `now_ms`: since 1970."""
        changed = [
            target_record(self._group_id, member_id, part)
            for member_id, part in target.items()
            if _differs(self._targets.get(member_id), part)
        ]
        return [*changed, target_epoch_record(self._group_id, self.epoch, now_ms)]

    def batches(
        self, group: ConsumerGroup, target: Target, now_ms: int, most_bytes: int
    ) -> Iterator[list[CoordinatorRecord]]:
        """Yields the records of a target that took steps. The caller writes each batch before it asks for the next one.

        Each is for the group as it is then: a static member that was replaced has its predecessor's part, members that
        have joined since have none yet. The last record completes the target. A batch has at most MOST_AT_ONCE records,
        and is hardly larger than `most_bytes`.
        """
        batch: list[CoordinatorRecord] = []
        size = 0
        for member_id, part in target.items():
            if len(batch) >= MOST_AT_ONCE or size >= most_bytes:
                yield batch
                batch, size = [], 0
            member = group.member(member_id) or group.static_member(self._members[member_id].instance_id or "")
            if member is not None and _differs(group.targets.get(member.member_id), part):
                record = target_record(self._group_id, member.member_id, part)
                batch.append(record)
                size += RECORD_OVERHEAD + len(record.key) + len(record.value or b"")
        yield [*batch, target_epoch_record(self._group_id, self.epoch, now_ms)]


def _differs(last: Partitions | None, part: Partitions) -> bool:
    return last is not part and last != part


def _spec_steps(
    members: Mapping[str, ConsumerMember],
    targets: Mapping[str, Partitions],
    resolved: Mapping[str, ResolvedRegex],
    topics: Topics,
) -> Steps[AssignmentSpec]:
    """Members with the same subscription share one set of topics, which is looked up once. Sets are filled in the order
    of the names, so that their own order does not depend on the hashes of texts.
    """
    from odradek.broker.coordinator.group.assignors.assignor import AssignmentSpec, MemberSpec

    pace = Pace()
    counts: dict[UUID, int] = {}
    ids: dict[str, UUID | None] = {}
    subscriptions: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, member in members.items():
        subscription = member.subscribed_topics, member.subscribed_regex
        subscribed = subscriptions.get(subscription)
        if subscribed is None:
            names = sorted(topics_of(member, resolved))
            for name in names:
                if name not in ids:
                    topic_id = topics.topic_id(name)
                    count = None if topic_id is None else topics.partition_count(topic_id)
                    ids[name] = topic_id if count else None
                    if topic_id is not None and count:
                        counts[topic_id] = count
                if pace.step_ends():
                    yield
            found = (ids[name] for name in names)
            subscribed = subscriptions[subscription] = frozenset(each for each in found if each is not None)
        specs[member_id] = MemberSpec(member.instance_id, subscribed, targets.get(member_id, NOTHING))
        if pace.step_ends():
            yield
    return AssignmentSpec(specs, counts)
