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

from mypy_extensions import mypyc_attr

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory.delayed_acknowledgement import DelayedAcknowledgement, PendingPartition
from odradek.purgatory.expirations import PartitionExpirations


class ProducePartitionStatus(PendingPartition):
    """`required_offset` is exclusive; `result` is the caller's own."""

    __slots__ = ("result",)

    def __init__(self, required_offset: int, error: ErrorCode = ErrorCode.NONE, result: object = None) -> None:
        super().__init__(required_offset, error)
        self.result: object = result


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedProduce(DelayedAcknowledgement[ProducePartitionStatus]):
    """`check(partition, required offset)` says which case a partition is."""

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
