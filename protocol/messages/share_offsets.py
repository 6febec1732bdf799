"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets (keys 90 to 92, KIP-932)."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import ALWAYS, Message, array, int16, int32, int64, message, since, string, uuid


@message(api_key=90, kind="request", versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsRequest(Message):
    """The groups, each with topics or with null for all."""

    class DescribeShareGroupOffsetsRequestTopic(Message):
        topic_name: str = string()
        partitions: list[int] = array(int32)

    class DescribeShareGroupOffsetsRequestGroup(Message):
        group_id: str = string()
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None = array(
            nullable=ALWAYS
        )

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array()


@message(api_key=90, kind="response", versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsResponse(Message):
    """The start offset of each partition, -1 if there is none, and its lag."""

    class DescribeShareGroupOffsetsResponsePartition(Message):
        partition_index: int = int32()
        start_offset: int = int64()
        leader_epoch: int = int32()
        lag: int = int64(default=-1, versions=since(1))
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)

    class DescribeShareGroupOffsetsResponseTopic(Message):
        topic_name: str = string()
        topic_id: UUID = uuid()
        partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition] = array()

    class DescribeShareGroupOffsetsResponseGroup(Message):
        group_id: str = string()
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = array()
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array()


@message(api_key=91, kind="request", versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsRequest(Message):
    """New start offsets of a group that has no members."""

    class AlterShareGroupOffsetsRequestPartition(Message):
        partition_index: int = int32()
        start_offset: int = int64()

    class AlterShareGroupOffsetsRequestTopic(Message):
        topic_name: str = string()
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = array()

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array()


@message(api_key=91, kind="response", versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsResponse(Message):
    """Whether each start offset was changed."""

    class AlterShareGroupOffsetsResponsePartition(Message):
        partition_index: int = int32()
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)

    class AlterShareGroupOffsetsResponseTopic(Message):
        topic_name: str = string()
        topic_id: UUID = uuid()
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = array()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALWAYS)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array()


@message(api_key=92, kind="request", versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsRequest(Message):
    """Topics whose start offsets are deleted from a group that has no members."""

    class DeleteShareGroupOffsetsRequestTopic(Message):
        topic_name: str = string()

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array()


@message(api_key=92, kind="response", versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsResponse(Message):
    """Whether the offsets of each topic were deleted."""

    class DeleteShareGroupOffsetsResponseTopic(Message):
        topic_name: str = string()
        topic_id: UUID = uuid()
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALWAYS)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array()
