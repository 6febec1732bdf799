"""Finding records by time (ListOffsets), as Kafka's UnifiedLog.fetchOffsetByTimestamp does.

A search may take long: a batch may inflate to ten million records, an index may be sparse. So it is a generator, which
yields where others may have their turn, and holds no more than a compressed batch and a piece of what that inflates
to. What is replaced or closed meanwhile is a read that fails.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from odradek.protocol.batch_contents import inflated_pieces
from odradek.protocol.batch_header import BATCH_OVERHEAD, BatchHeader, Compression, read_batch_header
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.record import MalformedRecord
from odradek.protocol.timestamp_search import TimestampSearch
from odradek.storage.batch_scan import ScannedBatch
from odradek.storage.log_offsets import TimestampOffset

if TYPE_CHECKING:
    from odradek.storage.log import Log
    from odradek.storage.segment import LogSegment

_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_BATCHES_PER_STEP = 300
_PIECE_BYTES = 1 << 16
"""Records that are looked at in one step: ten thousand small ones."""

Search = Generator[None, None, TimestampOffset | None]


def offset_for_timestamp(log: Log, timestamp: int) -> Search:
    """See Log.offset_for_timestamp."""
    if timestamp == _LATEST:
        return TimestampOffset(-1, log.log_end_offset, log.leader_epochs.latest_epoch)
    if timestamp == _EARLIEST:
        entries = log.leader_epochs.entries
        epoch = entries[0][0] if entries and entries[0][1] <= log.log_start_offset else -1
        return TimestampOffset(-1, log.log_start_offset, epoch)
    try:
        search = _max_timestamp(log) if timestamp == _MAX_TIMESTAMP else _first_at_or_after(log, timestamp)
        return (yield from search)
    except OSError as error:
        raise ProtocolError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {log.topic_partition} cannot be read: {error.strerror}"
        ) from error


def _first_at_or_after(log: Log, timestamp: int) -> Search:
    for segment in list(log.segments):
        if _with_its_times(log, segment).largest_timestamp < timestamp:
            continue
        log.use(segment)
        _, offset = segment.time_index.lookup(timestamp)
        found = yield from _first_in(log, segment, offset, timestamp, log.log_start_offset)
        if found is not None:
            return found
        if segment.base_offset >= log.log_start_offset:
            return None  # as in Kafka: a batch that compaction has emptied keeps its time, and hides later segments
    return None


def _max_timestamp(log: Log) -> Search:
    """As in Kafka also where that record was deleted, in a segment that holds others."""
    segment = max(log.segments, key=lambda segment: _with_its_times(log, segment).max_timestamp)
    log.use(segment)
    return (yield from _first_in(log, segment, segment.offset_of_max_timestamp, segment.max_timestamp, 0))


def _first_in(log: Log, segment: LogSegment, offset: int, timestamp: int, start: int) -> Search:
    """The first record at or after the time and the offset `start`, from the batches on that the index names for
    `offset`.

    After a pause the scan begins anew: the segment may have been closed meanwhile.
    """
    position = segment.offset_index.lookup(max(offset, start))
    while True:
        for number, batch in enumerate(segment.scan(position), start=1):
            position = batch.position + batch.size
            if batch.max_timestamp >= timestamp:
                found = yield from _first_of(log, segment, batch, timestamp, start)
                if found is not None:
                    return found
                break
            if number == _BATCHES_PER_STEP:
                break
        else:
            return None
        yield
        log.use(segment)


def _first_of(log: Log, segment: LogSegment, batch: ScannedBatch, timestamp: int, start: int) -> Search:
    """The first record of the batch at or after both."""
    header = read_batch_header(segment.file.read(batch.position, BATCH_OVERHEAD))
    search = TimestampSearch(header, timestamp, start)
    try:
        for piece in _pieces(log, segment, batch, header):
            search.take(piece)
            if search.has_ended:
                break
            yield
            log.use(segment)
        search.finish()
    except MalformedRecord as error:
        raise ProtocolError(ErrorCode.INVALID_RECORD, str(error)) from error
    return None if search.found is None else TimestampOffset(*search.found, batch.leader_epoch)


def _pieces(log: Log, segment: LogSegment, batch: ScannedBatch, header: BatchHeader) -> Iterator[bytes]:
    """The batch's records as they were before compression. Raises INVALID_RECORD."""
    position, end = batch.position + BATCH_OVERHEAD, batch.position + batch.size
    if header.compression == Compression.NONE:
        for start in range(position, end, _PIECE_BYTES):
            yield bytes(segment.file.read(start, min(_PIECE_BYTES, end - start)))
        return
    body = memoryview(segment.file.read(position, end - position))
    for inflated in inflated_pieces(body, header.compression):
        for start in range(0, len(inflated), _PIECE_BYTES):
            yield inflated[start : start + _PIECE_BYTES]


def _with_its_times(log: Log, segment: LogSegment) -> LogSegment:
    """Of ten thousand segments most know their largest time, and need not be opened to be passed over."""
    return segment if segment.knows_its_times else log.use(segment)
