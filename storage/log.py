"""One partition's log: segments in order, what is known of its producers and leader epochs, and how far it is
durable.

Offsets: `log_start_offset` <= `high_watermark` <= `log_end_offset`, and `recovery_point` <= `log_end_offset`: below
it all is on the disk. Everything here is synchronous and runs on one thread; what takes long is handed out as jobs
(FlushJob, ColdRead, removals).

The parts: log_segments, log_append (writing), log_read (reading), log_search (by time), flushing, retention,
recovery (opening), closing.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import structlog

from odradek.protocol.append_allowance import AppendAllowance
from odradek.protocol.leader_assignment import ValidatedBatch
from odradek.protocol.plain_batch import PlainBatch
from odradek.protocol.record_validation import FIRST_VERSION_WITH_ZSTD, AppendOrigin, BatchValidation
from odradek.protocol.records import MAX_DECOMPRESSED_BYTES
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage import flushing, log_append, log_read, log_search, retention
from odradek.storage.checkpoint import LEADER_EPOCH
from odradek.storage.closing import LogClosing
from odradek.storage.files import Files
from odradek.storage.flushing import FlushJob
from odradek.storage.leader_epochs import LeaderEpochs
from odradek.storage.log_append import LogAppendInfo
from odradek.storage.log_config import LogConfig
from odradek.storage.log_offsets import EpochEndOffset, LogOffsetMetadata
from odradek.storage.log_read import FetchData
from odradek.storage.log_segments import LogSegments
from odradek.storage.producer_snapshots import ProducerSnapshots
from odradek.storage.producer_state import PRODUCER_ID_EXPIRATION_MS, ProducerState
from odradek.storage.segment import LogSegment
from odradek.storage.segment_cache import SegmentCache
from odradek.storage.tail import Tails
from odradek.storage.throttled_lines import ThrottledLines
from odradek.storage.topic_identity import claim_folder
from odradek.storage.transaction_index import AbortedTransaction
from odradek.timer.clock import Clock

if TYPE_CHECKING:
    from odradek.storage.write_ahead import WrittenAhead

_log = structlog.get_logger(__name__)


class Log:
    """Made by recovery.open_log. `directory` is the partition's folder; `segments` ascend, the last is active."""

    __slots__ = (
        "_high_watermark_metadata",
        "_unstable_metadata",
        "ahead",
        "base_offsets",
        "being_cleaned",
        "cache",
        "cleaned_offset",
        "clock",
        "closed",
        "config",
        "directory",
        "directory_changed",
        "failure",
        "files",
        "generation",
        "high_watermark",
        "last_flush_ms",
        "leader_epochs",
        "lines",
        "log_end_offset",
        "log_start_offset",
        "max_decompressed_bytes",
        "producer_state",
        "random",
        "recovery_point",
        "removals",
        "segments",
        "snapshots",
        "tails",
        "topic_id",
        "topic_partition",
        "unsynced_segments",
        "use",
        "writable",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        clock: Clock,
        *,
        random_source: random.Random | None = None,
        cache: SegmentCache | None = None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self.files = files
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.clock = clock
        self.random = random_source if random_source is not None else random.Random(0)
        self.cache = cache if cache is not None else SegmentCache()
        self.tails: Tails | None = self.cache.tails
        self.max_decompressed_bytes = max_decompressed_bytes
        self.topic_id: uuid.UUID | None = None
        self.segments = LogSegments(self.cache)
        self.base_offsets = self.segments.base_offsets
        self.unsynced_segments = self.segments.unsynced
        self.use = self.segments.use
        self.producer_state = ProducerState(producer_id_expiration_ms)
        self.snapshots = ProducerSnapshots(files, directory)
        self.leader_epochs = LeaderEpochs(files, f"{directory}/{LEADER_EPOCH}")
        self.log_start_offset: int = 0
        self.log_end_offset: int = 0
        self.high_watermark = 0
        self._high_watermark_metadata: LogOffsetMetadata | None = None
        self._unstable_metadata: LogOffsetMetadata | None = None
        self.recovery_point = 0
        self.directory_changed = False
        self.last_flush_ms = clock.now_ms()
        self.removals: list[tuple[int, str]] = []  # (due by the monotonic clock, path)
        self.generation = 0
        self.cleaned_offset: int | None = None  # everything below has been through the cleaner
        self.being_cleaned = False
        self.ahead: WrittenAhead | None = None  # of a large batch, behind the end
        self.writable = True
        self.closed = False  # after `close` everything is on the disk, indexes too
        self.failure: OSError | None = None
        self.lines: ThrottledLines = ThrottledLines(clock)

    def __repr__(self) -> str:
        offsets = f"{self.log_start_offset}-{self.log_end_offset}, high_watermark={self.high_watermark}"
        return f"Log({self.topic_partition}, {offsets})"

    # ---- segments

    @property
    def active_segment(self) -> LogSegment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        """Bytes of records in all segments."""
        return self.segments.size_in_bytes

    def new_segment(self, base_offset: int) -> LogSegment:
        config = self.config
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        roll_jitter_ms = self.random.randrange(jitter) if jitter > 0 else 0
        now_ms = self.clock.wall_ms()
        return LogSegment.create(self.files, self.directory, base_offset, config, now_ms, roll_jitter_ms)

    def roll(self) -> LogSegment:
        """Begins a new segment at the log's end and returns it; an active one that is empty there already stays.

        On OSError the log is as before. What cannot be written of the old segment's indexes or the producer
        snapshot does not count: the one is written at the flush, the other is not needed.
        """
        return log_append.roll(self)

    # ---- writing

    def append_as_leader(
        self,
        records: bytes | PlainBatch | ValidatedBatch,
        leader_epoch: int,
        *,
        api_version: int = FIRST_VERSION_WITH_ZSTD,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        allowance: AppendAllowance | None = None,
    ) -> LogAppendInfo:
        """Appends the one batch of a partition's part of a Produce request; see log_append for what it promises.

        `api_version` is that of the request; the broker's own appends need none. A PlainBatch is a coordinator's and
        nothing in it is looked at, but its size. A ValidatedBatch is what came of `validation`. Raises
        TooMuchForOneTurn where checking the batch exceeds the `allowance`; nothing has happened then. Raises
        ProtocolError:
        CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
        UNSUPPORTED_COMPRESSION_TYPE, UNSUPPORTED_VERSION, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
        INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        return log_append.append_as_leader(self, records, leader_epoch, api_version, origin, allowance)

    def validation(self, records: bytes, leader_epoch: int, api_version: int) -> BatchValidation:
        """The check of a client's batch by the settings of now, to be done piece by piece. Raises ProtocolError."""
        now_ms = self.clock.wall_ms()
        return log_append.validation(self, records, leader_epoch, api_version, AppendOrigin.CLIENT, now_ms)

    def mark_torn(self) -> None:
        """A write has failed: its torn tail is cut off now if that works, else before the next append."""
        self.ahead = None
        self.writable = False
        try:
            self.make_writable()
        except OSError as error:
            kind = ("torn_tail_stays", error.errno)
            self.lines.tell(_log.error, kind, "torn_tail_stays", partition=str(self.topic_partition), reason=str(error))

    def make_writable(self) -> None:
        """Raises the OSError that stands against appending."""
        if self.failure is not None:
            raise self.failure
        self.active_segment.cut_torn_tail(self.log_end_offset)
        self.writable = True

    def fail(self, error: OSError) -> None:
        """No more appends until the log is opened again: it is not known what of it is on the disk."""
        self.failure = error
        self.writable = False

    def assign_epoch_start_offset(self, leader_epoch: int) -> None:
        """A leader begins its epoch at the log's end. Raises KAFKA_STORAGE_ERROR."""
        try:
            self.leader_epochs.assign(leader_epoch, self.log_end_offset, may_wait=True)
        except OSError as error:
            raise log_append.storage_error(self, "leader_epoch_not_written", error) from error

    def assign_topic_id(self, topic_id: uuid.UUID, *, sync: bool = True) -> None:
        """The log is this topic's from now on. Raises INCONSISTENT_TOPIC_ID when it is another's of that name."""
        claim_folder(self.files, self.directory, self.topic_partition, self.topic_id, topic_id, sync=sync)
        self.topic_id = topic_id

    # ---- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper: LogOffsetMetadata | None = None,
        min_one_message: bool = True,
        may_block: bool = True,
        sendable: bool = False,
    ) -> FetchData:
        """Records from the batch that holds `offset`, below `upper` (the log's end if None), of one segment.

        At most `max_bytes`, but at least the first batch with `min_one_message`. `may_block=False`, `sendable`: see
        log_read. Raises OFFSET_OUT_OF_RANGE and KAFKA_STORAGE_ERROR.
        """
        return log_read.read(self, offset, max_bytes, upper, min_one_message, may_block, sendable)

    def aborted_transactions(self, data: FetchData) -> list[AbortedTransaction]:
        """The aborted transactions among the records of a read."""
        return log_read.aborted_transactions(self, data)

    def offset_metadata(self, offset: int, *, may_block: bool = True) -> LogOffsetMetadata:
        """Where the offset lies; the offset alone when it is outside of the log."""
        if offset == self.log_end_offset:
            return self.log_end_offset_metadata
        if not self.log_start_offset <= offset <= self.log_end_offset:
            return LogOffsetMetadata(offset)
        located = log_read.locate(self, offset, may_block)
        if located is None:
            return self.log_end_offset_metadata
        return LogOffsetMetadata(offset, located[0].base_offset, located[1])

    def offset_for_timestamp(self, timestamp: int) -> log_search.Search:
        """The first record at or after the timestamp (ms); -1 the end, -2 the start, -3 the record with the largest
        timestamp. A generator, which may yield before it returns that.

        None when there is no such record. -1 means the log's end: callers that bound it by an isolation level do so
        themselves. Raises ProtocolError, KAFKA_STORAGE_ERROR or INVALID_RECORD.
        """
        return log_search.offset_for_timestamp(self, timestamp)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """The largest known epoch not above the one asked for, and the offset where it ends; (-1, -1) when unknown."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # ---- offsets

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        active = self.segments[-1]
        return LogOffsetMetadata(self.log_end_offset, active.base_offset, active.size)

    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata:
        if self.high_watermark == self.log_end_offset:
            return self.log_end_offset_metadata
        known = self._high_watermark_metadata = self._located(self._high_watermark_metadata, self.high_watermark)
        return known

    def _located(self, known: LogOffsetMetadata | None, offset: int) -> LogOffsetMetadata:
        """Where the offset lies, which is looked up where it is not the one that is known."""
        if known is None or known.message_offset != offset or known.message_offset_only:
            return self.offset_metadata(offset)
        return known

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark, within the log's bounds; returns what it is now."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        elif offset < self.log_start_offset:
            offset = self.log_start_offset
        self.high_watermark = offset
        if self.producer_state.unreplicated:
            self.producer_state.forget_replicated(offset)
        return offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest transaction that is not decided for everyone; at most the high watermark."""
        unstable = self.producer_state.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    @property
    def last_stable_offset_metadata(self) -> LogOffsetMetadata:
        offset = self.last_stable_offset
        if offset == self.high_watermark:
            return self.high_watermark_metadata
        known = self._unstable_metadata = self._located(self._unstable_metadata, offset)
        return known

    def forget_positions(self) -> None:
        """Offsets lie elsewhere now: segments were deleted or cut."""
        self._high_watermark_metadata = None
        self._unstable_metadata = None

    @property
    def flushed_offset(self) -> int:
        """Everything below is on the disk."""
        return self.recovery_point

    @property
    def safe_recovery_point(self) -> int:
        """The recovery point to checkpoint: segments whose indexes are not synced have to be read again after a
        crash.

        That is the active one too, and it must not look as if it lay before the point when the next one begins
        there.
        """
        unsynced = min((segment.base_offset for segment in self.unsynced_segments), default=self.recovery_point)
        offset = min(self.recovery_point, unsynced)
        if not self.closed and offset == self.log_end_offset > self.base_offsets[-1]:
            return offset - 1
        return offset

    # ---- flushing

    def begin_flush(self, end_offset: int | None = None) -> FlushJob | None:
        """On the loop: what is to be synced, or None when everything is. Raises KAFKA_STORAGE_ERROR."""
        try:
            return flushing.begin_flush(self, end_offset)
        except OSError as error:
            raise log_append.storage_error(self, "flush_not_begun", error) from error

    def finish_flush(self, job: FlushJob) -> None:
        """On the loop, after job.run(): the recovery point moves. Raises KAFKA_STORAGE_ERROR when the job failed."""
        flushing.finish_flush(self, job)

    def flush(self) -> None:
        """All of it, inline."""
        job = self.begin_flush()
        if job is not None:
            job.run()
            self.finish_flush(job)

    # ---- what grows old

    def delete_records_before(self, offset: int) -> int:
        """Moves the log's start, at most to the high watermark (-1), and returns it. Raises OFFSET_OUT_OF_RANGE."""
        return retention.delete_records_before(self, offset)

    def retention_steps(self, now_ms: int) -> Iterator[int]:
        """Deletes the segments that retention no longer keeps, some at a time; `now_ms` is the wall clock. Yields how
        many went after each step, in between the log may change.

        Their files are renamed and wait in `removals` for file.delete.delay.ms. Raises KAFKA_STORAGE_ERROR.
        """
        return retention.retention_steps(self, now_ms)

    def apply_retention(self, now_ms: int) -> int:
        """All of `retention_steps` at once; returns how many segments went."""
        return sum(self.retention_steps(now_ms))

    def truncate_to(self, offset: int) -> bool:
        """Cuts the log at `offset`; False when it ends before. Raises KAFKA_STORAGE_ERROR. See LogManager.truncate."""
        try:
            return retention.truncate_to(self, offset)
        except OSError as error:
            raise log_append.storage_error(self, "truncation_failed", error) from error

    def update_config(self, config: LogConfig) -> None:
        """New settings take effect with the next append; a new size of index files with the next segment."""
        self.config = config
        for segment in self.segments:
            segment.index_interval_bytes = config.index_interval_bytes

    def relocate(self, directory: str) -> None:
        """The log's files, as they are, are in another folder now. A flush that is under way does not count."""
        self.directory = directory
        self.generation += 1
        self.removals.clear()
        self.directory_changed = True
        self.snapshots.relocate(directory)
        self.leader_epochs.path = f"{directory}/{LEADER_EPOCH}"
        for segment in self.segments:
            segment.relocate(directory)

    def close(self) -> None:
        """Flushes, snapshots the producers, closes all files. Raises KAFKA_STORAGE_ERROR when they are closed."""
        closing = LogClosing(self)
        closing.run()
        closing.finish()

    def close_files(self) -> None:
        """Closes all files as they are."""
        for segment in self.segments:
            self.cache.forget(segment)
            segment.close_files()
