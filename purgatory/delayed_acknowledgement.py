"""DelayedAcknowledgement: a request that changed partitions and is answered when all of them are settled.

The subclasses DelayedProduce and DelayedDeleteRecords define when a partition is settled. A partition that is still
pending at the timeout is answered with REQUEST_TIMED_OUT, although the change was made and may yet reach all replicas.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from mypy_extensions import i64, mypyc_attr

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory.delayed_operation import DelayedOperation
from odradek.purgatory.expirations import PartitionExpirations


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
