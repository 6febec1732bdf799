"""What the records of consumer groups add up to, as KIP-848 has it, by code of its own; and what must not be in them.

Each batch is one change of a group. After it:

log owners    no partition is assigned to, or kept by, two members
log epochs    no epoch of a group, of its target and of a member is smaller than before, but that of a static member
              that goes for a while; and no target is ahead of its group. A group that was classic begins with its
              generation, which may be 0
targets       when the target of a group is complete, it has each partition of the subscribed topics once, for a member
              that is subscribed to the topic
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from odradek.protocol.compiler import decode_versioned, versioned_version
from odradek.protocol.messages import consumer_group_records as records
from tests.simulation.membership_history import TopicIdPartition, named
from tests.simulation.missteps import Finding

LOG_OWNERS, LOG_EPOCHS, TARGETS = "log owners", "log epochs", "targets"
AWAY = -2
GROUP_EPOCH, PARTITION_METADATA, MEMBER, TARGET_EPOCH, TARGET, ASSIGNMENT, REGEX = 3, 4, 5, 6, 7, 8, 16
KEYS: Mapping[int, Any] = {
    GROUP_EPOCH: records.ConsumerGroupMetadataKey,
    PARTITION_METADATA: records.ConsumerGroupPartitionMetadataKey,
    MEMBER: records.ConsumerGroupMemberMetadataKey,
    TARGET_EPOCH: records.ConsumerGroupTargetAssignmentMetadataKey,
    TARGET: records.ConsumerGroupTargetAssignmentMemberKey,
    ASSIGNMENT: records.ConsumerGroupCurrentMemberAssignmentKey,
    REGEX: records.ConsumerGroupRegularExpressionKey,
}
VALUES: Mapping[int, Any] = {
    GROUP_EPOCH: records.ConsumerGroupMetadataValue,
    MEMBER: records.ConsumerGroupMemberMetadataValue,
    TARGET_EPOCH: records.ConsumerGroupTargetAssignmentMetadataValue,
    TARGET: records.ConsumerGroupTargetAssignmentMemberValue,
    ASSIGNMENT: records.ConsumerGroupCurrentMemberAssignmentValue,
    REGEX: records.ConsumerGroupRegularExpressionValue,
}


class Lasting(NamedTuple):
    """A topic that stays as it is, with so many partitions."""

    topic_id: UUID
    partitions: int


class LoggedMember(NamedTuple):
    """Who a member is, and what it is subscribed to. `protocols`: of a classic one."""

    instance_id: str | None
    topics: frozenset[str]
    regex: str
    protocols: tuple[tuple[str, bytes], ...] | None


class Assigned(NamedTuple):
    """What a member may consume and what it must give up, with the epochs in which it got that."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: Mapping[TopicIdPartition, int]
    revoking: Mapping[TopicIdPartition, int]


NOTHING = Assigned(0, -1, 0, {}, {})


@dataclass
class LoggedConsumerGroup:
    """A consumer group. By member id: `members`, `targets`, `assigned`; by expression: `regexes`."""

    epoch: int = 1
    target_epoch: int = 1
    members: dict[str, LoggedMember] = field(default_factory=dict)
    targets: dict[str, frozenset[TopicIdPartition]] = field(default_factory=dict)
    assigned: dict[str, Assigned] = field(default_factory=dict)
    regexes: dict[str, frozenset[str]] = field(default_factory=dict)

    def topics_of(self, member_id: str) -> frozenset[str]:
        """What a member is subscribed to."""
        member = self.members[member_id]
        return member.topics | self.regexes.get(member.regex, frozenset())


class ConsumerGroupLedger:
    """The consumer groups of one partition of `__consumer_offsets`. `lasting`: topics, by name."""

    def __init__(self) -> None:
        self.groups: dict[str, LoggedConsumerGroup] = {}
        self.lasting: Mapping[str, Lasting] = {}
        self.found: list[Finding] = []
        self._changed: dict[str, bool] = {}
        """The groups of this batch, and whether a target is complete."""
        self._new: set[str] = set()
        """Those that were not there before."""

    def branch(self) -> ConsumerGroupLedger:
        """Returns a copy."""
        branch = ConsumerGroupLedger()
        branch.groups = deepcopy(self.groups)
        return branch

    def take(self, record: Any) -> None:
        """Applies the next record, if it is of a consumer group."""
        kind = versioned_version(record.key)
        key = decode_versioned(KEYS[kind], record.key)[1]
        group_id = key.group_id
        if record.value is None:
            self._delete(kind, key)
            return
        if kind == PARTITION_METADATA:
            return
        value = decode_versioned(VALUES[kind], record.value)[1]
        if group_id not in self.groups:
            self.groups[group_id] = LoggedConsumerGroup()
            self._new.add(group_id)
        group = self.groups[group_id]
        self._changed.setdefault(group_id, False)
        if kind == GROUP_EPOCH:
            if group_id not in self._new:
                self._grows(f"group {group_id}", group.epoch, value.epoch)
            group.epoch = value.epoch
        elif kind == TARGET_EPOCH:
            if group_id not in self._new:
                self._grows(f"the target of {group_id}", group.target_epoch, value.assignment_epoch)
            group.target_epoch = value.assignment_epoch
            self._changed[group_id] = value.assignment_timestamp > 0
        elif kind == REGEX:
            group.regexes[key.regular_expression] = frozenset(value.topics)
        else:
            self._take_member(kind, group, key, value)

    def _take_member(self, kind: int, group: LoggedConsumerGroup, key: Any, value: Any) -> None:
        member_id = key.member_id
        if kind == MEMBER:
            group.members[member_id] = _member(value)
            group.assigned.setdefault(member_id, NOTHING)
        elif kind == TARGET:
            group.targets[member_id] = _partitions(value.topic_partitions)
        else:
            new = Assigned(
                value.member_epoch,
                value.previous_member_epoch,
                value.state,
                _epochs(value.assigned_partitions),
                _epochs(value.partitions_pending_revocation),
            )
            old = group.assigned.get(member_id, NOTHING)
            if new.epoch != AWAY:
                self._grows(f"{member_id} of {key.group_id}", old.epoch, new.epoch)
            group.assigned[member_id] = new

    def _delete(self, kind: int, key: Any) -> None:
        group = self.groups.get(key.group_id)
        if group is None:
            return
        if kind == GROUP_EPOCH:
            del self.groups[key.group_id]
            self._changed.pop(key.group_id, None)
        elif kind == TARGET_EPOCH:
            group.target_epoch = -1
        elif kind == REGEX:
            group.regexes.pop(key.regular_expression, None)
        elif kind == TARGET:
            group.targets.pop(key.member_id, None)
        elif kind == ASSIGNMENT and key.member_id in group.assigned:
            group.assigned[key.member_id] = NOTHING
        elif kind == MEMBER:
            for table in (group.members, group.targets, group.assigned):
                table.pop(key.member_id, None)

    def end_of_batch(self) -> None:
        """The records of a batch have been taken."""
        for group_id, is_complete in self._changed.items():
            group = self.groups[group_id]
            self.found += _shared(group_id, group)
            if group.target_epoch > group.epoch:
                ahead = f"the target of {group_id} has epoch {group.target_epoch}, and the group {group.epoch}"
                self.found.append(Finding(LOG_EPOCHS, ahead))
            if is_complete and group.target_epoch == group.epoch:
                self.found += _wrong_target(group_id, group, self.lasting)
        self._changed.clear()
        self._new.clear()

    def _grows(self, whose: str, before: int, after: int) -> None:
        if after < before:
            self.found.append(Finding(LOG_EPOCHS, f"{whose} has epoch {after} after {before}"))


def _shared(group_id: str, group: LoggedConsumerGroup) -> Iterator[Finding]:
    owners: dict[TopicIdPartition, str] = {}
    for member_id, has in group.assigned.items():
        for partition in (*has.assigned, *has.revoking):
            other = owners.setdefault(partition, member_id)
            if other != member_id:
                text = f"{named([partition])} of {group_id} belongs to {member_id} in the log, and to {other}"
                yield Finding(LOG_OWNERS, text)
                return


def _wrong_target(group_id: str, group: LoggedConsumerGroup, lasting: Mapping[str, Lasting]) -> Iterator[Finding]:
    given = Counter(partition for target in group.targets.values() for partition in target)
    twice = [partition for partition, times in given.items() if times > 1]
    if twice:
        yield Finding(TARGETS, f"the target of {group_id} has {named(twice)} twice")
    wanted: set[str] = set().union(*map(group.topics_of, group.members))
    for name, (topic_id, count) in lasting.items():
        partitions = {(topic_id, number) for number in range(count)}
        missing = partitions - given.keys()
        if name in wanted and missing:
            yield Finding(TARGETS, f"the target of {group_id} gives nobody {named(missing)} of {name}")
        for member_id, target in group.targets.items():
            if name not in group.topics_of(member_id) and not target.isdisjoint(partitions):
                text = f"the target of {group_id} gives {name} to {member_id}, which is not subscribed to it"
                yield Finding(TARGETS, text)


def _member(value: Any) -> LoggedMember:
    classic = value.classic_member_metadata
    return LoggedMember(
        value.instance_id,
        frozenset(value.subscribed_topic_names),
        value.subscribed_topic_regex or "",
        None if classic is None else tuple((each.name, each.metadata) for each in classic.supported_protocols),
    )


def _partitions(topics: Any) -> frozenset[TopicIdPartition]:
    return frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)


def _epochs(topics: Any) -> dict[TopicIdPartition, int]:
    return {
        (topic.topic_id, number): epoch
        for topic in topics
        for number, epoch in zip(topic.partitions, topic.assignment_epochs, strict=True)
    }
