"""One partition's log, composed of its parts: the interface for other packages.

Everything here is synchronous and runs on one thread. Work that takes long is returned as jobs (FlushJob, ColdRead,
removals).

State: log_state (the offsets), log_folder, log_segments, log_producers, leader_epochs. Operations on it: log_append and
log_follow, both over log_writer; log_read and log_positions, log_search (by time), flushing, log_start and retention,
truncation, closing.
None of them depends on Log; recovery opens one.
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
from odradek.storage.files import Files
from odradek.storage.log.append import LogAppender, LogAppendInfo
from odradek.storage.log.closing import LogClosing
from odradek.storage.log.flushing import FlushJob, LogFlusher
from odradek.storage.log.folder import LogFolder
from odradek.storage.log.follow import FollowerAppendInfo, LogFollower
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.log_state import LogState
from odradek.storage.log.positions import LogPositions
from odradek.storage.log.producers import LogProducers
from odradek.storage.log.read import FetchData, RecordReader
from odradek.storage.log.retention import SEGMENTS_PER_STEP, Retention
from odradek.storage.log.search import Search, TimeSearch
from odradek.storage.log.segments import LogSegments
from odradek.storage.log.start_offset import LogStart
from odradek.storage.log.truncation import LogTruncation, Target
from odradek.storage.log.write_ahead import WrittenAhead
from odradek.storage.log.writer import LogWriter
from odradek.storage.log_config import LogConfig
from odradek.storage.log_offsets import EpochEndOffset, LogOffsetMetadata
from odradek.storage.producers.producer_state import PRODUCER_ID_EXPIRATION_MS, ProducerState
from odradek.storage.producers.snapshots import ProducerSnapshots
from odradek.storage.segment.segment import LogSegment
from odradek.storage.segment.segment_cache import SegmentCache
from odradek.storage.segment.tail import Tails
from odradek.storage.segment.transaction_index import AbortedTransaction
from odradek.timer.clock import Clock


class Log:
    """Opened by recovery.open_log. `state` has the offsets and their invariants; the last of `segments` is active."""

    __slots__ = (
        "_appender",
        "_flusher",
        "_follower",
        "_reader",
        "_retention",
        "_search",
        "_start",
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
        self._follower = LogFollower(state, folder, segments, producers.state, epochs, writer)
        self._appender = LogAppender(state, folder, producers.state, writer, max_decompressed_bytes)
        self._reader = RecordReader(state, folder, segments, positions)
        self._search = TimeSearch(state, folder, segments, epochs)
        self._flusher = LogFlusher(state, folder, segments, producers.snapshots, epochs)
        self._start = start = LogStart(state, folder, positions, producers.state, epochs)
        self._retention = Retention(state, folder, segments, producers.snapshots, start, writer)

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.state})"

    # ---- segments

    @property
    def active_segment(self) -> LogSegment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        """The size of the records in all segments, in bytes."""
        return self.segments.size_in_bytes

    def roll(self) -> LogSegment:
        """Starts a new segment at the log's end; see LogWriter."""
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
        """Appends one batch, a partition's part of a Produce request; see log_append for the guarantees.

        `api_version` is that of the request; the broker's own appends need none. A PlainBatch comes from a coordinator,
        and only its size is checked. A ValidatedBatch is the result of `validation`. Raises TooMuchForOneTurn, without
        any change, if validating the batch exceeds the `allowance`. Raises ProtocolError: CORRUPT_MESSAGE,
        INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE,
        UNSUPPORTED_VERSION, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        return self._appender.append(records, self.config, leader_epoch, api_version, origin, allowance)

    def append_as_follower(self, records: bytes | memoryview) -> FollowerAppendInfo | None:
        """Appends all whole batches of `records`, as the leader's log has them; see log_follow for the guarantees.
        Returns None if there is no whole batch.

        Raises UnexpectedAppendOffset if they begin below the log's end. Raises ProtocolError: CORRUPT_MESSAGE,
        UNSUPPORTED_FOR_MESSAGE_FORMAT, KAFKA_STORAGE_ERROR. An error leaves the log unchanged.
        """
        return self._follower.append(records, self.config)

    def validation(self, records: bytes, leader_epoch: int, api_version: int) -> BatchValidation:
        """Returns the validation of a client's batch by the current settings, to run in steps. Raises ProtocolError."""
        now_ms = self.clock.wall_ms()
        return self._appender.validation(records, self.config, leader_epoch, api_version, AppendOrigin.CLIENT, now_ms)

    def write_ahead(self, batch: ValidatedBatch) -> Iterator[None]:
        """Writes the records of a large batch that will be appended right after the last step (see write_ahead). The
        log may change between the steps. Raises KAFKA_STORAGE_ERROR.
        """
        return self._writer.write_ahead(batch, self.config)

    def give_up_ahead(self) -> None:
        """Gives up records that were written ahead but not appended; the next append truncates them first."""
        self._writer.give_up_ahead()

    @property
    def ahead(self) -> WrittenAhead | None:
        """The records that were written ahead, until the next append."""
        return self._writer.ahead

    @property
    def failure(self) -> OSError | None:
        """Why the log accepts no appends until it is opened again, or None; see LogFolder."""
        return self.folder.failure

    def assign_epoch_start_offset(self, leader_epoch: int) -> None:
        """Starts the leader's epoch at the log's end. The disk has it after the next flush (leader_epochs)."""
        self.leader_epochs.assign(leader_epoch, self.state.log_end_offset)

    @property
    def topic_id(self) -> uuid.UUID | None:
        return self.folder.topic_id

    def assign_topic_id(self, topic_id: uuid.UUID, *, sync: bool = True) -> None:
        """Assigns the log to this topic. Raises INCONSISTENT_TOPIC_ID if it belongs to another one, and OSError."""
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
        """Reads records from the batch that contains `offset`, below `upper` (the log's end if None), of one segment.

        Returns at most `max_bytes`, but at least the first batch with `min_one_message`. `may_block=False`, `sendable`:
        see log_read. Raises OFFSET_OUT_OF_RANGE and KAFKA_STORAGE_ERROR.
        """
        return self._reader.read(offset, max_bytes, upper, min_one_message, may_block, sendable)

    def aborted_transactions(self, data: FetchData) -> list[AbortedTransaction]:
        """Returns the aborted transactions among the records of a read. Raises KAFKA_STORAGE_ERROR."""
        return self._reader.aborted_transactions(data)

    def offset_for_timestamp(self, timestamp: int) -> Search:
        """Finds the first record at or after the timestamp (ms). -1 finds the end, -2 the start, -3 the record with the
        largest timestamp. A generator, which may yield before it returns the record.

        Returns None if there is no such record. -1 means the log's end: callers apply the limit of an isolation level
        themselves. Raises ProtocolError, KAFKA_STORAGE_ERROR or INVALID_RECORD.
        """
        return self._search.offset_for_timestamp(timestamp)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Returns the largest known epoch not above `leader_epoch` and its end offset; (-1, -1) if unknown."""
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
        """The recovery point, under the name that the flush policy uses."""
        return self.state.recovery_point

    @property
    def safe_recovery_point(self) -> int:
        """The recovery point to checkpoint; see LogFlusher."""
        return self._flusher.safe_recovery_point

    @property
    def cleaned_offset(self) -> int | None:
        return self.state.cleaned_offset

    def update_high_watermark(self, offset: int) -> int:
        """Moves the high watermark within the log's bounds; returns its new value."""
        offset = self.state.replicated_to(offset)
        if self.producer_state.unreplicated:
            self.producer_state.forget_replicated(offset)
        return offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest transaction that is open or unreplicated; at most the high watermark."""
        unstable = self.producer_state.first_unstable_offset
        state = self.state
        if unstable is None:
            return state.high_watermark
        return min(max(unstable, state.log_start_offset), state.high_watermark)

    def offset_metadata(self, offset: int, *, may_block: bool = True) -> LogOffsetMetadata:
        """Returns the position of the offset; the offset alone if it is outside the log."""
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
        """On the loop: returns the job to sync, or None if everything is synced. Raises KAFKA_STORAGE_ERROR."""
        try:
            return self._flusher.begin(end_offset)
        except OSError as error:
            raise self._writer.storage_error("flush not started", error) from error

    def finish_flush(self, job: FlushJob) -> None:
        """On the loop, after job.run(): advances the recovery point. Raises KAFKA_STORAGE_ERROR if the job failed."""
        self._flusher.finish(job)

    def flush(self) -> None:
        """Begins, runs and finishes a flush in this thread."""
        job = self.begin_flush()
        if job is not None:
            job.run()
            self.finish_flush(job)

    # ---- retention and truncation

    def delete_records_before(self, offset: int) -> int:
        """Moves the log's start, at most to the high watermark (-1), and returns it. Raises OFFSET_OUT_OF_RANGE."""
        return self._start.delete_records_before(offset)

    def retention_steps(self, now_ms: int) -> Iterator[int]:
        """Deletes the segments that retention no longer keeps, some per step; `now_ms` is wall clock time. Yields the
        number of deleted segments after each step. The log may change between the steps.

        Their files are renamed and wait in `removals` for file.delete.delay.ms. Raises KAFKA_STORAGE_ERROR.
        """
        deleted = SEGMENTS_PER_STEP
        while deleted >= SEGMENTS_PER_STEP:
            deleted = self._retention.step(self.config, now_ms)
            yield deleted

    def apply_retention(self, now_ms: int) -> int:
        """Runs all `retention_steps`; returns the number of deleted segments."""
        return sum(self.retention_steps(now_ms))

    @property
    def removals(self) -> list[tuple[int, str]]:
        """(due time by the monotonic clock, path) of the files that wait for their removal."""
        return self.folder.removals.waiting

    def truncation(self, target: Target) -> LogTruncation:
        """Returns a truncation, which has not begun. Its steps are for LogManager.truncation_steps."""
        return LogTruncation(
            target,
            self.config,
            self.state,
            self.folder,
            self.segments,
            self.positions,
            self.producers,
            self.leader_epochs,
            self._flusher,
        )

    # ---- settings, folder and closing

    def update_config(self, config: LogConfig) -> None:
        """Applies new settings from the next append on; a new size of index files from the next segment on."""
        self.config = config
        for segment in self.segments:
            segment.index_interval_bytes = config.index_interval_bytes

    @property
    def directory(self) -> str:
        """The path of the partition's folder."""
        return self.folder.path

    def relocate(self, directory: str) -> None:
        """Updates the paths after the files were moved to another folder. A flush in progress does not count."""
        self.state.relocated()
        self.folder.relocate(directory)
        self.snapshots.relocate(directory)
        self.leader_epochs.path = f"{directory}/{LEADER_EPOCH}"
        for segment in self.segments:
            segment.relocate(directory)

    def abandon(self, directory: str) -> None:
        """The files were moved to a folder that is not the partition's. Closes them; nothing is flushed any more."""
        self.close_files()
        self.relocate(directory)
        self.folder.is_abandoned = True

    def closing(self) -> LogClosing:
        """Begins to close the log for good."""
        return LogClosing(self.state, self.folder, self.segments, self.producers, self._writer, self._flusher)

    def close(self) -> None:
        """Flushes, takes a producer snapshot, closes all files. Raises KAFKA_STORAGE_ERROR after closing them."""
        closing = self.closing()
        closing.run()
        closing.finish()

    def close_files(self) -> None:
        """Closes all files without writing anything."""
        self.segments.close_files()
