"""One partition's log, composed of its parts. Other packages read, search, flush and delete by the parts themselves;
`Log` has what needs several of them, or the topic's settings.

Everything here is synchronous and runs on one thread. Work that takes long is returned as jobs (FlushJob, ColdRead,
removals).

    state               log_state (the offsets and their invariants), folder, segments, producers, leader_epochs,
                        positions
    operations on it    append and follow, both over writer; read, search (by time), flushing, start_offset, retention,
                        truncation, closing

None of them depends on Log; recovery opens one.
"""

from __future__ import annotations

import random
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
from odradek.storage.log.read import RecordReader
from odradek.storage.log.retention import SEGMENTS_PER_STEP, Retention
from odradek.storage.log.search import TimeSearch
from odradek.storage.log.segments import LogSegments
from odradek.storage.log.start_offset import LogStart
from odradek.storage.log.truncation import LogTruncation, Target
from odradek.storage.log.writer import LogWriter
from odradek.storage.log_config import LogConfig
from odradek.storage.log_offsets import EpochEndOffset, LogOffsetMetadata
from odradek.storage.producers.producer_state import PRODUCER_ID_EXPIRATION_MS
from odradek.storage.segment.segment import LogSegment
from odradek.storage.segment.segment_cache import SegmentCache
from odradek.storage.segment.tail import Tails
from odradek.timer.clock import Clock


class Log:
    """Opened by recovery.open_log. `state` has the offsets and their invariants; the last of `segments` is active.

    `config` is replaced by `update_config`, so the parts get it with each call.
    """

    __slots__ = (
        "appender",
        "clock",
        "config",
        "files",
        "flusher",
        "folder",
        "follower",
        "leader_epochs",
        "max_decompressed_bytes",
        "positions",
        "producers",
        "reader",
        "retention",
        "search",
        "segments",
        "start",
        "state",
        "tails",
        "topic_partition",
        "writer",
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
        random_source = random_source if random_source is not None else random.Random(0)  # nosec B311 # for jitter
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
        self.producers = producers = LogProducers(files, directory, producer_id_expiration_ms)
        self.leader_epochs = epochs = LeaderEpochs(files, f"{directory}/{LEADER_EPOCH}")

        self.positions = positions = LogPositions(state, segments)
        self.writer = writer = LogWriter(state, folder, segments, producers, epochs, cache.tails)
        self.follower = LogFollower(state, folder, segments, producers.state, epochs, writer)
        self.appender = LogAppender(state, folder, producers.state, writer, max_decompressed_bytes)
        self.reader = RecordReader(state, folder, segments, positions)
        self.search = TimeSearch(state, folder, segments, epochs)
        self.flusher = LogFlusher(state, folder, segments, producers.snapshots, epochs)
        self.start = start = LogStart(state, folder, positions, producers.state, epochs)
        self.retention = Retention(state, folder, segments, producers.snapshots, start, writer)

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.state})"

    # ---- segments

    def roll(self) -> LogSegment:
        """Starts a new segment at the log's end; see LogWriter."""
        return self.writer.roll(self.config)

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
        """Appends one batch, a partition's part of a Produce request; see LogAppender for the guarantees.

        `api_version` is that of the request; the broker's own appends need none. A PlainBatch comes from a coordinator,
        and only its size is checked. A ValidatedBatch is the result of `validation`. Raises TooMuchForOneTurn, without
        any change, if validating the batch exceeds the `allowance`. Raises ProtocolError: CORRUPT_MESSAGE,
        INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE,
        UNSUPPORTED_VERSION, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        return self.appender.append(records, self.config, leader_epoch, api_version, origin, allowance)

    def append_as_follower(self, records: bytes | memoryview) -> FollowerAppendInfo | None:
        """Appends all whole batches of `records`, as the leader's log has them; see LogFollower for the guarantees.
        Returns None if there is no whole batch.

        Raises UnexpectedAppendOffset if they begin below the log's end. Raises ProtocolError: CORRUPT_MESSAGE,
        UNSUPPORTED_FOR_MESSAGE_FORMAT, KAFKA_STORAGE_ERROR. An error leaves the log unchanged.
        """
        return self.follower.append(records, self.config)

    def validation(self, records: bytes, leader_epoch: int, api_version: int) -> BatchValidation:
        """Returns the validation of a client's batch by the current settings, to run in steps. Raises ProtocolError."""
        now_ms = self.clock.wall_ms()
        return self.appender.validation(records, self.config, leader_epoch, api_version, AppendOrigin.CLIENT, now_ms)

    def write_ahead(self, batch: ValidatedBatch) -> Iterator[None]:
        """Writes the records of a large batch that will be appended right after the last step (see write_ahead). The
        log may change between the steps. Raises KAFKA_STORAGE_ERROR.
        """
        return self.writer.write_ahead(batch, self.config)

    def assign_epoch_start_offset(self, leader_epoch: int) -> None:
        """Starts the leader's epoch at the log's end. The disk has it after the next flush (leader_epochs)."""
        self.leader_epochs.assign(leader_epoch, self.state.log_end_offset)

    # ---- reading

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Returns the largest known epoch not above `leader_epoch` and its end offset; (-1, -1) if unknown."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.state.log_end_offset)

    # ---- offsets

    def update_high_watermark(self, offset: int) -> int:
        """Moves the high watermark within the log's bounds; returns its new value."""
        offset = self.state.replicated_to(offset)
        if self.producers.state.unreplicated:
            self.producers.state.forget_replicated(offset)
        return offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest transaction that is open or unreplicated; at most the high watermark."""
        unstable = self.producers.state.first_unstable_offset
        state = self.state
        if unstable is None:
            return state.high_watermark
        return min(max(unstable, state.log_start_offset), state.high_watermark)

    @property
    def last_stable_offset_metadata(self) -> LogOffsetMetadata:
        return self.positions.last_stable(self.last_stable_offset)

    # ---- flushing

    def begin_flush(self, end_offset: int | None = None) -> FlushJob | None:
        """On the loop: returns the job to sync, or None if everything is synced. After job.run() the caller passes it
        to `flusher.finish`. Raises KAFKA_STORAGE_ERROR.
        """
        try:
            return self.flusher.begin(end_offset)
        except OSError as error:
            raise self.writer.storage_error("flush not started", error) from error

    def flush(self) -> None:
        """Begins, runs and finishes a flush in this thread. Raises KAFKA_STORAGE_ERROR."""
        job = self.begin_flush()
        if job is not None:
            job.run()
            self.flusher.finish(job)

    # ---- retention and truncation

    def retention_steps(self, now_ms: int) -> Iterator[int]:
        """Deletes the segments that retention no longer keeps, some per step; `now_ms` is wall clock time. Yields the
        number of deleted segments after each step. The log may change between the steps.

        Their files are renamed and wait in `folder.removals` for file.delete.delay.ms. Raises KAFKA_STORAGE_ERROR.
        """
        deleted = SEGMENTS_PER_STEP
        while deleted >= SEGMENTS_PER_STEP:
            deleted = self.retention.step(self.config, now_ms)
            yield deleted

    def apply_retention(self, now_ms: int) -> int:
        """Runs all `retention_steps`; returns the number of deleted segments."""
        return sum(self.retention_steps(now_ms))

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
            self.flusher,
        )

    # ---- settings, folder and closing

    def update_config(self, config: LogConfig) -> None:
        """Applies new settings from the next append on; a new size of index files from the next segment on."""
        self.config = config
        for segment in self.segments:
            segment.index_interval_bytes = config.index_interval_bytes

    def relocate(self, directory: str) -> None:
        """Updates the paths after the files were moved to another folder. A flush in progress does not count."""
        self.state.relocated()
        self.folder.relocate(directory)
        self.producers.snapshots.relocate(directory)
        self.leader_epochs.path = f"{directory}/{LEADER_EPOCH}"
        for segment in self.segments:
            segment.relocate(directory)

    def abandon(self, directory: str) -> None:
        """The files were moved to a folder that is not the partition's. Closes them; nothing is flushed any more."""
        self.segments.close_files()
        self.relocate(directory)
        self.folder.is_abandoned = True

    def closing(self) -> LogClosing:
        """Begins to close the log for good."""
        return LogClosing(self.state, self.folder, self.segments, self.producers, self.writer, self.flusher)

    def close(self) -> None:
        """Flushes, takes a producer snapshot, closes all files. Raises KAFKA_STORAGE_ERROR after closing them."""
        closing = self.closing()
        closing.run()
        closing.finish()
