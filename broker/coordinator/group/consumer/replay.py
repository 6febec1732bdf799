"""Applies the records of consumer groups: right after they were appended, and all of them when a partition is loaded.

Any value creates what it belongs to, since compaction removes older records: the group, also in the place of a classic
group, and the member. A tombstone of what is not there is ignored. So every prefix of a log, and a damaged log, gives a
group on which every function works.

Source: Kafka's GroupMetadataManager (replay).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from odradek.broker.coordinator.group.consumer.group import NO_TARGET, UNKNOWN_TIME, ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.group.consumer.records import (
    ASSIGNMENT,
    GROUP_EPOCH,
    MEMBER,
    PARTITION_METADATA,
    REGEX,
    TARGET,
    TARGET_EPOCH,
    read_assignment,
    read_group_epoch,
    read_member,
    read_regex,
    read_target,
    read_target_epoch,
)
from odradek.broker.coordinator.runtime.record import CoordinatorRecord, decode_key
from odradek.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from odradek.protocol.schema import Message

M = TypeVar("M", bound=Message)
GroupOf = Callable[[str, bool], ConsumerGroup | None]
"""group_of(group_id, may_create) returns the consumer group, or None if there is none and it must not be created."""


class ConsumerReplay:
    """`group_of` finds or creates groups. `remove(group)` takes a deleted group out of the table of groups."""

    def __init__(self, group_of: GroupOf, remove: Callable[[ConsumerGroup], object]) -> None:
        self._group_of = group_of
        self._remove = remove
        self.by_type: dict[int, Callable[[CoordinatorRecord], None]] = {
            GROUP_EPOCH: self._replay_group_epoch,
            PARTITION_METADATA: self._replay_partition_metadata,
            MEMBER: self._replay_member,
            TARGET_EPOCH: self._replay_target_epoch,
            TARGET: self._replay_target,
            ASSIGNMENT: self._replay_assignment,
            REGEX: self._replay_regex,
        }
        """How the records are applied, by their type. Each function raises MalformedMessage."""

    def _found(self, group_id: str, record: CoordinatorRecord) -> ConsumerGroup | None:
        return self._group_of(group_id, record.value is not None)

    def _replay_group_epoch(self, record: CoordinatorRecord) -> None:
        value = None if record.value is None else read_group_epoch(record.value)
        group = self._found(decode_key(ConsumerGroupMetadataKey, record.key).group_id, record)
        if group is None:
            return
        if value is None:
            self._remove(group)
        else:
            group.set_epoch(*value)

    def _replay_partition_metadata(self, record: CoordinatorRecord) -> None:
        group = self._found(decode_key(ConsumerGroupPartitionMetadataKey, record.key).group_id, record)
        if group is not None:
            group.has_partition_metadata = record.value is not None

    def _replay_member(self, record: CoordinatorRecord) -> None:
        key = decode_key(ConsumerGroupMemberMetadataKey, record.key)
        if record.value is None:
            group = self._found(key.group_id, record)
            if group is not None:
                group.remove_member(key.member_id)
            return
        read = read_member(ConsumerMember(key.member_id), record.value)
        group = self._found(key.group_id, record)
        if group is not None:
            old = group.member(key.member_id) or read
            shared = read._replace(subscribed_topics=group.subscriptions.shared(read.subscribed_topics))
            group.put_member(shared.with_progress_of(old))

    def _replay_target_epoch(self, record: CoordinatorRecord) -> None:
        value = (NO_TARGET, UNKNOWN_TIME) if record.value is None else read_target_epoch(record.value)
        group = self._found(decode_key(ConsumerGroupTargetAssignmentMetadataKey, record.key).group_id, record)
        if group is not None:
            group.target_epoch, group.target_timestamp_ms = value

    def _replay_target(self, record: CoordinatorRecord) -> None:
        key = decode_key(ConsumerGroupTargetAssignmentMemberKey, record.key)
        target = None if record.value is None else read_target(record.value)
        group = self._found(key.group_id, record)
        if group is not None:
            group.set_target(key.member_id, target)

    def _replay_assignment(self, record: CoordinatorRecord) -> None:
        key = decode_key(ConsumerGroupCurrentMemberAssignmentKey, record.key)
        read = read_assignment(ConsumerMember(key.member_id), record.value)
        group = self._found(key.group_id, record)
        old = None if group is None else group.member(key.member_id)
        if group is None or (old is None and record.value is None):
            return
        group.put_member((old or read).with_progress_of(read))

    def _replay_regex(self, record: CoordinatorRecord) -> None:
        key = decode_key(ConsumerGroupRegularExpressionKey, record.key)
        resolved = None if record.value is None else read_regex(record.value)
        group = self._found(key.group_id, record)
        if group is not None:
            group.subscriptions.resolve(key.regular_expression, resolved)
