"""The descriptions of log directories for DescribeLogDirs. Source: Kafka's ReplicaManager.describeLogDirs; KIP-113 and
KIP-827.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.storage.directories.log_manager import LogManager


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


class LogDirs:
    """The log directories of a broker, with the logs of the partitions that it hosts."""

    def __init__(self, log_manager: LogManager, partitions: HostedPartitions) -> None:
        self._log_manager = log_manager
        self._partitions = partitions

    def describe(self, wanted: Collection[TopicPartition] | None = None) -> Steps[list[LogDirDescription]]:
        """Returns every log directory with the requested logs (None: all)."""
        logs = self._log_manager
        replicas: dict[str, list[ReplicaDescription]] = {path: [] for path in logs.directories}
        pace = Pace()
        for partition in self._partitions:
            if pace.step_ends():
                yield
            if partition.topic_partition not in self._partitions:
                continue  # removed between two steps
            log = partition.log
            lag = max(log.state.high_watermark - log.state.log_end_offset, 0)
            replicas[logs.directory_of(log)].append(
                ReplicaDescription(partition.topic_partition, log.segments.size_in_bytes, lag)
            )
        for move in logs.moves.under_way():
            lag = move.log.state.log_end_offset - move.end_offset
            replicas[move.directory].append(ReplicaDescription(move.log.topic_partition, move.size, lag, True))
        return [self._describe(path, _chosen(found, wanted)) for path, found in replicas.items()]

    def _describe(self, path: str, replicas: list[ReplicaDescription]) -> LogDirDescription:
        try:
            total, usable = self._log_manager.files.space(path)
        except OSError:
            return LogDirDescription(path, ErrorCode.KAFKA_STORAGE_ERROR, [])
        return LogDirDescription(path, ErrorCode.NONE, replicas, total, usable)


def _chosen(
    replicas: Iterable[ReplicaDescription], wanted: Collection[TopicPartition] | None
) -> list[ReplicaDescription]:
    """The requested replicas (None: all), ordered by topic and partition."""
    return sorted(replica for replica in replicas if wanted is None or replica.topic_partition in wanted)
