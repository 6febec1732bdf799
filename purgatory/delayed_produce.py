"""DelayedProduce: a Produce request that waits until what it wrote is safe enough for its acks.

Every partition that it wrote to is settled by one of these; when all are, the request is answered:

A. The partition is no longer here: its error.
B. This broker no longer leads it: its error.
C. This broker leads it, and
   1. something is wrong, too few replicas in sync for one: that error;
   2. enough of them have reached the required offset (the high watermark has): no error.

Which case it is the `check` says: (True, NONE) for C.2, an error for the others, (False, NONE) to wait on. It is
asked again only for what is pending. A partition that failed when it was appended to was never pending and keeps its
error. What still is at the time-out is answered with REQUEST_TIMED_OUT, although the records are in the log and may
yet be replicated.

The required offset is exclusive: one past the last record written. Kafka: DelayedProduce.
"""

from collections.abc import Callable

from mypy_extensions import i64, mypyc_attr

from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from purgatory.delayed_operation import DelayedOperation
from purgatory.expirations import PartitionExpirations


class ProducePartitionStatus:
    """One partition of the request: what it waits for, and its error so far. `result` is the caller's own."""

    __slots__ = ("acks_pending", "error", "required_offset", "result")

    def __init__(self, required_offset: int, error: ErrorCode = ErrorCode.NONE, result: object = None) -> None:
        self.required_offset: i64 = required_offset
        self.error: ErrorCode = error
        self.acks_pending: bool = error == ErrorCode.NONE
        self.result: object = result

    def __repr__(self) -> str:
        state = "pending" if self.acks_pending else self.error.name
        return f"ProducePartitionStatus(required_offset={self.required_offset}, {state})"


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedProduce(DelayedOperation):
    """Calls `on_response(statuses)` once, with every status settled. `timeout_ms` is the request's."""

    __slots__ = ("check", "expirations", "on_response", "statuses")

    def __init__(
        self,
        timeout_ms: int,
        statuses: dict[TopicPartition, ProducePartitionStatus],
        check: Callable[[TopicPartition, int], tuple[bool, ErrorCode]],
        on_response: Callable[[dict[TopicPartition, ProducePartitionStatus]], None],
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
                has_enough, error = self.check(topic_partition, status.required_offset)
                if has_enough or error != ErrorCode.NONE:
                    status.acks_pending = False
                    status.error = error
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
        return f"DelayedProduce(timeout_ms={self.delay_ms}, {self.statuses!r})"
