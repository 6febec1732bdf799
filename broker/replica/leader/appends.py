"""Appends single batches as the leader, and waits until they are as safe as acks requires.

The batches are those of clients (`ClientAppends`, and large_appends.py) and of this broker's coordinators. With acks=0
and acks=1 an append is safe at once, with acks=all when the high watermark has passed it. If `flush.messages` requires
an append on disk, acks=1 waits for the flushed offset; acks=all does so implicitly (partition.py, D).

Source: Kafka's ReplicaManager.appendRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from odradek.broker.replica.partition.flush_scheduler import FlushScheduler
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.broker.replica.partition.wakeups import Wakeups
from odradek.protocol.append_allowance import AppendAllowance, TooMuchForOneTurn
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.leader_assignment import ValidatedBatch
from odradek.protocol.plain_batch import PlainBatch
from odradek.protocol.record_validation import FIRST_VERSION_WITH_ZSTD, AppendOrigin
from odradek.protocol.records import UnfitRecords
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import DelayedProduce, PartitionExpirations, ProducePartitionStatus

if TYPE_CHECKING:
    from odradek.broker.replica.partition.partition import Partition

ACKS_ALL = -1
UNKNOWN = -1

_WITHOUT_LOG_START_OFFSET = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)


class PartitionAppendResult:
    """The result of an append to one partition: the error, or where the batch was appended.

    `base_offset` and `last_offset` are inclusive, `log_append_time_ms` is -1 with CreateTime, `log_start_offset` is -1
    if unknown. `record_errors` are (index in the batch, message or None) of the invalid records (KIP-467). While the
    request waits, `error` is the code that it returns on timeout. `leadership` is the partition's at the append, -1 if
    the wait does not depend on it.
    """

    __slots__ = (
        "base_offset",
        "error",
        "error_message",
        "flush_required",
        "last_offset",
        "leadership",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        error: ErrorCode = ErrorCode.NONE,
        base_offset: int = UNKNOWN,
        last_offset: int = UNKNOWN,
        log_append_time_ms: int = UNKNOWN,
        log_start_offset: int = UNKNOWN,
        record_errors: Sequence[tuple[int, str | None]] = (),
        error_message: str | None = None,
        flush_required: bool = False,
        leadership: int = UNKNOWN,
    ) -> None:
        self.error = error
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors = record_errors
        self.error_message = error_message
        self.flush_required = flush_required
        self.leadership = leadership

    @property
    def required_offset(self) -> int:
        """The offset (exclusive) that must be replicated, or flushed, before this append is acknowledged."""
        return self.last_offset + 1


AppendResults = dict[TopicPartition, PartitionAppendResult]
OnAppended = Callable[[AppendResults], object]


class ClientAppends:
    """The appends of one client's request. `entries` are the batches that have not been appended yet, in their order,
    and `results` those of the others. `allowance` is the rest of the request's allowance.
    """

    __slots__ = ("acks", "allowance", "api_version", "entries", "results")

    def __init__(
        self, acks: int, api_version: int, entries: dict[TopicPartition, bytes], allowance: AppendAllowance
    ) -> None:
        self.acks = acks
        self.api_version = api_version
        self.entries = entries
        self.results: AppendResults = {}
        self.allowance = allowance

    def refusal(self, key: TopicPartition, records: bytes) -> PartitionAppendResult | None:
        """Returns why a batch may not be appended in this turn, regardless of its records; None if it may."""
        raise NotImplementedError


class Appends:
    """`max_inflated_bytes`: the maximum decompressed size of all batches of one request together. `on_log_failed` is
    called when a log could not be written.
    """

    def __init__(
        self,
        partitions: HostedPartitions,
        wakeups: Wakeups,
        flusher: FlushScheduler,
        max_inflated_bytes: int,
        on_log_failed: Callable[[Partition, ProtocolError], None],
    ) -> None:
        self.partitions = partitions
        self._wakeups = wakeups
        self._flusher = flusher
        self.max_inflated_bytes = max_inflated_bytes
        self._on_log_failed = on_log_failed
        self.expirations: PartitionExpirations = PartitionExpirations()

    def must_wait(self, results: AppendResults, acks: int) -> bool:
        """Whether a successful append is not yet as safe as acks requires."""
        for key, result in results.items():
            if result.error is ErrorCode.NONE and not self.is_safe(key, result, acks):
                return True
        return False

    def append_as_coordinator(
        self,
        key: TopicPartition,
        records: bytes | PlainBatch,
        acks: int = ACKS_ALL,
        origin: AppendOrigin = AppendOrigin.COORDINATOR,
    ) -> PartitionAppendResult:
        """Appends one batch of a coordinator of this broker, without waiting; `await_acks` waits until it is safe."""
        return self.append_one(key, records, acks, FIRST_VERSION_WITH_ZSTD, origin)

    def await_acks(
        self,
        key: TopicPartition,
        result: PartitionAppendResult,
        on_settled: Callable[[ErrorCode], object],
        timeout_ms: int,
        acks: int = ACKS_ALL,
    ) -> None:
        """Calls `on_settled` once, possibly before returning: with NONE when a successful append is as safe as acks
        requires.
        """
        if self.is_safe(key, result, acks):
            on_settled(ErrorCode.NONE)
            return
        self.park(timeout_ms, acks, {key: result}, lambda results: on_settled(results[key].error))

    def is_safe(self, key: TopicPartition, result: PartitionAppendResult, acks: int = ACKS_ALL) -> bool:
        """Whether a successful append is already as safe as acks requires. On a single node it nearly always is."""
        if acks == ACKS_ALL or (acks == 1 and result.flush_required):
            return self._progress(key, result, acks) == (True, ErrorCode.NONE)
        return True

    def append_one(
        self,
        key: TopicPartition,
        records: bytes | PlainBatch | ValidatedBatch,
        acks: int,
        api_version: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        allowance: AppendAllowance | None = None,
    ) -> PartitionAppendResult:
        """Appends one batch, without waiting. Raises TooMuchForOneTurn, with nothing changed, if the batch exceeds the
        allowance.
        """
        if allowance is not None and allowance.is_used_up:
            raise TooMuchForOneTurn
        try:
            partition = self.partitions.find(key)
            stats = partition.stats
            stats.produce_requests += 1
            log = partition.log
            old_high_watermark = log.state.high_watermark
            info = partition.append_as_leader(records, acks, api_version, origin, allowance)
        except ProtocolError as error:
            if allowance is not None:
                assert isinstance(records, bytes)  # a client's batch
                allowance.refused(len(records))
            return self.failed(key, error)
        except TooMuchForOneTurn:
            stats.produce_requests -= 1
            raise
        if not info.duplicate:
            stats.bytes_in += info.size_in_bytes
            stats.messages_in += info.record_count
            self._flusher.appended(partition, required=info.flush_required)
        if log.state.high_watermark != old_high_watermark:
            self._wakeups.watermark_moved(partition)
        elif not info.duplicate:
            self._wakeups.log_grew(partition)
        return PartitionAppendResult(
            base_offset=info.first_offset,
            last_offset=info.last_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
            flush_required=log.state.recovery_point <= info.last_offset < partition.required_flush_offset,
            leadership=partition.leadership,
        )

    def failed(self, key: TopicPartition, error: ProtocolError) -> PartitionAppendResult:
        """The result of a refused batch."""
        log_start_offset = -1
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            failed = self.partitions.get(key)
            if failed is not None:
                self._on_log_failed(failed, error)
        if error.code not in _WITHOUT_LOG_START_OFFSET and not isinstance(error, UnfitRecords):
            partition = self.partitions.get(key)
            if partition is not None:
                partition.stats.failed_produce_requests += 1
                log_start_offset = partition.log.state.log_start_offset
        return PartitionAppendResult(
            error.code,
            log_start_offset=log_start_offset,
            record_errors=getattr(error, "record_errors", ()),
            error_message=error.error_message,
        )

    def park(self, timeout_ms: int, acks: int, results: AppendResults, on_response: OnAppended) -> DelayedProduce:
        """Waits until all are safe or have failed. Calls `on_response` once, possibly before returning."""

        def answer(statuses: dict[TopicPartition, ProducePartitionStatus]) -> None:
            for key, status in statuses.items():
                results[key].error = status.error
            on_response(results)

        operation = DelayedProduce(
            timeout_ms,
            {key: ProducePartitionStatus(result.required_offset, result.error) for key, result in results.items()},
            lambda key, _: self._progress(key, results[key], acks),
            answer,
            self.expirations,
        )
        self._wakeups.produce.try_complete_else_watch(operation, tuple(results))
        return operation

    def _progress(self, key: TopicPartition, result: PartitionAppendResult, acks: int) -> tuple[bool, ErrorCode]:
        """Whether an append is as safe as acks requires, and the resulting error code. If the broker has lost the
        leadership since, the log may have been truncated, and have other records at these offsets, even if it leads
        again.
        """
        try:
            partition = self.partitions.find(key)
        except ProtocolError as error:
            return False, error.code
        if result.leadership != partition.leadership and result.leadership != UNKNOWN:
            return False, ErrorCode.NOT_LEADER_OR_FOLLOWER
        required_offset = result.required_offset
        return partition.reached(required_offset) if acks == ACKS_ALL else partition.flushed(required_offset)
