"""Writes at the end of a log: appends batches, rolls segments, and truncates what a failed write left behind.

(A) Nothing is applied before its write has succeeded, except the leader epoch, which may be known before its first
    batch.
(B) A failed write leaves the log unchanged: the torn tail is truncated (now, or before the next append), offsets do not
    move, and the error is KAFKA_STORAGE_ERROR. A full disk does not fail the log for good: the next append tries again.
(C) This holds for many batches together, too (`write_copied`), even if they begin new segments: those are created and
    written first, and become part of the log only afterwards (`begin_segment`).
"""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from odradek.protocol.batch_header import LOG_OVERHEAD, BatchHeader
from odradek.protocol.control_records import Marker
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.leader_assignment import ValidatedBatch
from odradek.storage.file_names import SEGMENT_SUFFIXES
from odradek.storage.log.folder import LogFolder
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.log_state import LogState
from odradek.storage.log.producers import LogProducers
from odradek.storage.log.segments import LogSegments
from odradek.storage.log.write_ahead import PIECE_BYTES, WrittenAhead
from odradek.storage.log_config import LogConfig
from odradek.storage.segment.index import MAX_RELATIVE_OFFSET
from odradek.storage.segment.segment import LogSegment, SegmentMark
from odradek.storage.segment.tail import Tails
from odradek.storage.segment.transaction_index import AbortedTransaction

_log = structlog.get_logger(__name__)


class LogWriter:
    """`ahead`: the records of a large batch that are written after the log's end, until the next append. `is_torn`:
    other bytes may be there, which must be truncated first. `strays`: the paths of segments that a failed write created
    and that must be removed first.
    """

    __slots__ = (
        "_folder",
        "_leader_epochs",
        "_producers",
        "_segments",
        "_state",
        "_tails",
        "ahead",
        "is_torn",
        "strays",
    )

    def __init__(
        self,
        state: LogState,
        folder: LogFolder,
        segments: LogSegments,
        producers: LogProducers,
        leader_epochs: LeaderEpochs,
        tails: Tails | None,
    ) -> None:
        self._state = state
        self._folder = folder
        self._segments = segments
        self._producers = producers
        self._leader_epochs = leader_epochs
        self._tails = tails
        self.ahead: WrittenAhead | None = None
        self.is_torn = False
        self.strays: list[str] = []

    # ---- batches

    def write(
        self, batch: ValidatedBatch, config: LogConfig, now_ms: int, leader_epoch: int, marker: Marker | None
    ) -> bool:
        """Appends the batch; returns whether a new segment was rolled for it. Raises KAFKA_STORAGE_ERROR (B)."""
        header = batch.header
        last_offset = header.base_offset + header.last_offset_delta
        rolled = False
        try:
            self.make_writable()
            if leader_epoch != self._leader_epochs.latest_epoch and leader_epoch >= 0:
                self._leader_epochs.assign(leader_epoch, header.base_offset)
            segment: LogSegment = self._segments[-1]
            if segment.should_roll(config, batch.size_in_bytes, last_offset, batch.max_timestamp, now_ms):
                previous = segment
                segment = self.roll(config)
                rolled = segment is not previous
            if marker is not None:
                self._index_aborted(segment, header, marker)
            parts = batch.parts
            ahead = self.ahead
            if ahead is not None:
                self.ahead = None
                if ahead.holds(batch, segment):
                    parts = parts[:1]
                else:
                    segment.cut_torn_tail(self._state.log_end_offset)
            segment.append(
                parts, batch.size_in_bytes, header.base_offset, last_offset, batch.max_timestamp, last_offset
            )
        except OSError as error:
            raise self.storage_error("append failed", error) from error
        if self._tails is not None:
            size = batch.size_in_bytes
            segment.tail = self._tails.keep(segment.tail, batch.parts, segment.size - size, size)
        self._state.appended(last_offset + 1)
        return rolled

    def write_copied(
        self,
        records: memoryview,
        positions: list[int],
        headers: list[BatchHeader],
        aborted: dict[int, AbortedTransaction],
        config: LogConfig,
        now_ms: int,
    ) -> list[tuple[int, LogSegment]]:
        """Writes batches as they are: those at the `positions` of `records`, which end with the last of them. All that
        go into one segment are written at once. `aborted`: the transactions that they abort, by the marker's number.

        Returns the new segments, each with the number of its first batch. The caller lets them begin in turn and then
        moves the log's end. Raises KAFKA_STORAGE_ERROR (C).
        """
        active: LogSegment = self._segments[-1]
        mark: SegmentMark | None = None
        created: list[tuple[int, LogSegment]] = []
        try:
            self.give_up_ahead()
            self.make_writable()
            mark = active.mark()
            segment = active
            start = positions[0]
            file_position = segment.size
            end_offset = self._state.log_end_offset
            for number, header in enumerate(headers):
                size = header.batch_length + LOG_OVERHEAD
                last_offset = header.base_offset + header.last_offset_delta
                if segment.should_roll(config, size, last_offset, header.max_timestamp, now_ms) and (
                    segment.size or not segment.can_take(last_offset)
                ):
                    _write_run(segment, records[start : positions[number]], file_position)
                    if number == 0 and segment.size:
                        end_offset = segment.next_offset()  # see roll
                    base_offset = end_offset if last_offset - end_offset <= MAX_RELATIVE_OFFSET else header.base_offset
                    segment = self._segments.create(base_offset, config)
                    created.append((number, segment))
                    start = positions[number]
                    file_position = 0
                if number in aborted:
                    segment.transaction_index.append(aborted[number])
                segment.note(size, header.base_offset, last_offset, header.max_timestamp, last_offset)
                end_offset = last_offset + 1
            _write_run(segment, records[start:], file_position)
        except OSError as error:
            self._take_back(active, mark, created)
            raise self.storage_error("append failed", error) from error
        active.drop_tail()
        return created

    def _take_back(self, active: LogSegment, mark: SegmentMark | None, created: list[tuple[int, LogSegment]]) -> None:
        """Forgets the batches of a failed write. Their bytes, and the segments created for them, are removed from the
        disk with the torn tail, the last ones first.
        """
        for _, segment in reversed(created):
            segment.close_files()
            self.strays += [segment.path(suffix) for suffix in SEGMENT_SUFFIXES]
        if mark is not None:
            try:
                active.rewind(mark)
            except OSError as error:
                self._folder.fail(error)

    def _index_aborted(self, segment: LogSegment, header: BatchHeader, marker: Marker) -> None:
        """Adds an aborted transaction to the index before its marker is written: a marker without an index entry would
        expose aborted records to consumers. If the marker cannot be written, the entry is truncated with the torn tail.
        """
        aborted = self._producers.state.aborted_by(header) if marker.aborted else None
        if aborted is not None:
            segment.transaction_index.append(aborted)

    # ---- segments

    def roll(self, config: LogConfig) -> LogSegment:
        """Starts a new segment and returns it; returns the active one if it is empty and starts at the log's end. The
        new one starts after the last batch: a truncated log may end later, but segments leave no gap (recovery).

        On OSError the log is unchanged. A failure to write the old segment's indexes or the producer snapshot is only
        logged: the flush writes the indexes, and the snapshot is not needed.
        """
        segments, end_offset = self._segments, self._state.log_end_offset
        previous = segments.active
        if previous.size == 0 and previous.base_offset == end_offset:
            return previous
        segment = segments.create(previous.next_offset() if previous.size else end_offset, config)
        self.begin_segment(segment)
        return segment

    def begin_segment(self, segment: LogSegment) -> None:
        """Makes a new segment the active one. The producers' state must be that at its base offset."""
        segments = self._segments
        previous = segments.active
        self._producers.state.map_end_offset = segment.base_offset
        try:
            previous.seal()
            self._producers.take_snapshot()
        except OSError as error:
            _log.warning("roll incomplete", partition=str(self._folder.topic_partition), reason=str(error))
        segments.note_unsynced(previous)
        segments.add(segment)
        segments.use(previous)

    def rebase(self, base_offset: int, config: LogConfig) -> None:
        """Lets the only segment of the log, which is empty, begin at another offset. Raises KAFKA_STORAGE_ERROR."""
        try:
            self.give_up_ahead()
            self.make_writable()
            self._segments.replace_empty(base_offset, config, self._producers.snapshots)
        except OSError as error:
            raise self.storage_error("append failed", error) from error

    # ---- writing a large batch's records ahead

    def write_ahead(self, batch: ValidatedBatch, config: LogConfig) -> Iterator[None]:
        """See Log.write_ahead."""
        size = batch.size_in_bytes
        if size <= PIECE_BYTES or size > config.segment_bytes:
            return
        try:
            self.make_writable()
            last_offset = self._state.log_end_offset + batch.header.last_offset_delta
            segment = self._segments.active
            now_ms = self._folder.clock.wall_ms()
            if segment.should_roll(config, size, last_offset, batch.max_timestamp, now_ms):
                segment = self.roll(config)
            ahead = self.ahead = WrittenAhead(batch, segment)
            body = memoryview(batch.body)
            for start in range(0, len(body), PIECE_BYTES):
                ahead.write(body, start)
                yield
                if self.ahead is not ahead or self._segments.active is not segment or self._state.closed:
                    return
            ahead.is_whole = True
        except OSError as error:
            raise self.storage_error("append failed", error) from error

    def give_up_ahead(self) -> None:
        """Gives up records that were written ahead but not appended; the next append truncates them first."""
        if self.ahead is not None:
            self.ahead = None
            self.is_torn = True

    # ---- failures

    def storage_error(self, event: str, error: OSError) -> ProtocolError:
        """(B): logs the failure, restores the log's files, and returns the error for the client."""
        folder = self._folder
        folder.report(event, error, directory=folder.path)
        self.mark_torn()
        message = f"the log of {folder.topic_partition} cannot be written: {error.strerror}"
        return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def mark_torn(self) -> None:
        """After a failed write: truncates the torn tail now if possible, otherwise before the next append."""
        self.ahead = None
        self.is_torn = True
        try:
            self.make_writable()
        except OSError as error:
            self._folder.report("torn tail not removed", error)

    def make_writable(self) -> None:
        """Truncates a torn tail. Raises OSError if the log cannot be written."""
        failure = self._folder.failure
        if failure is not None:
            raise failure
        if self.is_torn:
            for path in self.strays:
                self._folder.files.remove(path)
            self.strays = []
            self._segments.active.cut_torn_tail(self._state.log_end_offset)
            self.is_torn = False


def _write_run(segment: LogSegment, records: memoryview, position: int) -> None:
    if len(records):
        segment.file.write((records,), position)
