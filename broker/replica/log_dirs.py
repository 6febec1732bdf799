"""The descriptions of log directories for DescribeLogDirs. Source: Kafka's ReplicaManager.describeLogDirs; KIP-113 and
KIP-827.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition


class ReplicaDescription(NamedTuple):
    """One log. `size` in bytes; `offset_lag`: how far the log's end is behind the high watermark, or, for a future log
    (the copy in the directory that the log moves to), behind the end of the current log.
    """

    topic_partition: TopicPartition
    size: int
    offset_lag: int
    is_future: bool = False


class LogDirDescription(NamedTuple):
    """One log directory; `total_bytes` and `usable_bytes` describe its file system, -1 if unknown."""

    path: str
    error: ErrorCode
    replicas: list[ReplicaDescription]
    total_bytes: int = -1
    usable_bytes: int = -1


def chosen(
    replicas: Iterable[ReplicaDescription], wanted: Collection[TopicPartition] | None
) -> list[ReplicaDescription]:
    """The requested replicas (None: all), ordered by topic and partition."""
    return sorted(replica for replica in replicas if wanted is None or replica.topic_partition in wanted)
