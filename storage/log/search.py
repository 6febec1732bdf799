"""Finding records by time (ListOffsets), like Kafka's UnifiedLog.fetchOffsetByTimestamp.

A search may take long: a batch may inflate to ten million records, an index may be sparse. So it is a generator that
yields to let other work run, and holds no more than a compressed batch and a piece of its inflated records. If a
segment is replaced or closed meanwhile, the read fails.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from odradek.protocol.batch_contents import inflated_pieces
from odradek.protocol.batch_header import BATCH_OVERHEAD, BatchHeader, Compression, read_batch_header
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.record import MalformedRecord
from odradek.protocol.timestamp_search import TimestampSearch
from odradek.storage.log.folder import LogFolder
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.log_state import LogState
from odradek.storage.log.segments import LogSegments
from odradek.storage.log_offsets import TimestampOffset
from odradek.storage.segment.batch_scan import ScannedBatch
from odradek.storage.segment.segment import LogSegment

_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_BATCHES_PER_STEP = 300
_PIECE_BYTES = 1 << 16
"""The size of the records searched in one step: ten thousand small ones."""

Search = Generator[None, None, TimestampOffset | None]


class TimeSearch:
    """Searches one log."""

    __slots__ = ("_folder", "_leader_epochs", "_segments", "_state")

    def __init__(self, state: LogState, folder: LogFolder, segments: LogSegments, leader_epochs: LeaderEpochs) -> None:
        self._state = state
        self._folder = folder
        self._segments = segments
        self._leader_epochs = leader_epochs

    def offset_for_timestamp(self, timestamp: int) -> Search:
        """Finds the first record at or after the timestamp (ms). -1 finds the end, -2 the start, -3 the record with the
        largest timestamp. A generator, which may yield before it returns the record.

        Returns None if there is no such record. -1 means the log's end: callers apply the limit of an isolation level
        themselves. Raises ProtocolError, KAFKA_STORAGE_ERROR or INVALID_RECORD.
        """
        if timestamp == _LATEST:
            return TimestampOffset(-1, self._state.log_end_offset, self._leader_epochs.latest_epoch)
        if timestamp == _EARLIEST:
            entries, start = self._leader_epochs.entries, self._state.log_start_offset
            epoch = entries[0][0] if entries and entries[0][1] <= start else -1
            return TimestampOffset(-1, start, epoch)
        try:
            search = self._max_timestamp() if timestamp == _MAX_TIMESTAMP else self._first_at_or_after(timestamp)
            return (yield from search)
        except OSError as error:
            message = f"the log of {self._folder.topic_partition} cannot be read: {error.strerror}"
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error

    def _first_at_or_after(self, timestamp: int) -> Search:
        segments = self._segments
        for segment in list(segments):
            if _with_its_times(segments, segment).largest_timestamp < timestamp:
                continue
            segments.use(segment)
            _, offset = segment.time_index.lookup(timestamp)
            found = yield from _first_in(segments, segment, offset, timestamp, self._state.log_start_offset)
            if found is not None:
                return found
            if segment.base_offset >= self._state.log_start_offset:
                return None  # as in Kafka: a batch emptied by compaction keeps its time and hides later segments
        return None

    def _max_timestamp(self) -> Search:
        """As in Kafka, the record is searched even if it was deleted from a segment that still holds other records."""
        segments = self._segments
        segment = max(segments, key=lambda segment: _with_its_times(segments, segment).max_timestamp)
        segments.use(segment)
        return (yield from _first_in(segments, segment, segment.offset_of_max_timestamp, segment.max_timestamp, 0))


def _first_in(segments: LogSegments, segment: LogSegment, offset: int, timestamp: int, start: int) -> Search:
    """Finds the first record at or after both `timestamp` and `start`, beginning with the batch that the index has for
    `offset`.

    After a pause the scan is restarted, because the segment may have been closed meanwhile.
    """
    position = segment.offset_index.lookup(max(offset, start))
    while True:
        for number, batch in enumerate(segment.scan(position), start=1):
            position = batch.position + batch.size
            if batch.max_timestamp >= timestamp:
                found = yield from _first_of(segments, segment, batch, timestamp, start)
                if found is not None:
                    return found
                break
            if number == _BATCHES_PER_STEP:
                break
        else:
            return None
        yield
        segments.use(segment)


def _first_of(segments: LogSegments, segment: LogSegment, batch: ScannedBatch, timestamp: int, start: int) -> Search:
    """Finds the batch's first record at or after both `timestamp` and `start`."""
    header = read_batch_header(segment.file.read(batch.position, BATCH_OVERHEAD))
    search = TimestampSearch(header, timestamp, start)
    try:
        for piece in _pieces(segment, batch, header):
            search.take(piece)
            if search.has_ended:
                break
            yield
            segments.use(segment)
        search.finish()
    except MalformedRecord as error:
        raise ProtocolError(ErrorCode.INVALID_RECORD, str(error)) from error
    return None if search.found is None else TimestampOffset(*search.found, batch.leader_epoch)


def _pieces(segment: LogSegment, batch: ScannedBatch, header: BatchHeader) -> Iterator[bytes]:
    """Yields the batch's uncompressed records in pieces. Raises INVALID_RECORD."""
    position, end = batch.position + BATCH_OVERHEAD, batch.position + batch.size
    if header.compression == Compression.NONE:
        for start in range(position, end, _PIECE_BYTES):
            yield bytes(segment.file.read(start, min(_PIECE_BYTES, end - start)))
        return
    body = memoryview(segment.file.read(position, end - position))
    for inflated in inflated_pieces(body, header.compression):
        for start in range(0, len(inflated), _PIECE_BYTES):
            yield inflated[start : start + _PIECE_BYTES]


def _with_its_times(segments: LogSegments, segment: LogSegment) -> LogSegment:
    """Most segments know their largest timestamp, so they can be skipped without being opened."""
    return segment if segment.knows_its_times else segments.use(segment)
