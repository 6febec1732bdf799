"""The contents of JoinGroup metadata and SyncGroup assignments of consumers, after an int16 version."""

from __future__ import annotations

from odradek.protocol.schema import ALWAYS, Message, array, bytes_, int32, message, since, string


@message(kind="data", versions=(0, 3))
class ConsumerProtocolSubscription(Message):
    """The topics to which a consumer subscribes, and the partitions that it owns."""

    class TopicPartition(Message):
        topic: str = string(versions=since(1))
        partitions: list[int] = array(int32, versions=since(1))

    topics: list[str] = array(string)
    user_data: bytes | None = bytes_(default=None, nullable=ALWAYS)
    owned_partitions: list[TopicPartition] = array(versions=since(1))
    generation_id: int = int32(default=-1, versions=since(2))
    rack_id: str | None = string(default=None, versions=since(3), nullable=since(3))


@message(kind="data", versions=(0, 3))
class ConsumerProtocolAssignment(Message):
    """The partitions that the leader assigned to a consumer."""

    class TopicPartition(Message):
        topic: str = string()
        partitions: list[int] = array(int32)

    assigned_partitions: list[TopicPartition] = array()
    user_data: bytes | None = bytes_(default=None, nullable=ALWAYS)
