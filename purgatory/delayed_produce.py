"""DelayedProduce: a Produce request that waits until its records are replicated as its acks require.

A partition that was written to is settled in one of these cases; the request is answered when all are settled:

A. The partition is no longer here: its error.
B. This broker no longer leads it: its error.
C. This broker leads it, and
   1. there is an error, for example too few in-sync replicas: that error;
   2. enough replicas (the high watermark) have reached the required offset: no error.

`check` returns (True, NONE) for C.2, an error for the other cases, and (False, NONE) while the partition must wait. It
is called again only for pending partitions. A partition whose append failed was never pending and keeps its error. A
partition that is still pending at the timeout is answered with REQUEST_TIMED_OUT, although its records are in the log
and may yet be replicated.

The required offset is exclusive: one past the last record written. Kafka: DelayedProduce.
"""

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory.delayed_acknowledgement import DelayedAcknowledgement, PendingPartition
from odradek.purgatory.expirations import PartitionExpirations


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
