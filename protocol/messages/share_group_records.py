"""Keys and values of `__consumer_offsets` for share groups of KIP-932, after an int16 version."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import ALWAYS, Message, array, int8, int32, int64, message, string, uuid


@message(kind="data", versions=(9, 9))
class ShareGroupPartitionMetadataKey(Message):
    """The topics that a share group subscribes to (version 9)."""

    group_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ShareGroupPartitionMetadataValue(Message):
    """The subscribed topics with partitions and racks."""

    class TopicPartitionsInfo(Message):
        topic_id: UUID = uuid()
        topic_name: str = string()
        partitions: list[int] = array(int32)

    class TopicInfo(Message):
        topic_id: UUID = uuid()
        topic_name: str = string()

    initialized_topics: list[TopicPartitionsInfo] = array()
    deleting_topics: list[TopicInfo] = array()


@message(kind="data", versions=(10, 10))
class ShareGroupMemberMetadataKey(Message):
    """A member of a share group (version 10)."""

    group_id: str = string()
    member_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ShareGroupMemberMetadataValue(Message):
    """The member's subscriptions."""

    rack_id: str | None = string(nullable=ALWAYS)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


@message(kind="data", versions=(11, 11))
class ShareGroupMetadataKey(Message):
    """A share group (version 11)."""

    group_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ShareGroupMetadataValue(Message):
    """The epoch of the group, and a hash of the topics that its assignment depends on."""

    epoch: int = int32()
    metadata_hash: int = int64()  # KIP-1101; without a tag: 3.9 cannot read it, nor this codec what 3.9 wrote


@message(kind="data", versions=(12, 12))
class ShareGroupTargetAssignmentMetadataKey(Message):
    """The target assignment of a share group (version 12)."""

    group_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMetadataValue(Message):
    """The epoch of the target assignment, and when it was computed in ms since 1970."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


@message(kind="data", versions=(13, 13))
class ShareGroupTargetAssignmentMemberKey(Message):
    """The target assignment of a member (version 13)."""

    group_id: str = string()
    member_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMemberValue(Message):
    """The partitions that are assigned to the member."""

    class TopicPartition(Message):
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    topic_partitions: list[TopicPartition] = array()


@message(kind="data", versions=(14, 14))
class ShareGroupCurrentMemberAssignmentKey(Message):
    """The current assignment of a member (version 14)."""

    group_id: str = string()
    member_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ShareGroupCurrentMemberAssignmentValue(Message):
    """The partitions that the member reads."""

    class TopicPartitions(Message):
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array()


@message(kind="data", versions=(15, 15))
class ShareGroupStatePartitionMetadataKey(Message):
    """The topics whose state a share group keeps (version 15)."""

    group_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class ShareGroupStatePartitionMetadataValue(Message):
    """The topics that are being initialized, are initialized, or are being deleted."""

    class TopicPartitionsInfo(Message):
        topic_id: UUID = uuid()
        topic_name: str = string()
        partitions: list[int] = array(int32)

    class TopicInfo(Message):
        topic_id: UUID = uuid()
        topic_name: str = string()

    initializing_topics: list[TopicPartitionsInfo] = array()
    initialized_topics: list[TopicPartitionsInfo] = array()
    deleting_topics: list[TopicInfo] = array()
