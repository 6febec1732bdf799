"""DeleteRecords (key 21): raises the start offset of logs."""

from __future__ import annotations

from odradek.protocol.schema import Message, array, int16, int32, int64, message, string


@message(api_key=21, kind="request", versions=(0, 2), flexible=2)
class DeleteRecordsRequest(Message):
    """The offset of each partition before which records are deleted; -1 for all up to the high watermark."""

    class DeleteRecordsPartition(Message):
        partition_index: int = int32()
        offset: int = int64()

    class DeleteRecordsTopic(Message):
        name: str = string()
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = array()

    topics: list[DeleteRecordsTopic] = array()
    timeout_ms: int = int32()


@message(api_key=21, kind="response", versions=(0, 2), flexible=2)
class DeleteRecordsResponse(Message):
    """The new low watermark of each partition."""

    class DeleteRecordsPartitionResult(Message):
        partition_index: int = int32()
        low_watermark: int = int64()
        error_code: int = int16()

    class DeleteRecordsTopicResult(Message):
        name: str = string()
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = array()

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array()
