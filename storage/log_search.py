"""Finding records by time (ListOffsets), as Kafka's UnifiedLog.fetchOffsetByTimestamp does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.batch_header import read_batch_header
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import Record, read_records
from odradek.storage.batch_scan import ScannedBatch
from odradek.storage.log_offsets import TimestampOffset

if TYPE_CHECKING:
    from odradek.storage.log import Log
    from odradek.storage.segment import LogSegment

_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """See Log.offset_for_timestamp."""
    if timestamp == _LATEST:
        return TimestampOffset(-1, log.log_end_offset, log.leader_epochs.latest_epoch)
    if timestamp == _EARLIEST:
        entries = log.leader_epochs.entries
        epoch = entries[0][0] if entries and entries[0][1] <= log.log_start_offset else -1
        return TimestampOffset(-1, log.log_start_offset, epoch)
    try:
        return _max_timestamp(log) if timestamp == _MAX_TIMESTAMP else _first_at_or_after(log, timestamp)
    except OSError as error:
        raise ProtocolError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {log.topic_partition} cannot be read: {error.strerror}"
        ) from error


def _first_at_or_after(log: Log, timestamp: int) -> TimestampOffset | None:
    for segment in log.segments:
        if _with_its_times(log, segment).largest_timestamp < timestamp:
            continue
        log.use(segment)
        _, offset = segment.time_index.lookup(timestamp)
        position = segment.offset_index.lookup(max(offset, log.log_start_offset))
        for batch in segment.scan(position):
            if batch.max_timestamp < timestamp:
                continue
            for record in records_of(segment, batch):
                if record.timestamp >= timestamp and record.offset >= log.log_start_offset:
                    return TimestampOffset(record.timestamp, record.offset, batch.leader_epoch)
        if segment.base_offset >= log.log_start_offset:
            return None  # as in Kafka: a batch that compaction has emptied keeps its time, and hides later segments
    return None


def _max_timestamp(log: Log) -> TimestampOffset | None:
    segment = max(log.segments, key=lambda segment: _with_its_times(log, segment).max_timestamp)
    log.use(segment)
    timestamp = segment.max_timestamp
    for batch in segment.scan(segment.offset_index.lookup(segment.offset_of_max_timestamp)):
        if batch.max_timestamp == timestamp:
            for record in records_of(segment, batch):
                if record.timestamp == timestamp:
                    return TimestampOffset(timestamp, record.offset, batch.leader_epoch)
    return None


def _with_its_times(log: Log, segment: LogSegment) -> LogSegment:
    """Of ten thousand segments most know their largest time, and need not be opened to be passed over."""
    return segment if segment.knows_its_times else log.use(segment)


def records_of(segment: LogSegment, batch: ScannedBatch) -> list[Record]:
    """All records of a batch of the segment. Raises ProtocolError as protocol.records.read_records does."""
    data = segment.file.read(batch.position, batch.size)
    return read_records(data, 0, read_batch_header(data))
