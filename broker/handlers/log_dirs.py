"""AlterReplicaLogDirs and DescribeLogDirs: the log directories of this broker's replicas. (KIP-113, KIP-827)

If a partition is named under two directories, the last one counts, as in Kafka.
Source: Kafka's `KafkaApis.handleAlterReplicaLogDirsRequest`, `handleDescribeLogDirsRequest`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from odradek.broker.background.stepwise import Pace, Steps, each_in_steps, each_when_written
from odradek.broker.replica.log_dir_moves import LogDirMoves
from odradek.broker.replica.log_dirs import LogDirDescription, LogDirs, ReplicaDescription
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition

AlteredTopic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
AlteredPartition = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


class LogDirHandlers:
    """AlterReplicaLogDirs (key 34) and DescribeLogDirs (key 35)."""

    def __init__(self, log_dirs: LogDirs, moves: LogDirMoves) -> None:
        self._log_dirs = log_dirs
        self._moves = moves

    def alter_replica_log_dirs(
        self, request: AlterReplicaLogDirsRequest, context: RequestContext
    ) -> Steps[AlterReplicaLogDirsResponse]:
        """Starts the moves, which continue after the response."""
        outcomes = yield from self._moves.alter(_wanted(request))
        return _altered(outcomes)

    def describe_log_dirs(
        self, request: DescribeLogDirsRequest, context: RequestContext
    ) -> Steps[DescribeLogDirsResponse]:
        """Returns every log directory with the partitions of the request (null: all)."""
        wanted = None
        if request.topics is not None:
            wanted = {TopicPartition(asked.topic, number) for asked in request.topics for number in asked.partitions}
        described = yield from self._log_dirs.describe(wanted)
        results = []
        pace = Pace()
        for directory in described:
            described_one = yield from _log_dir(directory, pace)
            results.append(described_one)
        return DescribeLogDirsResponse(results=results)


def replicas_to_move(request: AlterReplicaLogDirsRequest) -> Iterator[int]:
    """Returns how many partitions the request names, by directory and topic."""
    for directory in request.dirs:
        yield from (len(topic.partitions) for topic in directory.topics) if directory.topics else (0,)


def alter_replica_log_dirs_error(
    request: AlterReplicaLogDirsRequest, code: ErrorCode, message: str | None
) -> Steps[Message]:
    """Returns the error for each partition, as the response has no other field for it."""

    def refused(topic: AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic) -> AlteredTopic:
        partitions = each_when_written(
            topic.partitions, lambda number: AlteredPartition(partition_index=number, error_code=code)
        )
        return AlteredTopic(topic_name=topic.name, partitions=partitions)

    topics = []
    pace = Pace()
    for directory in request.dirs:
        topics += directory.topics
        if pace.step_ends(1 + len(directory.topics)):
            yield
    return AlterReplicaLogDirsResponse(results=each_when_written(topics, refused))


def _wanted(request: AlterReplicaLogDirsRequest) -> dict[TopicPartition, str]:
    return {
        TopicPartition(topic.name, number): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for number in topic.partitions
    }


def _altered(outcomes: Mapping[TopicPartition, ErrorCode]) -> AlterReplicaLogDirsResponse:
    results = []
    for name, keys in groupby(sorted(outcomes), key=lambda key: key.topic):
        partitions = [AlteredPartition(partition_index=key.partition, error_code=outcomes[key]) for key in keys]
        results.append(AlteredTopic(topic_name=name, partitions=partitions))
    return AlterReplicaLogDirsResponse(results=results)


def _log_dir(directory: LogDirDescription, pace: Pace) -> Steps[DescribeLogDirsResponse.DescribeLogDirsResult]:
    topics = []
    for name, replicas in groupby(directory.replicas, key=lambda replica: replica.topic_partition.topic):
        partitions = yield from each_in_steps(replicas, _replica, pace)
        topics.append(DescribeLogDirsResponse.DescribeLogDirsTopic(name=name, partitions=partitions))
    return DescribeLogDirsResponse.DescribeLogDirsResult(
        error_code=directory.error,
        log_dir=directory.path,
        topics=topics,
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )


def _replica(replica: ReplicaDescription) -> DescribeLogDirsResponse.DescribeLogDirsPartition:
    return DescribeLogDirsResponse.DescribeLogDirsPartition(
        partition_index=replica.topic_partition.partition,
        partition_size=replica.size,
        offset_lag=replica.offset_lag,
        is_future_key=replica.is_future,
    )
