"""DescribeTopicPartitions (key 75): topics and their partitions, page by page (KIP-966)."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import ALWAYS, Message, array, bool_, int16, int32, message, string, structure, uuid


@message(api_key=75, kind="request", versions=(0, 0), flexible=0)
class DescribeTopicPartitionsRequest(Message):
    """The topics, none for all, and where the page begins."""

    class TopicRequest(Message):
        name: str = string()

    class Cursor(Message):
        topic_name: str = string()
        partition_index: int = int32()

    topics: list[TopicRequest] = array()
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = structure(nullable=ALWAYS)


@message(api_key=75, kind="response", versions=(0, 0), flexible=0)
class DescribeTopicPartitionsResponse(Message):
    """The partitions of the page with their eligible leaders, and where the next page begins."""

    class DescribeTopicPartitionsResponsePartition(Message):
        error_code: int = int16()
        partition_index: int = int32()
        leader_id: int = int32()
        leader_epoch: int = int32(default=-1)
        replica_nodes: list[int] = array(int32)
        isr_nodes: list[int] = array(int32)
        eligible_leader_replicas: list[int] | None = array(int32, default=None, nullable=ALWAYS)
        last_known_elr: list[int] | None = array(int32, default=None, nullable=ALWAYS)
        offline_replicas: list[int] = array(int32)

    class DescribeTopicPartitionsResponseTopic(Message):
        error_code: int = int16()
        name: str | None = string(nullable=ALWAYS)
        topic_id: UUID = uuid()
        is_internal: bool = bool_()
        partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = array()
        topic_authorized_operations: int = int32(default=-2147483648)

    class Cursor(Message):
        topic_name: str = string()
        partition_index: int = int32()

    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array()
    next_cursor: Cursor | None = structure(nullable=ALWAYS)
