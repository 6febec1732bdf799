"""AlterReplicaLogDirs (key 34) and DescribeLogDirs (key 35)."""

from __future__ import annotations

from odradek.protocol.schema import ALWAYS, Message, array, bool_, int16, int32, int64, message, since, string


@message(api_key=34, kind="request", versions=(0, 2), flexible=2)
class AlterReplicaLogDirsRequest(Message):
    """Replicas to move to another log directory of this broker."""

    class AlterReplicaLogDirTopic(Message):
        name: str = string()
        partitions: list[int] = array(int32)

    class AlterReplicaLogDir(Message):
        path: str = string()
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = array()

    dirs: list[AlterReplicaLogDir] = array()


@message(api_key=34, kind="response", versions=(0, 2), flexible=2)
class AlterReplicaLogDirsResponse(Message):
    """Whether the move of each partition has begun."""

    class AlterReplicaLogDirPartitionResult(Message):
        partition_index: int = int32()
        error_code: int = int16()

    class AlterReplicaLogDirTopicResult(Message):
        topic_name: str = string()
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = array()

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array()


@message(api_key=35, kind="request", versions=(0, 5), flexible=2)
class DescribeLogDirsRequest(Message):
    """Partitions to find in the log directories; null means all."""

    class DescribableLogDirTopic(Message):
        topic: str = string()
        partitions: list[int] = array(int32)

    topics: list[DescribableLogDirTopic] | None = array(nullable=ALWAYS)


@message(api_key=35, kind="response", versions=(0, 5), flexible=2)
class DescribeLogDirsResponse(Message):
    """The partitions of each directory with sizes in bytes, and from v4 the space on its disk."""

    class DescribeLogDirsPartition(Message):
        partition_index: int = int32()
        partition_size: int = int64()
        offset_lag: int = int64()
        is_future_key: bool = bool_()

    class DescribeLogDirsTopic(Message):
        name: str = string()
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = array()

    class DescribeLogDirsResult(Message):
        error_code: int = int16()
        log_dir: str = string()
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = array()
        total_bytes: int = int64(default=-1, versions=since(4))
        usable_bytes: int = int64(default=-1, versions=since(4))
        is_cordoned: bool = bool_(versions=since(5))  # KIP-1066

    throttle_time_ms: int = int32()
    error_code: int = int16(versions=since(3))
    results: list[DescribeLogDirsResult] = array()
