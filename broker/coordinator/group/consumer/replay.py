"""Applies the records of consumer groups: right after they were appended, and all of them when a partition is loaded.

Any value creates what it belongs to, since compaction removes older records: the group, also in the place of a classic
group, and the member. A tombstone of what is not there is ignored. So every prefix of a log, and a damaged log, gives a
group on which every function works.

Source: Kafka's GroupMetadataManager (replay).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    message_of,
    names_of,
    resolved_in,
    target_in,
    with_assignment,
    with_metadata,
)
from odradek.broker.coordinator.runtime.record import CoordinatorRecord

GroupOf = Callable[[str, bool], ConsumerGroup | None]
"""group_of(group_id, may_create) returns the consumer group, or None if there is none and it must not be created."""


class ConsumerReplay:
    """`group_of` finds or creates groups. `remove(group)` takes a deleted group out of the table of groups."""

    def __init__(self, group_of: GroupOf, remove: Callable[[ConsumerGroup], object]) -> None:
        self._group_of = group_of
        self._remove = remove
        self._by_type: dict[int, Callable[[ConsumerGroup, str, Any], object]] = {
            GROUP_EPOCH: self._group_epoch,
            PARTITION_METADATA: self._partition_metadata,
            MEMBER: self._member,
            TARGET_EPOCH: self._target_epoch,
            TARGET: self._target,
            ASSIGNMENT: self._assignment,
            REGEX: self._regex,
        }
        """Applies a record of the type to its group: (group, member or regular expression, value or None)."""
        self.types = self._by_type.keys()

    def replay(self, record: CoordinatorRecord, **_: int) -> None:
        """Applies a record of one of the types. Raises MalformedMessage."""
        group_id, name = names_of(record)
        value = message_of(record)
        group = self._group_of(group_id, value is not None)
        if group is not None:
            group.changes += 1
            self._by_type[record.kind](group, name, value)

    def _group_epoch(self, group: ConsumerGroup, _: str, value: Any) -> None:
        if value is None:
            self._remove(group)
        else:
            group.set_epoch(value.epoch, value.metadata_hash)

    def _partition_metadata(self, group: ConsumerGroup, _: str, value: Any) -> None:
        group.has_partition_metadata = value is not None

    def _member(self, group: ConsumerGroup, member_id: str, value: Any) -> None:
        if value is None:
            group.remove_member(member_id)
            return
        read = with_metadata(group.member(member_id) or ConsumerMember(member_id), value)
        group.put_member(read._replace(subscribed_topics=group.subscriptions.shared(read.subscribed_topics)))

    def _target_epoch(self, group: ConsumerGroup, _: str, value: Any) -> None:
        if value is None:
            group.target_epoch, group.target_timestamp_ms = NO_TARGET, UNKNOWN_TIME
        else:
            group.target_epoch, group.target_timestamp_ms = value.assignment_epoch, value.assignment_timestamp

    def _target(self, group: ConsumerGroup, member_id: str, value: Any) -> None:
        group.set_target(member_id, None if value is None else target_in(value))

    def _assignment(self, group: ConsumerGroup, member_id: str, value: Any) -> None:
        known = group.member(member_id)
        if known is not None or value is not None:
            group.put_member(with_assignment(known or ConsumerMember(member_id), value))

    def _regex(self, group: ConsumerGroup, regex: str, value: Any) -> None:
        group.subscriptions.resolve(regex, None if value is None else resolved_in(value))
