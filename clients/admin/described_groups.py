"""A group as administrators see it: from a response of DescribeGroups, or of ConsumerGroupDescribe.

In a consumer group the broker has a target for each member. A member gives up what it has beyond its target, and waits
for what the target gives it and it has not got yet: other members still own that, or the member has not asked since it
became free.

Source: Kafka's `DescribeClassicGroupsHandler`, `DescribeConsumerGroupsHandler`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from odradek.protocol.compiler import decode_versioned
from odradek.protocol.errors import MalformedMessage, ProtocolError
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeResponse
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from odradek.protocol.messages.group_admin import DescribeGroupsResponse
from odradek.protocol.topic_partition import TopicPartition

CLASSIC, CONSUMER = "classic", "consumer"
"""The types of groups, and of their members. CONSUMER is also the protocol type of both."""
_MEMBER_TYPES = {0: CLASSIC, 1: CONSUMER}


class GroupMember(NamedTuple):
    """A member of a group. `partitions` is None if the assignment does not decode as a consumer's.

    The rest is known of members of consumer groups only. `member_type`: the protocol that the member speaks, None if
    the broker does not say. `target`: what it will have.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition] | None
    member_type: str | None = None
    epoch: int | None = None
    target: list[TopicPartition] | None = None
    subscribed_topics: list[str] | None = None
    subscribed_regex: str | None = None

    @property
    def gives_up(self) -> list[TopicPartition]:
        """What it has beyond its target."""
        return [] if self.target is None else sorted(set(self.partitions or ()) - set(self.target))

    @property
    def waits_for(self) -> list[TopicPartition]:
        """What the target gives it and it does not have."""
        return sorted(set(self.target or ()) - set(self.partitions or ()))


class DescribedGroup(NamedTuple):
    """A group with its members. `state` is Dead if the group does not exist. `epoch` and `target_epoch` are those of a
    consumer group: a new target is computed while its epoch is lower.
    """

    group_id: str
    coordinator: int
    state: str
    protocol_type: str
    protocol: str
    members: list[GroupMember]
    group_type: str = CLASSIC
    epoch: int | None = None
    target_epoch: int | None = None

    @property
    def owners(self) -> dict[TopicPartition, GroupMember]:
        """The member that has each partition."""
        return {key: member for member in self.members for key in member.partitions or ()}


def classic_group(coordinator: int, group: DescribeGroupsResponse.DescribedGroup) -> DescribedGroup:
    """Returns a group of a DescribeGroups response."""
    members = [_classic_member(member, group.protocol_type) for member in group.members]
    return DescribedGroup(
        group.group_id, coordinator, group.group_state, group.protocol_type, group.protocol_data, sorted(members)
    )


def consumer_group(coordinator: int, group: ConsumerGroupDescribeResponse.DescribedGroup) -> DescribedGroup:
    """Returns a group of a ConsumerGroupDescribe response."""
    return DescribedGroup(
        group.group_id,
        coordinator,
        group.group_state,
        CONSUMER,
        group.assignor_name,
        sorted((_consumer_member(member) for member in group.members), key=lambda member: member.member_id),
        CONSUMER,
        group.group_epoch,
        group.assignment_epoch,
    )


def _consumer_member(member: ConsumerGroupDescribeResponse.Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _named(member.assignment.topic_partitions),
        _MEMBER_TYPES.get(member.member_type),
        member.member_epoch,
        _named(member.target_assignment.topic_partitions),
        sorted(member.subscribed_topic_names),
        member.subscribed_topic_regex or None,
    )


def _named(topics: Iterable[ConsumerGroupDescribeResponse.TopicPartitions]) -> list[TopicPartition]:
    return sorted(TopicPartition(topic.topic_name, number) for topic in topics for number in topic.partitions)


def _classic_member(member: DescribeGroupsResponse.DescribedGroupMember, protocol_type: str) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        _assigned(member.member_assignment) if protocol_type == CONSUMER else None,
    )


def _assigned(assignment: bytes) -> list[TopicPartition] | None:
    if not assignment:
        return []
    try:
        read = decode_versioned(ConsumerProtocolAssignment, assignment)[1]
    except (MalformedMessage, ProtocolError):
        return None
    return sorted(
        TopicPartition(topic.topic, partition) for topic in read.assigned_partitions for partition in topic.partitions
    )
