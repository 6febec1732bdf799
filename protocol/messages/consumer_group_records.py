"""Keys and values of `__consumer_offsets` for consumer groups of KIP-848, after an int16 version."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import ALWAYS, Message, array, bytes_, int8, int32, int64, message, string, structure, uuid


@message(kind="data", versions=(3, 3))
class ConsumerGroupMetadataKey(Message):
    """A consumer group (version 3)."""

    group_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue(Message):
    """The epoch of the group, and a hash of the topics that its assignment depends on."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)  # KIP-1101


@message(kind="data", versions=(4, 4))
class ConsumerGroupPartitionMetadataKey(Message):
    """The topics that a consumer group subscribes to (version 4)."""

    group_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ConsumerGroupPartitionMetadataValue(Message):
    """The subscribed topics with partitions and racks."""

    class PartitionMetadata(Message):
        partition: int = int32()
        racks: list[str] = array(string)

    class TopicMetadata(Message):
        topic_id: UUID = uuid()
        topic_name: str = string()
        num_partitions: int = int32()
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata] = array()

    topics: list[TopicMetadata] = array()


@message(kind="data", versions=(5, 5))
class ConsumerGroupMemberMetadataKey(Message):
    """A member of a consumer group (version 5)."""

    group_id: str = string()
    member_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue(Message):
    """The member's subscriptions, and its classic protocol if it has one."""

    class ClassicProtocol(Message):
        name: str = string()
        metadata: bytes = bytes_()

    class ClassicMemberMetadata(Message):
        session_timeout_ms: int = int32()
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = array()

    instance_id: str | None = string(nullable=ALWAYS)
    rack_id: str | None = string(nullable=ALWAYS)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable=ALWAYS)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable=ALWAYS)
    classic_member_metadata: ClassicMemberMetadata | None = structure(default=True, nullable=ALWAYS, tag=0)


@message(kind="data", versions=(6, 6))
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    """The target assignment of a consumer group (version 6)."""

    group_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The epoch of the target assignment, and when it was computed in ms since 1970."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)  # KIP-1263


@message(kind="data", versions=(7, 7))
class ConsumerGroupTargetAssignmentMemberKey(Message):
    """The target assignment of a member (version 7)."""

    group_id: str = string()
    member_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """The partitions that are assigned to the member."""

    class TopicPartition(Message):
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    topic_partitions: list[TopicPartition] = array()


@message(kind="data", versions=(8, 8))
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    """The current assignment of a member (version 8)."""

    group_id: str = string()
    member_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """The partitions that the member owns, must revoke, or waits for.

    An assignment epoch is the group's epoch in which the member got the partition; releases before 4.4 write none.
    """

    class TopicPartitions(Message):
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)
        assignment_epochs: list[int] | None = array(int32, nullable=ALWAYS, tag=0)  # KIP-1251

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array()
    partitions_pending_revocation: list[TopicPartitions] = array()


@message(kind="data", versions=(16, 16))
class ConsumerGroupRegularExpressionKey(Message):
    """A regular expression of members (version 16)."""

    group_id: str = string()
    regular_expression: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue(Message):
    """The topics that match, the version of the metadata that was searched, and the time in ms since 1970."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
