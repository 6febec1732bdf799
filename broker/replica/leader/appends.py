"""Produce requests: append to each partition, then respond, or wait until the append is as safe as acks requires.

acks=0 and acks=1 are answered as soon as the leader has appended; acks=all when the high watermark has passed the
batch. If `flush.messages` requires the append on disk, acks=1 waits for the flushed offset; acks=all does so implicitly
(partition.py, D). Partitions fail independently; each has its own result. Batches that take longer than one turn of the
event loop are left to large_appends.py.

Source: Kafka's ReplicaManager.appendRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.broker.metadata.metadata_cache import INTERNAL_TOPICS
from odradek.broker.replica.leader.append_result import UNKNOWN, PartitionAppendResult
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
VALID_ACKS = frozenset({-1, 0, 1})

AppendResults = dict[TopicPartition, PartitionAppendResult]
OnAppended = Callable[[AppendResults], object]

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


class UnfinishedAppends:
    """The batches that do not fit one turn of the event loop: `entries`, in their order. `results` are those of the
    batches before them; `allowance` is the rest of the request's allowance.
    """

    __slots__ = ("acks", "allowance", "api_version", "entries", "results", "timeout_ms")

    def __init__(
        self,
        timeout_ms: int,
        acks: int,
        api_version: int,
        entries: dict[TopicPartition, bytes],
        results: AppendResults,
        allowance: AppendAllowance,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.acks = acks
        self.api_version = api_version
        self.entries = entries
        self.results = results
        self.allowance = allowance


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
        on_log_failed: Callable[[Partition], None],
    ) -> None:
        self._partitions = partitions
        self._wakeups = wakeups
        self._flusher = flusher
        self._max_inflated_bytes = max_inflated_bytes
        self._on_log_failed = on_log_failed
        self.expirations: PartitionExpirations = PartitionExpirations()

    def append(
        self,
        timeout_ms: int,
        acks: int,
        entries: Mapping[TopicPartition, bytes],
        api_version: int,
        on_response: OnAppended,
        *,
        internal_topics_allowed: bool = False,
    ) -> AppendResults | DelayedProduce | UnfinishedAppends:
        """Returns the results if they are available now; or the parked operation, which calls `on_response` once
        (possibly before this method returns); or the batches to append in further turns, before `await_all`.
        """
        if acks not in VALID_ACKS:
            return {key: PartitionAppendResult(ErrorCode.INVALID_REQUIRED_ACKS) for key in entries}
        allowance = AppendAllowance(self._max_inflated_bytes)
        results: AppendResults = {}
        unfinished: dict[TopicPartition, bytes] | None = None
        for key, records in entries.items():
            if key.topic in INTERNAL_TOPICS and not internal_topics_allowed and key in self._partitions:
                results[key] = PartitionAppendResult(ErrorCode.INVALID_TOPIC_EXCEPTION)
                continue
            if unfinished is not None:
                unfinished[key] = records
                continue
            try:
                results[key] = self.append_one(key, records, acks, api_version, allowance=allowance)
            except TooMuchForOneTurn:
                unfinished = {key: records}
        if unfinished is not None:
            return UnfinishedAppends(timeout_ms, acks, api_version, unfinished, results, allowance)
        return self.await_all(timeout_ms, acks, results, on_response)

    def await_all(
        self, timeout_ms: int, acks: int, results: AppendResults, on_response: OnAppended
    ) -> AppendResults | DelayedProduce:
        """Returns the results if none of them has to wait, otherwise the parked operation."""
        for result in results.values():
            if result.error is ErrorCode.NONE and (acks == ACKS_ALL or (acks == 1 and result.flush_required)):
                if self._all_safe(results, acks):
                    return results
                return self._park(timeout_ms, acks, results, on_response)
        return results

    def _all_safe(self, results: AppendResults, acks: int) -> bool:
        """Whether all successful appends are already as safe as acks requires."""
        for key, result in results.items():
            if result.error is ErrorCode.NONE and not self.is_safe(key, result, acks):
                return False
        return True

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
        self._park(timeout_ms, acks, {key: result}, lambda results: on_settled(results[key].error))

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
            partition = self._partitions.find(key)
            stats = partition.stats
            stats.produce_requests += 1
            log = partition.log
            old_high_watermark = log.high_watermark
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
            if log.high_watermark != old_high_watermark:
                self._wakeups.watermark_moved(partition)
            else:
                self._wakeups.log_grew(partition)
        return PartitionAppendResult(
            base_offset=info.first_offset,
            last_offset=info.last_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
            flush_required=log.flushed_offset <= info.last_offset < partition.required_flush_offset,
            leadership=partition.leadership,
        )

    def failed(self, key: TopicPartition, error: ProtocolError) -> PartitionAppendResult:
        """The result of a refused batch."""
        log_start_offset = -1
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            failed = self._partitions.get(key)
            if failed is not None:
                self._on_log_failed(failed)
        if error.code not in _WITHOUT_LOG_START_OFFSET and not isinstance(error, UnfitRecords):
            partition = self._partitions.get(key)
            if partition is not None:
                partition.stats.failed_produce_requests += 1
                log_start_offset = partition.log.log_start_offset
        return PartitionAppendResult(
            error.code,
            log_start_offset=log_start_offset,
            record_errors=getattr(error, "record_errors", ()),
            error_message=error.error_message,
        )

    def _park(self, timeout_ms: int, acks: int, results: AppendResults, on_response: OnAppended) -> DelayedProduce:
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
            partition = self._partitions.find(key)
        except ProtocolError as error:
            return False, error.code
        if result.leadership != partition.leadership and result.leadership != UNKNOWN:
            return False, ErrorCode.NOT_LEADER_OR_FOLLOWER
        required_offset = result.required_offset
        return partition.reached(required_offset) if acks == ACKS_ALL else partition.flushed(required_offset)
