"""A consumer group as ConsumerGroupDescribe returns it.

What a member must give up belongs to its assignment until it has. Topics that no longer exist have no name and are left
out.

Source: Kafka's ConsumerGroup (asDescribedGroup), ConsumerGroupMember (asConsumerGroupDescribeMember).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import ConsumerMember, Partitions
from odradek.broker.coordinator.group.consumer.topics import Topics
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeResponse

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1
_Response = ConsumerGroupDescribeResponse


def described_steps(
    group: ConsumerGroup, topics: Topics, known_assignors: Sequence[str]
) -> Steps[ConsumerGroupDescribeResponse.DescribedGroup]:
    """Returns the group with its members. Members that come or go between two steps may be missing."""
    described = _Response.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor(known_assignors),
    )
    pace = Pace()
    for member_id in list(group.members_by_id):
        member = group.member(member_id)
        if member is not None:
            described.members.append(described_member(member, group.target_of(member_id), topics))
            if pace.step_ends(1 + len(member.assigned) + len(member.subscribed_topics)):
                yield
    return described


def described_member(
    member: ConsumerMember, target: Partitions, topics: Topics
) -> ConsumerGroupDescribeResponse.Member:
    return _Response.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=_assignment((member.assigned, member.revoking), topics),
        target_assignment=_assignment((target,), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(
    parts: Iterable[Mapping[UUID, Iterable[int]]], topics: Topics
) -> ConsumerGroupDescribeResponse.Assignment:
    merged: dict[UUID, set[int]] = {}
    for part in parts:
        for topic_id, partitions in part.items():
            merged.setdefault(topic_id, set()).update(partitions)
    named = [(topic_id, topics.name(topic_id), sorted(partitions)) for topic_id, partitions in merged.items()]
    return _Response.Assignment(
        topic_partitions=[
            _Response.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=partitions)
            for topic_id, name, partitions in named
            if name is not None
        ]
    )
