"""DelayedAcknowledgement: a request that changed partitions and is answered when all of them are settled.

A partition that is still pending at the timeout is answered with REQUEST_TIMED_OUT, although the change was made and
may yet reach all replicas. A partition whose change failed was never pending and keeps its error. Required offsets are
exclusive.

**DelayedProduce** waits until the records are replicated as its acks require. A partition is settled in one of these
cases:

A. The partition is no longer here: its error.
B. This broker no longer leads it: its error.
C. This broker leads it, and
   1. there is an error, for example too few in-sync replicas: that error;
   2. enough replicas (the high watermark) have reached the required offset: no error.

`check` returns (True, NONE) for C.2, an error for the other cases, and (False, NONE) while the partition must wait. It
is called again only for pending partitions.

**DelayedDeleteRecords** waits until every replica has deleted the records. A partition is settled when

1. it has failed (no longer hosted here, no longer led here, offline): its error and low watermark -1;
2. its low watermark, the smallest log start offset of its live replicas, has reached the offset: that low watermark.

`check` distinguishes the cases: it returns a low watermark and NONE, or -1 and an error.

Kafka: DelayedProduce, DelayedDeleteRecords.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from mypy_extensions import i64, mypyc_attr

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory.delayed_operation import DelayedOperation
from odradek.purgatory.expirations import PartitionExpirations

INVALID_LOW_WATERMARK: Final = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingPartition:
    """One partition of the request: the offset that it waits for and its current error. A partition that failed at
    once is never pending and keeps its error.
    """

    __slots__ = ("acks_pending", "error", "required_offset")

    def __init__(self, required_offset: int, error: ErrorCode = ErrorCode.NONE) -> None:
        self.required_offset: i64 = required_offset
        self.error: ErrorCode = error
        self.acks_pending: bool = error == ErrorCode.NONE

    def __repr__(self) -> str:
        state = "pending" if self.acks_pending else self.error.name
        return f"{type(self).__name__}(required_offset={self.required_offset}, {state})"


Status = TypeVar("Status", bound=PendingPartition)


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedAcknowledgement(DelayedOperation, Generic[Status]):
    """Calls `on_response(statuses)` once, when every status is settled. `timeout_ms` is the request's timeout."""

    __slots__ = ("expirations", "on_response", "statuses")

    def __init__(
        self,
        timeout_ms: int,
        statuses: dict[TopicPartition, Status],
        on_response: Callable[[dict[TopicPartition, Status]], None],
        expirations: PartitionExpirations | None,
    ) -> None:
        super().__init__(timeout_ms)
        self.statuses = statuses
        self.on_response = on_response
        self.expirations = expirations

    def settle(self, topic_partition: TopicPartition, status: Status) -> None:
        """Checks a pending partition; if it has reached its offset or failed, it is no longer pending."""
        raise NotImplementedError

    def try_complete(self) -> bool:
        waits = False
        for topic_partition, status in self.statuses.items():
            if status.acks_pending:
                self.settle(topic_partition, status)
                if status.acks_pending:
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
        return f"{type(self).__name__}(timeout_ms={self.delay_ms}, {self.statuses!r})"


class ProducePartitionStatus(PendingPartition):
    """`required_offset` is exclusive; `result` belongs to the caller."""

    __slots__ = ("result",)

    def __init__(self, required_offset: int, error: ErrorCode = ErrorCode.NONE, result: object = None) -> None:
        super().__init__(required_offset, error)
        self.result: object = result


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedProduce(DelayedAcknowledgement[ProducePartitionStatus]):
    """`check(partition, required offset)` returns whether enough replicas have the offset, and the error."""

    __slots__ = ("check",)

    def __init__(
        self,
        timeout_ms: int,
        statuses: dict[TopicPartition, ProducePartitionStatus],
        check: Callable[[TopicPartition, int], tuple[bool, ErrorCode]],
        on_response: Callable[[dict[TopicPartition, ProducePartitionStatus]], None],
        expirations: PartitionExpirations | None = None,
    ) -> None:
        super().__init__(timeout_ms, statuses, on_response, expirations)
        self.check = check

    def settle(self, topic_partition: TopicPartition, status: ProducePartitionStatus) -> None:
        has_enough, error = self.check(topic_partition, status.required_offset)
        if has_enough or error != ErrorCode.NONE:
            status.acks_pending = False
            status.error = error


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
