"""Encodes the records of consumer groups in `__consumer_offsets`, and decodes them. (KIP-848)

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

from collections.abc import Iterable, Mapping, Sequence
from struct import pack
from typing import Any

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
from odradek.broker.coordinator.runtime.record import (
    CoordinatorRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
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
_Epochs = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions


class MadeRecord(CoordinatorRecord):
    """A record of this broker, with what it was encoded from: the replay that follows its append decodes nothing.

    `names`: of the key, as `names_of` returns them.
    """

    kind = 0
    names = "", ""
    message: Message | None = None


def _made(kind: int, key: bytes, names: tuple[str, str], message: Message | None) -> MadeRecord:
    record = MadeRecord(key, None if message is None else encode_value(message, VERSION))
    record.kind, record.names, record.message = kind, names, message
    return record


# --- keys ---------------------------------------------------------------------------------------------------------

_OF_GROUPS: Mapping[int, Any] = {
    GROUP_EPOCH: ConsumerGroupMetadataKey,
    PARTITION_METADATA: ConsumerGroupPartitionMetadataKey,
    TARGET_EPOCH: ConsumerGroupTargetAssignmentMetadataKey,
}
_OF_MEMBERS: Mapping[int, Any] = {
    MEMBER: ConsumerGroupMemberMetadataKey,
    TARGET: ConsumerGroupTargetAssignmentMemberKey,
    ASSIGNMENT: ConsumerGroupCurrentMemberAssignmentKey,
}
_TYPES = {kind: pack(">h", kind) for kind in _OF_MEMBERS}


def names_of(record: CoordinatorRecord) -> tuple[str, str]:
    """Returns the group and the member or regular expression ("": none) that the key of a record names.

    Raises MalformedMessage. The record is of one of the types of this file.
    """
    if isinstance(record, MadeRecord):
        return record.names
    kind = record.kind
    if kind == REGEX:
        of_regex = decode_key(ConsumerGroupRegularExpressionKey, record.key)
        return of_regex.group_id, of_regex.regular_expression
    if kind in _OF_MEMBERS:
        of_member = decode_key(_OF_MEMBERS[kind], record.key)
        return of_member.group_id, of_member.member_id
    of_group = decode_key(_OF_GROUPS[kind], record.key)
    return of_group.group_id, ""


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Returns the records that remove a member. Their keys differ in their types alone."""
    names = group_id, member_id
    named = _member_key(MEMBER, group_id, member_id)[2:]
    return [_made(kind, _TYPES[kind] + named, names, None) for kind in (ASSIGNMENT, TARGET, MEMBER)]


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return _regex_record(group_id, regex, None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return _group_record(PARTITION_METADATA, group_id, None)


def tombstones_of_group(group_id: str, members: Sequence[str], regexes: Iterable[str]) -> list[CoordinatorRecord]:
    """Returns the records that delete a group with its members and resolved regular expressions."""
    return [
        *(_member_record(ASSIGNMENT, group_id, each, None) for each in members),
        *(_member_record(TARGET, group_id, each, None) for each in members),
        _group_record(TARGET_EPOCH, group_id, None),
        *(_member_record(MEMBER, group_id, each, None) for each in members),
        *(regex_tombstone(group_id, each) for each in regexes),
        partition_metadata_tombstone(group_id),
        _group_record(GROUP_EPOCH, group_id, None),
    ]


def _group_record(kind: int, group_id: str, message: Message | None) -> CoordinatorRecord:
    return _made(kind, encode_key(_OF_GROUPS[kind](group_id=group_id), kind), (group_id, ""), message)


def _member_record(kind: int, group_id: str, member_id: str, message: Message | None) -> CoordinatorRecord:
    return _made(kind, _member_key(kind, group_id, member_id), (group_id, member_id), message)


def _member_key(kind: int, group_id: str, member_id: str) -> bytes:
    return encode_key(_OF_MEMBERS[kind](group_id=group_id, member_id=member_id), kind)


def _regex_record(group_id: str, regex: str, message: Message | None) -> CoordinatorRecord:
    key = encode_key(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), REGEX)
    return _made(REGEX, key, (group_id, regex), message)


# --- values -------------------------------------------------------------------------------------------------------


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return _group_record(GROUP_EPOCH, group_id, value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """`timestamp_ms`: when the target was computed; UNKNOWN_TIME lets the next one follow without delay."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return _group_record(TARGET_EPOCH, group_id, value)


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
    return _member_record(MEMBER, group_id, member.member_id, value)


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
    return _member_record(TARGET, group_id, member_id, value)


def assignment_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.revoking),
    )
    return _member_record(ASSIGNMENT, group_id, member.member_id, value)


def _with_epochs(owned: Owned) -> list[_Epochs]:
    return [
        _Epochs(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in ((topic_id, dict(sorted(given.items()))) for topic_id, given in owned.items())
    ]


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return _regex_record(group_id, regex, value)


# --- what the values say ------------------------------------------------------------------------------------------

_VALUES: Mapping[int, type[Message]] = {
    GROUP_EPOCH: ConsumerGroupMetadataValue,
    MEMBER: ConsumerGroupMemberMetadataValue,
    TARGET_EPOCH: ConsumerGroupTargetAssignmentMetadataValue,
    TARGET: ConsumerGroupTargetAssignmentMemberValue,
    ASSIGNMENT: ConsumerGroupCurrentMemberAssignmentValue,
    REGEX: ConsumerGroupRegularExpressionValue,
}


def message_of(record: CoordinatorRecord) -> Any:
    """Returns the value of a record, None for a tombstone. Raises MalformedMessage.

    Nobody reads a value of the type PARTITION_METADATA: True stands for one.
    """
    if isinstance(record, MadeRecord):
        return record.message
    if record.value is None:
        return None
    value_class = _VALUES.get(record.kind)
    return value_class is None or decode_value(value_class, record.value)[1]


def with_metadata(member: ConsumerMember, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    """Returns the member with what its record of type MEMBER says."""
    classic = value.classic_member_metadata
    return member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        subscribed_topics=frozenset(value.subscribed_topic_names),
        subscribed_regex=value.subscribed_topic_regex or "",
        classic=None
        if classic is None
        else ClassicMemberMetadata(
            classic.session_timeout_ms, tuple((each.name, each.metadata) for each in classic.supported_protocols)
        ),
    )


def target_in(value: ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
    return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions if each.partitions}


def with_assignment(member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> ConsumerMember:
    """Returns the member with what its record of type ASSIGNMENT says. A tombstone (None): it owns nothing any more."""
    if value is None:
        return member._replace(epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING_OWNED, revoking=NOTHING_OWNED)
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_owned(value.assigned_partitions, value.member_epoch),
        revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
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


def resolved_in(value: ConsumerGroupRegularExpressionValue) -> ResolvedRegex:
    return ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
