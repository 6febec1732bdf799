"""Encodes a group's membership as a record of `__consumer_offsets`, and decodes it.

The record is written when a generation gets its assignment, when the last member has left, when a static member
rejoins with a new member id, and when a consumer group becomes a classic one. If the members must rejoin then, it names
no leader, so that a coordinator that loads it knows. Values are written in version 3, as Kafka 3.9 does; versions 0-4
are decoded.

Source: Kafka's GroupMetadataManager (groupMetadataKey, groupMetadataValue, readGroupMessageValue).
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.member import Member
from odradek.broker.coordinator.runtime.record import CoordinatorRecord, decode_key, decode_value, encode_value
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue

WRITTEN_VERSION = 3
FIRST_WITH_REBALANCE_TIMEOUT = 1


def group_metadata_record(
    group: ClassicGroup, assignments: Mapping[str, bytes], *, must_rejoin: bool = False
) -> CoordinatorRecord:
    """Returns the group's record. `assignments` is keyed by member id; members missing from it have no assignment.
    `must_rejoin`: a coordinator that loads the group begins a rebalance.
    """
    protocol = group.protocol_name
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(protocol) if protocol is not None else b"",
            assignment=assignments.get(member.member_id, b""),
        )
        for member in group.members
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=protocol,
        leader=None if must_rejoin else group.leader_id,
        current_state_timestamp=group.current_state_timestamp_ms,
        members=members,
    )
    return CoordinatorRecord(group.record_key, encode_value(value, WRITTEN_VERSION))


def read_group_id(record: CoordinatorRecord) -> str:
    """Returns the group id of a record whose key version is GROUP_METADATA. Raises MalformedMessage."""
    return decode_key(GroupMetadataKey, record.key).group


def restore_group(group: ClassicGroup, value: bytes) -> ClassicGroup:
    """Gives a new group what its record has, and returns it: Stable, or Empty if it has no members. Raises
    MalformedMessage.
    """
    version, read = decode_value(GroupMetadataValue, value)
    if read.members and read.protocol is None:
        raise MalformedMessage("members without a protocol")
    for member in read.members:
        with_timeout = version >= FIRST_WITH_REBALANCE_TIMEOUT
        group.add(
            Member(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout if with_timeout else member.session_timeout,
                member.session_timeout,
                read.protocol_type,
                ((read.protocol or "", member.subscription),),
                member.assignment,
            )
        )
    group.restore(read.generation, (read.protocol_type, read.protocol), read.leader)
    group.current_state_timestamp_ms = read.current_state_timestamp
    return group
