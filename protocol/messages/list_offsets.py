"""ListOffsets (key 2) and OffsetForLeaderEpoch (key 23): offsets by time and by leader epoch."""

from __future__ import annotations

from odradek.protocol.schema import Message, array, int8, int16, int32, int64, message, since, string, until


@message(api_key=2, kind="request", versions=(0, 11), flexible=6)
class ListOffsetsRequest(Message):
    """Offsets by timestamp in ms; -1 is the latest, -2 the earliest, -3 the offset of the newest timestamp."""

    class ListOffsetsPartition(Message):
        partition_index: int = int32()
        current_leader_epoch: int = int32(default=-1, versions=since(4))
        timestamp: int = int64()
        max_num_offsets: int = int32(default=1, versions=until(0))

    class ListOffsetsTopic(Message):
        name: str = string()
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = array()

    replica_id: int = int32()
    isolation_level: int = int8(versions=since(2))
    topics: list[ListOffsetsTopic] = array()
    timeout_ms: int = int32(versions=since(10))  # KIP-1075


@message(api_key=2, kind="response", versions=(0, 11), flexible=6)
class ListOffsetsResponse(Message):
    """The offset found in each partition and its timestamp, -1 if there is none."""

    class ListOffsetsPartitionResponse(Message):
        partition_index: int = int32()
        error_code: int = int16()
        old_style_offsets: list[int] = array(int64, versions=until(0))
        timestamp: int = int64(default=-1, versions=since(1))
        offset: int = int64(default=-1, versions=since(1))
        leader_epoch: int = int32(default=-1, versions=since(4))

    class ListOffsetsTopicResponse(Message):
        name: str = string()
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = array()

    throttle_time_ms: int = int32(versions=since(2))
    topics: list[ListOffsetsTopicResponse] = array()


@message(api_key=23, kind="request", versions=(0, 4), flexible=4)
class OffsetForLeaderEpochRequest(Message):
    """The end offset of a leader epoch, which followers and consumers request to find truncated records."""

    class OffsetForLeaderPartition(Message):
        partition: int = int32()
        current_leader_epoch: int = int32(default=-1, versions=since(2))
        leader_epoch: int = int32()

    class OffsetForLeaderTopic(Message):
        topic: str = string()
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = array()

    replica_id: int = int32(default=-2, versions=since(3))
    topics: list[OffsetForLeaderTopic] = array()


@message(api_key=23, kind="response", versions=(0, 4), flexible=4)
class OffsetForLeaderEpochResponse(Message):
    """The largest epoch of each partition not above the requested one, and its end offset."""

    class EpochEndOffset(Message):
        error_code: int = int16()
        partition: int = int32()
        leader_epoch: int = int32(default=-1, versions=since(1))
        end_offset: int = int64(default=-1)

    class OffsetForLeaderTopicResult(Message):
        topic: str = string()
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = array()

    throttle_time_ms: int = int32(versions=since(2))
    topics: list[OffsetForLeaderTopicResult] = array()
