"""ConsumerGroupHeartbeat (key 68) and ConsumerGroupDescribe (key 69): consumer groups of KIP-848."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import (
    ALWAYS,
    Message,
    array,
    bool_,
    int8,
    int16,
    int32,
    message,
    since,
    string,
    structure,
    uuid,
)


@message(api_key=68, kind="request", versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest(Message):
    """Joins (epoch 0), stays or leaves (-1, a static member for a while -2); null means unchanged."""

    class TopicPartitions(Message):
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable=ALWAYS)
    rack_id: str | None = string(default=None, nullable=ALWAYS)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, default=None, nullable=ALWAYS)
    subscribed_topic_regex: str | None = string(default=None, versions=since(1), nullable=since(1))
    server_assignor: str | None = string(default=None, nullable=ALWAYS)
    topic_partitions: list[TopicPartitions] | None = array(default=None, nullable=ALWAYS)


@message(api_key=68, kind="response", versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse(Message):
    """The member's epoch, and its assignment if it is new to it."""

    class TopicPartitions(Message):
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    class Assignment(Message):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = array()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALWAYS)
    member_id: str | None = string(default=None, nullable=ALWAYS)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = structure(nullable=ALWAYS)


@message(api_key=69, kind="request", versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest(Message):
    """The groups to describe."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = bool_()


@message(api_key=69, kind="response", versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse(Message):
    """The state, epochs and members of each group; `member_type` 1 consumer, 0 classic, -1 unknown."""

    class TopicPartitions(Message):
        topic_id: UUID = uuid()
        topic_name: str = string()
        partitions: list[int] = array(int32)

    class Assignment(Message):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = array()

    class Member(Message):
        member_id: str = string()
        instance_id: str | None = string(default=None, nullable=ALWAYS)
        rack_id: str | None = string(default=None, nullable=ALWAYS)
        member_epoch: int = int32()
        client_id: str = string()
        client_host: str = string()
        subscribed_topic_names: list[str] = array(string)
        subscribed_topic_regex: str | None = string(default=None, nullable=ALWAYS)
        assignment: ConsumerGroupDescribeResponse.Assignment = structure(default=True)
        target_assignment: ConsumerGroupDescribeResponse.Assignment = structure(default=True)
        member_type: int = int8(default=-1, versions=since(1))

    class DescribedGroup(Message):
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        assignor_name: str = string()
        members: list[ConsumerGroupDescribeResponse.Member] = array()
        authorized_operations: int = int32(default=-2147483648)

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array()
