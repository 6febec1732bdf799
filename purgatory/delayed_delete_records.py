"""DelayedDeleteRecords: a DeleteRecords request that waits until every replica has deleted the records.

A partition is settled in one of two cases; the request is answered when all partitions are settled:

1. The partition failed (no longer hosted here, no longer led here, offline): its error and low watermark -1.
2. Its low watermark, the smallest log start offset of its live replicas, has reached the offset: that low watermark.

`check` distinguishes the cases: it returns a low watermark and NONE, or -1 and an error. A partition that is still
pending at the timeout is answered with REQUEST_TIMED_OUT; its records are deleted here all the same. Kafka:
DelayedDeleteRecords.
"""

from collections.abc import Callable

from mypy_extensions import i64, mypyc_attr

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory.delayed_acknowledgement import DelayedAcknowledgement, PendingPartition
from odradek.purgatory.expirations import PartitionExpirations

INVALID_LOW_WATERMARK = -1


class DeleteRecordsPartitionStatus(PendingPartition):
    """`required_offset` is exclusive: all records before it are to be deleted."""

    __slots__ = ("low_watermark",)

    def __init__(self, required_offset: int, error: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__(required_offset, error)
        self.low_watermark: i64 = INVALID_LOW_WATERMARK


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedDeleteRecords(DelayedAcknowledgement[DeleteRecordsPartitionStatus]):
    """`check(partition)` returns the partition's low watermark and error."""

    __slots__ = ("check",)

    def __init__(
        self,
        timeout_ms: int,
        statuses: dict[TopicPartition, DeleteRecordsPartitionStatus],
        check: Callable[[TopicPartition], tuple[int, ErrorCode]],
        on_response: Callable[[dict[TopicPartition, DeleteRecordsPartitionStatus]], None],
        expirations: PartitionExpirations | None = None,
    ) -> None:
        super().__init__(timeout_ms, statuses, on_response, expirations)
        self.check = check

    def settle(self, topic_partition: TopicPartition, status: DeleteRecordsPartitionStatus) -> None:
        low_watermark, error = self.check(topic_partition)
        if error != ErrorCode.NONE or low_watermark >= status.required_offset:
            status.acks_pending = False
            status.error = error
            status.low_watermark = low_watermark if error == ErrorCode.NONE else INVALID_LOW_WATERMARK
