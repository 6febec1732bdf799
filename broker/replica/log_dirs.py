"""What DescribeLogDirs tells of the log directories. Source: Kafka's ReplicaManager.describeLogDirs; KIP-113 and
KIP-827.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition


class ReplicaDescription(NamedTuple):
    """One log. `size` in bytes; `offset_lag`: how far its end is behind the high watermark; that of a future one (its
    copy in the directory that it moves to), behind the log's end.
    """

    topic_partition: TopicPartition
    size: int
    offset_lag: int
    is_future: bool = False


class LogDirDescription(NamedTuple):
    """One log directory; `total_bytes` and `usable_bytes` are those of its file system, -1 where it does not tell."""

    path: str
    error: ErrorCode
    replicas: list[ReplicaDescription]
    total_bytes: int = -1
    usable_bytes: int = -1


def chosen(
    replicas: Iterable[ReplicaDescription], wanted: Collection[TopicPartition] | None
) -> list[ReplicaDescription]:
    """The replicas asked for (None: all), ordered by topic and partition."""
    return sorted(replica for replica in replicas if wanted is None or replica.topic_partition in wanted)
