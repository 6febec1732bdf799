"""DeleteRecords requests: move the log start offsets, then respond when all replicas have followed.

Source: Kafka's ReplicaManager.deleteRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.broker.metadata.metadata_cache import INTERNAL_TOPICS
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.broker.replica.partition.wakeups import Wakeups
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import DelayedDeleteRecords, DeleteRecordsPartitionStatus, PartitionExpirations

INVALID_LOW_WATERMARK = -1


class DeletionResult(NamedTuple):
    """The smallest log start offset over the replicas (-1 on failure), and the error."""

    low_watermark: int
    error: ErrorCode


DeletionResults = dict[TopicPartition, DeletionResult]
OnDeleted = Callable[[DeletionResults], object]


class Deletions:
    def __init__(self, partitions: HostedPartitions, wakeups: Wakeups) -> None:
        self._partitions = partitions
        self._wakeups = wakeups
        self.expirations: PartitionExpirations = PartitionExpirations()

    def delete(
        self, timeout_ms: int, offsets: Mapping[TopicPartition, int], on_response: OnDeleted
    ) -> DeletionResults | DelayedDeleteRecords:
        """Returns the results if they are available now, otherwise the parked operation, which calls `on_response` once
        (possibly before this method returns).

        `offsets`: all records before the offset are deleted; -1 means the high watermark.
        """
        statuses = {key: self._delete_one(key, before) for key, before in offsets.items()}
        if not any(status.acks_pending for status in statuses.values()):
            return _results(statuses)

        def answer(settled: dict[TopicPartition, DeleteRecordsPartitionStatus]) -> None:
            on_response(_results(settled))

        operation = DelayedDeleteRecords(timeout_ms, statuses, self._low_watermark, answer, self.expirations)
        self._wakeups.delete_records.try_complete_else_watch(operation, tuple(statuses))
        return operation

    def _delete_one(self, key: TopicPartition, before: int) -> DeleteRecordsPartitionStatus:
        if key.topic in INTERNAL_TOPICS and key in self._partitions:
            return DeleteRecordsPartitionStatus(-1, ErrorCode.INVALID_TOPIC_EXCEPTION)
        try:
            partition = self._partitions.find(key)
            status = DeleteRecordsPartitionStatus(partition.delete_records(before))
        except ProtocolError as error:
            return DeleteRecordsPartitionStatus(-1, error.code)
        self._wakeups.watermark_moved(partition)
        return status

    def _low_watermark(self, key: TopicPartition) -> tuple[int, ErrorCode]:
        try:
            partition = self._partitions.find(key)
            partition.local_log()
        except ProtocolError as error:
            return INVALID_LOW_WATERMARK, error.code
        return partition.low_watermark, ErrorCode.NONE


def _results(statuses: Mapping[TopicPartition, DeleteRecordsPartitionStatus]) -> DeletionResults:
    return {key: DeletionResult(status.low_watermark, status.error) for key, status in statuses.items()}
