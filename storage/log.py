"""One partition's log, composed of its parts: the one face that other rooms know.

Everything here is synchronous and runs on one thread; what takes long is handed out as jobs (FlushJob, ColdRead,
removals).

What is known: log_state (the offsets), log_folder, log_segments, log_producers, leader_epochs. What is done with it:
log_append and log_writer, log_read and log_positions, log_search (by time), flushing, log_start and retention,
truncation, closing. None of them knows the log; recovery opens one.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator

from odradek.protocol.append_allowance import AppendAllowance
from odradek.protocol.leader_assignment import ValidatedBatch
from odradek.protocol.plain_batch import PlainBatch
from odradek.protocol.record_validation import FIRST_VERSION_WITH_ZSTD, AppendOrigin, BatchValidation
from odradek.protocol.records import MAX_DECOMPRESSED_BYTES
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import LEADER_EPOCH
from odradek.storage.closing import LogClosing
from odradek.storage.files import Files
from odradek.storage.flushing import FlushJob, LogFlusher
from odradek.storage.leader_epochs import LeaderEpochs
from odradek.storage.log_append import LogAppender, LogAppendInfo
from odradek.storage.log_config import LogConfig
from odradek.storage.log_folder import LogFolder
from odradek.storage.log_offsets import EpochEndOffset, LogOffsetMetadata
from odradek.storage.log_positions import LogPositions
from odradek.storage.log_producers import LogProducers
from odradek.storage.log_read import FetchData, RecordReader
from odradek.storage.log_search import Search, TimeSearch
from odradek.storage.log_segments import LogSegments
from odradek.storage.log_start import LogStart
from odradek.storage.log_state import LogState
from odradek.storage.log_writer import LogWriter
from odradek.storage.producer_snapshots import ProducerSnapshots
from odradek.storage.producer_state import PRODUCER_ID_EXPIRATION_MS, ProducerState
from odradek.storage.retention import SEGMENTS_PER_STEP, Retention
from odradek.storage.segment import LogSegment
from odradek.storage.segment_cache import SegmentCache
from odradek.storage.tail import Tails
from odradek.storage.transaction_index import AbortedTransaction
from odradek.storage.truncation import Truncation
from odradek.storage.write_ahead import WrittenAhead
from odradek.timer.clock import Clock


class Log:
    """Made by recovery.open_log. `state` has the offsets, and their promises; `segments` ascend, the last is active."""

    __slots__ = (
        "_appender",
        "_flusher",
        "_reader",
        "_retention",
        "_search",
        "_start",
        "_truncation",
        "_writer",
        "base_offsets",
        "clock",
        "config",
        "files",
        "folder",
        "leader_epochs",
        "max_decompressed_bytes",
        "positions",
        "producer_state",
        "producers",
        "segments",
        "snapshots",
        "state",
        "tails",
        "topic_partition",
        "unsynced_segments",
        "use",
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
        random_source = random_source if random_source is not None else random.Random(0)
        cache = cache if cache is not None else SegmentCache()
        self.files = files
        self.topic_partition = topic_partition
        self.config = config
        self.clock = clock
        self.max_decompressed_bytes = max_decompressed_bytes
        self.tails: Tails | None = cache.tails

        self.state = state = LogState()
        self.folder = folder = LogFolder(files, directory, topic_partition, clock)
        self.segments = segments = LogSegments(folder, cache, random_source)
        self.base_offsets: list[int] = segments.base_offsets
        self.unsynced_segments: list[LogSegment] = segments.unsynced
        self.use = segments.use
        self.producers = producers = LogProducers(files, directory, producer_id_expiration_ms)
        self.producer_state: ProducerState = producers.state
        self.snapshots: ProducerSnapshots = producers.snapshots
        self.leader_epochs = epochs = LeaderEpochs(files, f"{directory}/{LEADER_EPOCH}")

        self.positions = positions = LogPositions(state, segments)
        self._writer = writer = LogWriter(state, folder, segments, producers, epochs, cache.tails)
        self._appender = LogAppender(state, folder, producers.state, writer, max_decompressed_bytes)
        self._reader = RecordReader(state, folder, segments, positions)
        self._search = TimeSearch(state, folder, segments, epochs)
        self._flusher = LogFlusher(state, folder, segments, producers.snapshots)
        self._start = start = LogStart(state, folder, positions, producers.state, epochs)
        self._retention = Retention(state, folder, segments, producers.snapshots, start, writer)
        self._truncation = Truncation(state, folder, segments, positions, producers, epochs)

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.state})"

    # ---- segments

    @property
    def active_segment(self) -> LogSegment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        """Bytes of records in all segments."""
        return self.segments.size_in_bytes

    def roll(self) -> LogSegment:
        """Begins a new segment at the log's end; see LogWriter."""
        return self._writer.roll(self.config)

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

        `api_version` is that of the request; the broker's own appends need none. A PlainBatch is a coordinator's, and
        only its size is checked. A ValidatedBatch is the result of `validation`. Raises TooMuchForOneTurn where
        checking the batch exceeds the `allowance`; nothing has happened then. Raises ProtocolError: CORRUPT_MESSAGE,
        INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE,
        UNSUPPORTED_VERSION, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        return self._appender.append(records, self.config, leader_epoch, api_version, origin, allowance)

    def validation(self, records: bytes, leader_epoch: int, api_version: int) -> BatchValidation:
        """The check of a client's batch by the settings of now, to be done piece by piece. Raises ProtocolError."""
        now_ms = self.clock.wall_ms()
        return self._appender.validation(records, self.config, leader_epoch, api_version, AppendOrigin.CLIENT, now_ms)

    def write_ahead(self, batch: ValidatedBatch) -> Iterator[None]:
        """Writes the records of a large batch that is to be appended right behind the last step (see write_ahead); in
        between the log may change. Raises KAFKA_STORAGE_ERROR.
        """
        return self._writer.write_ahead(batch, self.config)

    def give_up_ahead(self) -> None:
        """What was written ahead and is not appended by now was in vain: it is cut off before the next append."""
        self._writer.give_up_ahead()

    @property
    def ahead(self) -> WrittenAhead | None:
        """What is written ahead, until the next append."""
        return self._writer.ahead

    @property
    def failure(self) -> OSError | None:
        """Why nothing is appended until the log is opened again; see LogFolder."""
        return self.folder.failure

    def assign_epoch_start_offset(self, leader_epoch: int) -> None:
        """A leader begins its epoch at the log's end. Raises KAFKA_STORAGE_ERROR."""
        try:
            self.leader_epochs.assign(leader_epoch, self.state.log_end_offset, may_wait=True)
        except OSError as error:
            raise self._writer.storage_error("leader epoch not written", error) from error

    @property
    def topic_id(self) -> uuid.UUID | None:
        return self.folder.topic_id

    def assign_topic_id(self, topic_id: uuid.UUID, *, sync: bool = True) -> None:
        """The log is this topic's from now on. Raises INCONSISTENT_TOPIC_ID if it is another's, and OSError."""
        self.folder.assign_topic_id(topic_id, sync=sync)

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
        return self._reader.read(offset, max_bytes, upper, min_one_message, may_block, sendable)

    def aborted_transactions(self, data: FetchData) -> list[AbortedTransaction]:
        """The aborted transactions among the records of a read. Raises KAFKA_STORAGE_ERROR."""
        return self._reader.aborted_transactions(data)

    def offset_for_timestamp(self, timestamp: int) -> Search:
        """The first record at or after the timestamp (ms); -1 the end, -2 the start, -3 the record with the largest
        timestamp. A generator, which may yield before it returns that.

        None when there is no such record. -1 means the log's end: callers that bound it by an isolation level do so
        themselves. Raises ProtocolError, KAFKA_STORAGE_ERROR or INVALID_RECORD.
        """
        return self._search.offset_for_timestamp(timestamp)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """The largest known epoch not above the one asked for, and the offset where it ends; (-1, -1) when unknown."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.state.log_end_offset)

    # ---- offsets

    @property
    def log_start_offset(self) -> int:
        return self.state.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self.state.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self.state.log_end_offset

    @property
    def recovery_point(self) -> int:
        return self.state.recovery_point

    @property
    def flushed_offset(self) -> int:
        """The recovery point by the name that the flush policy has for it."""
        return self.state.recovery_point

    @property
    def safe_recovery_point(self) -> int:
        """The recovery point to checkpoint; see LogFlusher."""
        return self._flusher.safe_recovery_point

    @property
    def cleaned_offset(self) -> int | None:
        return self.state.cleaned_offset

    def update_high_watermark(self, offset: int) -> int:
        """Moves the high watermark, within the log's bounds; returns where it is."""
        offset = self.state.replicated_to(offset)
        if self.producer_state.unreplicated:
            self.producer_state.forget_replicated(offset)
        return offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest transaction that is not decided for everyone; at most the high watermark."""
        unstable = self.producer_state.first_unstable_offset
        state = self.state
        if unstable is None:
            return state.high_watermark
        return min(max(unstable, state.log_start_offset), state.high_watermark)

    def offset_metadata(self, offset: int, *, may_block: bool = True) -> LogOffsetMetadata:
        """Where the offset lies; the offset alone when it is outside of the log."""
        return self.positions.of(offset, may_block)

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        return self.positions.log_end

    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata:
        return self.positions.high_watermark

    @property
    def last_stable_offset_metadata(self) -> LogOffsetMetadata:
        return self.positions.last_stable(self.last_stable_offset)

    # ---- flushing

    @property
    def last_flush_ms(self) -> int:
        return self._flusher.last_flush_ms

    def begin_flush(self, end_offset: int | None = None) -> FlushJob | None:
        """On the loop: what is to be synced, or None when everything is. Raises KAFKA_STORAGE_ERROR."""
        try:
            return self._flusher.begin(end_offset)
        except OSError as error:
            raise self._writer.storage_error("flush not started", error) from error

    def finish_flush(self, job: FlushJob) -> None:
        """On the loop, after job.run(): the recovery point moves. Raises KAFKA_STORAGE_ERROR when the job failed."""
        self._flusher.finish(job)

    def flush(self) -> None:
        """All of it, inline."""
        job = self.begin_flush()
        if job is not None:
            job.run()
            self.finish_flush(job)

    # ---- what grows old

    def delete_records_before(self, offset: int) -> int:
        """Moves the log's start, at most to the high watermark (-1), and returns it. Raises OFFSET_OUT_OF_RANGE."""
        return self._start.delete_records_before(offset)

    def retention_steps(self, now_ms: int) -> Iterator[int]:
        """Deletes the segments that retention no longer keeps, some at a time; `now_ms` is the wall clock. Yields how
        many went after each step; in between the log may change.

        Their files are renamed and wait in `removals` for file.delete.delay.ms. Raises KAFKA_STORAGE_ERROR.
        """
        deleted = SEGMENTS_PER_STEP
        while deleted >= SEGMENTS_PER_STEP:
            deleted = self._retention.step(self.config, now_ms)
            yield deleted

    def apply_retention(self, now_ms: int) -> int:
        """All of `retention_steps` at once; returns how many segments went."""
        return sum(self.retention_steps(now_ms))

    @property
    def removals(self) -> list[tuple[int, str]]:
        """(when it is due by the monotonic clock, path) of the files that wait for their removal."""
        return self.folder.removals.waiting

    def truncate_to(self, offset: int) -> bool:
        """Cuts the log at `offset`; False when it ends before. Raises KAFKA_STORAGE_ERROR. See LogManager.truncate."""
        try:
            return self._truncation.cut_at(offset, self.config)
        except OSError as error:
            raise self._writer.storage_error("truncation failed", error) from error

    # ---- settings, folder and end

    def update_config(self, config: LogConfig) -> None:
        """New settings take effect with the next append; a new size of index files with the next segment."""
        self.config = config
        for segment in self.segments:
            segment.index_interval_bytes = config.index_interval_bytes

    @property
    def directory(self) -> str:
        """The path of the partition's folder."""
        return self.folder.path

    def relocate(self, directory: str) -> None:
        """The log's files, as they are, are in another folder now. A flush that is under way does not count."""
        self.state.relocated()
        self.folder.relocate(directory)
        self.snapshots.relocate(directory)
        self.leader_epochs.path = f"{directory}/{LEADER_EPOCH}"
        for segment in self.segments:
            segment.relocate(directory)

    def closing(self) -> LogClosing:
        """Begins to close the log for good."""
        return LogClosing(
            self.state, self.folder, self.segments, self.producers, self.leader_epochs, self._writer, self._flusher
        )

    def close(self) -> None:
        """Flushes, snapshots the producers, closes all files. Raises KAFKA_STORAGE_ERROR when they are closed."""
        closing = self.closing()
        closing.run()
        closing.finish()

    def close_files(self) -> None:
        """Closes all files as they are."""
        self.segments.close_files()
