"""Encodes the records of consumer groups in `__consumer_offsets`, and decodes their values. (KIP-848)

| type | key           | value                                                       |
|------|---------------|-------------------------------------------------------------|
| 3    | group         | the group's epoch and the hash of its topics                |
| 4    | group         | written before 4.0; deleted when found                      |
| 5    | group, member | who the member is and what it is subscribed to              |
| 6    | group         | the epoch of the target assignment, and when it was computed |
| 7    | group, member | the target of the member                                    |
| 8    | group, member | epoch, state and partitions of the member                   |
| 16   | group, regex  | the topics that the regular expression matched              |

All values have version 0. Topic names are sorted, as Kafka sorts them.

Source: Kafka's GroupCoordinatorRecordHelpers, Assignment, ConsumerGroupMember (updateWith).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from odradek.broker.coordinator.group.consumer.member import (
    JOINING,
    LEAVING,
    NOTHING_OWNED,
    ClassicMemberMetadata,
    ConsumerMember,
    Owned,
    Partitions,
)
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.subscriptions import ResolvedRegex
from odradek.broker.coordinator.runtime.record import CoordinatorRecord, decode_value, encode_key, encode_value
from odradek.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.protocol.schema import Message

GROUP_EPOCH = 3
PARTITION_METADATA = 4
MEMBER = 5
TARGET_EPOCH = 6
TARGET = 7
ASSIGNMENT = 8
REGEX = 16
VERSION = 0
M = TypeVar("M", bound=Message)
_Epochs = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions


# --- keys ---------------------------------------------------------------------------------------------------------


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Returns the records that remove a member."""
    return [
        _tombstone(_assignment_key(group_id, member_id)),
        _tombstone(_target_key(group_id, member_id)),
        _tombstone(_member_key(group_id, member_id)),
    ]


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return _tombstone(_regex_key(group_id, regex))


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return _tombstone(encode_key(ConsumerGroupPartitionMetadataKey(group_id=group_id), PARTITION_METADATA))


def tombstones_of_group(group_id: str, members: Sequence[str], regexes: Iterable[str]) -> list[CoordinatorRecord]:
    """Returns the records that delete a group with its members and resolved regular expressions."""
    return [
        *(_tombstone(_assignment_key(group_id, each)) for each in members),
        *(_tombstone(_target_key(group_id, each)) for each in members),
        _tombstone(encode_key(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), TARGET_EPOCH)),
        *(_tombstone(_member_key(group_id, each)) for each in members),
        *(regex_tombstone(group_id, each) for each in regexes),
        partition_metadata_tombstone(group_id),
        _tombstone(encode_key(ConsumerGroupMetadataKey(group_id=group_id), GROUP_EPOCH)),
    ]


def _tombstone(key: bytes) -> CoordinatorRecord:
    return CoordinatorRecord(key, None)


def _member_key(group_id: str, member_id: str) -> bytes:
    return encode_key(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), MEMBER)


def _target_key(group_id: str, member_id: str) -> bytes:
    return encode_key(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), TARGET)


def _assignment_key(group_id: str, member_id: str) -> bytes:
    return encode_key(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), ASSIGNMENT)


def _regex_key(group_id: str, regex: str) -> bytes:
    return encode_key(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), REGEX)


# --- values -------------------------------------------------------------------------------------------------------


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return _record(encode_key(ConsumerGroupMetadataKey(group_id=group_id), GROUP_EPOCH), value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """`timestamp_ms`: when the target was computed; UNKNOWN_TIME lets the next one follow without delay."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return _record(encode_key(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), TARGET_EPOCH), value)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None if classic is None else _classic_value(classic),
    )
    return _record(_member_key(group_id, member.member_id), value)


def _classic_value(classic: ClassicMemberMetadata) -> ConsumerGroupMemberMetadataValue.ClassicMemberMetadata:
    return ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=metadata)
            for name, metadata in classic.protocols
        ],
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    topics = [
        ConsumerGroupTargetAssignmentMemberValue.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
        for topic_id, partitions in target.items()
    ]
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics)
    return _record(_target_key(group_id, member_id), value)


def assignment_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.revoking),
    )
    return _record(_assignment_key(group_id, member.member_id), value)


def _with_epochs(owned: Owned) -> list[_Epochs]:
    return [
        _Epochs(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in ((topic_id, dict(sorted(given.items()))) for topic_id, given in owned.items())
    ]


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return _record(_regex_key(group_id, regex), value)


def _record(key: bytes, value: Message) -> CoordinatorRecord:
    return CoordinatorRecord(key, encode_value(value, VERSION))


# --- decoding. All functions raise MalformedMessage. --------------------------------------------------------------


def _read(cls: type[M], value: bytes) -> M:
    return decode_value(cls, value)[1]


def read_group_epoch(value: bytes) -> tuple[int, int]:
    """Returns (epoch, metadata hash)."""
    read = _read(ConsumerGroupMetadataValue, value)
    return read.epoch, read.metadata_hash


def read_target_epoch(value: bytes) -> tuple[int, int]:
    """Returns (epoch, timestamp in ms since 1970)."""
    read = _read(ConsumerGroupTargetAssignmentMetadataValue, value)
    return read.assignment_epoch, read.assignment_timestamp


def read_member(member: ConsumerMember, value: bytes) -> ConsumerMember:
    """Returns the member with what its record of type MEMBER says."""
    read = _read(ConsumerGroupMemberMetadataValue, value)
    classic = read.classic_member_metadata
    return member._replace(
        instance_id=read.instance_id,
        rack_id=read.rack_id,
        client_id=read.client_id,
        client_host=read.client_host,
        rebalance_timeout_ms=read.rebalance_timeout_ms,
        server_assignor=read.server_assignor,
        subscribed_topics=frozenset(read.subscribed_topic_names),
        subscribed_regex=read.subscribed_topic_regex or "",
        classic=None
        if classic is None
        else ClassicMemberMetadata(
            classic.session_timeout_ms, tuple((each.name, each.metadata) for each in classic.supported_protocols)
        ),
    )


def read_target(value: bytes) -> Partitions:
    read = _read(ConsumerGroupTargetAssignmentMemberValue, value)
    return {each.topic_id: frozenset(each.partitions) for each in read.topic_partitions if each.partitions}


def read_assignment(member: ConsumerMember, value: bytes | None) -> ConsumerMember:
    """Returns the member with what its record of type ASSIGNMENT says. A tombstone (None): it owns nothing any more."""
    if value is None:
        return member._replace(epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING_OWNED, revoking=NOTHING_OWNED)
    read = _read(ConsumerGroupCurrentMemberAssignmentValue, value)
    return member._replace(
        epoch=read.member_epoch,
        previous_epoch=read.previous_member_epoch,
        state=MemberState.of(read.state),
        assigned=_owned(read.assigned_partitions, read.member_epoch),
        revoking=_owned(read.partitions_pending_revocation, read.member_epoch),
    )


def _owned(topics: Iterable[_Epochs], member_epoch: int) -> Owned:
    """Records before 4.3 have no assignment epochs: the member's is the latest that it can have been."""
    since = max(member_epoch, JOINING)
    owned = {}
    for each in topics:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = [since] * len(each.partitions)
        if epochs:
            owned[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return owned


def read_regex(value: bytes) -> ResolvedRegex:
    read = _read(ConsumerGroupRegularExpressionValue, value)
    return ResolvedRegex(frozenset(read.topics), read.version, read.timestamp)
