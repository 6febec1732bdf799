"""DelayedDeleteRecords: a DeleteRecords request that waits until every replica has let go of what was deleted.

Every partition is settled by one of these; when all are, the request is answered:

1. Something is wrong with it (no longer here, no longer led, offline): its error, and low watermark -1.
2. Its low watermark, the smallest log start offset of its live replicas, has reached the offset: that low watermark.

Which it is the `check` says: a low watermark and NONE, or -1 and an error. What is still pending at the time-out is
answered with REQUEST_TIMED_OUT; it is deleted here all the same. Kafka: DelayedDeleteRecords.
"""

from collections.abc import Callable

from mypy_extensions import i64, mypyc_attr

from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from purgatory.delayed_operation import DelayedOperation
from purgatory.expirations import PartitionExpirations

INVALID_LOW_WATERMARK = -1


class DeleteRecordsPartitionStatus:
    """One partition of the request: the offset before which all is to go, its error so far and its low watermark."""

    __slots__ = ("acks_pending", "error", "low_watermark", "required_offset")

    def __init__(self, required_offset: int, error: ErrorCode = ErrorCode.NONE) -> None:
        self.required_offset: i64 = required_offset
        self.error: ErrorCode = error
        self.low_watermark: i64 = INVALID_LOW_WATERMARK
        self.acks_pending: bool = error == ErrorCode.NONE

    def __repr__(self) -> str:
        state = "pending" if self.acks_pending else self.error.name
        return f"DeleteRecordsPartitionStatus(required_offset={self.required_offset}, {state})"


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedDeleteRecords(DelayedOperation):
    """Calls `on_response(statuses)` once, with every status settled. `timeout_ms` is the request's."""

    __slots__ = ("check", "expirations", "on_response", "statuses")

    def __init__(
        self,
        timeout_ms: int,
        statuses: dict[TopicPartition, DeleteRecordsPartitionStatus],
        check: Callable[[TopicPartition], tuple[int, ErrorCode]],
        on_response: Callable[[dict[TopicPartition, DeleteRecordsPartitionStatus]], None],
        expirations: PartitionExpirations | None = None,
    ) -> None:
        super().__init__(timeout_ms)
        self.statuses = statuses
        self.check = check
        self.on_response = on_response
        self.expirations = expirations

    def try_complete(self) -> bool:
        waits = False
        for topic_partition, status in self.statuses.items():
            if status.acks_pending:
                low_watermark, error = self.check(topic_partition)
                if error != ErrorCode.NONE or low_watermark >= status.required_offset:
                    status.acks_pending = False
                    status.error = error
                    status.low_watermark = low_watermark if error == ErrorCode.NONE else INVALID_LOW_WATERMARK
                else:
                    waits = True
        return not waits and self.force_complete()

    def on_complete(self) -> None:
        for topic_partition, status in self.statuses.items():
            if status.acks_pending:
                status.error = ErrorCode.REQUEST_TIMED_OUT
                if self.is_expired and self.expirations is not None:
                    self.expirations.record(topic_partition)
        self.on_response(self.statuses)

    def __repr__(self) -> str:
        return f"DelayedDeleteRecords(timeout_ms={self.delay_ms}, {self.statuses!r})"
