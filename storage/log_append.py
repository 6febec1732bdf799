"""A leader's append: validate, check the producer, roll if need be, write, and only then tell everyone.

(A) Nothing changes before the write has succeeded, but for the leader epoch, which may be known before its first
    batch.
(B) A write that fails leaves the log as it was: the torn tail is cut off (now, or before the next append), offsets
    and producers stand where they stood, and the error is KAFKA_STORAGE_ERROR. A disk that is full is full until it
    is not: the next append tries.
(C) A duplicate of one of the producer's last five batches is not written again; the answer is where it was stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from odradek.protocol.append_allowance import AppendAllowance, TooMuchForOneTurn
from odradek.protocol.batch_header import LOG_OVERHEAD, BatchHeader
from odradek.protocol.control_records import ControlType, Marker, read_control_type, read_coordinator_epoch
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.leader_assignment import ValidatedBatch
from odradek.protocol.plain_batch import PlainBatch
from odradek.protocol.record_validation import AppendOrigin, BatchValidation, check_size
from odradek.protocol.records import Buffer, read_records
from odradek.storage.producer_state_entry import BatchMetadata

if TYPE_CHECKING:
    from odradek.storage.log import Log
    from odradek.storage.segment import LogSegment

_log = structlog.get_logger(__name__)

_KEEPING_PLAIN = ("producer", "uncompressed")
"""A topic's compression.type with which a batch that comes uncompressed stays so."""


class LogAppendInfo:
    """What an append did. Offsets are absolute; times in ms, -1 for none.

    `log_append_time_ms` is -1 with CreateTime, but for a duplicate the time that was stored (as Kafka answers it);
    `flush_required` says that the topic's flush.messages wants a flush before the answer.
    """

    __slots__ = (
        "duplicate",
        "first_offset",
        "flush_required",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "max_timestamp",
        "offset_of_max_timestamp",
        "record_count",
        "rolled",
        "size_in_bytes",
        "source_compression",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        log_append_time_ms: int,
        log_start_offset: int,
        record_count: int,
        size_in_bytes: int,
        source_compression: int,
        duplicate: bool,
        flush_required: bool,
        rolled: bool,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_count = record_count
        self.size_in_bytes = size_in_bytes
        self.source_compression = source_compression
        self.duplicate = duplicate
        self.flush_required = flush_required
        self.rolled = rolled


def read_marker(data: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """The COMMIT or ABORT of a control batch; None of an empty one, or of other control records."""
    records = read_records(data, position, header)
    if not records:
        return None
    control_type = read_control_type(records[0].key)
    if control_type not in (ControlType.COMMIT, ControlType.ABORT):
        return None
    return Marker(control_type is ControlType.ABORT, read_coordinator_epoch(records[0].value), records[0].timestamp)


def validation(
    log: Log, records: bytes, leader_epoch: int, api_version: int, origin: AppendOrigin, now_ms: int
) -> BatchValidation:
    """See Log.validation."""
    config = log.config
    return BatchValidation(
        records,
        now_ms=now_ms,
        partition_leader_epoch=leader_epoch,
        timestamp_type=config.timestamp_type,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        compacted=config.compact,
        max_batch_bytes=config.max_message_bytes,
        max_decompressed_bytes=log.max_decompressed_bytes,
        target_compression=config.compression_type,
        compression_level=config.compression_level,
        api_version=api_version,
        origin=origin,
    )


def append_as_leader(
    log: Log,
    records: bytes | PlainBatch | ValidatedBatch,
    leader_epoch: int,
    api_version: int,
    origin: AppendOrigin,
    allowance: AppendAllowance | None,
) -> LogAppendInfo:
    """See Log.append_as_leader."""
    if allowance is not None and log.ahead is not None:
        raise TooMuchForOneTurn
    config = log.config
    now_ms = log.clock.wall_ms()
    if isinstance(records, ValidatedBatch):
        batch = records.place(log.log_end_offset, leader_epoch)
    elif isinstance(records, PlainBatch):
        if config.timestamp_type or config.compression_type not in _KEEPING_PLAIN:
            return append_as_leader(log, records.to_bytes(), leader_epoch, api_version, origin, allowance)
        check_size(records.header.batch_length + LOG_OVERHEAD, config.max_message_bytes)
        batch = records.placed(log.log_end_offset, leader_epoch)
    else:
        checked = validation(log, records, leader_epoch, api_version, origin, now_ms).at_once(allowance)
        batch = checked.place(log.log_end_offset, leader_epoch)
    header = batch.header
    size = batch.size_in_bytes
    if size > config.segment_bytes:
        raise ProtocolError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch of {size} bytes exceeds the segment size of {config.segment_bytes}",
        )
    marker = None
    if header.producer_id >= 0:
        if header.is_control:
            marker = _check_control_batch(log, records if isinstance(records, PlainBatch) else None, batch)
        elif origin is AppendOrigin.CLIENT:
            duplicate = log.producer_state.find_duplicate(header)
            if duplicate is not None:
                return _duplicate_info(log, batch, duplicate)
            log.producer_state.check_data_batch(header)
        else:
            log.producer_state.check_data_batch(header, sequences=False)
    rolled = _write(log, batch, now_ms, leader_epoch, marker)
    if header.producer_id >= 0:
        _note_producer(log, header, marker)
    log.producer_state.map_end_offset = end_offset = header.base_offset + header.last_offset_delta + 1
    return LogAppendInfo(
        header.base_offset,
        end_offset - 1,
        batch.max_timestamp,
        batch.offset_of_max_timestamp,
        batch.log_append_time_ms,
        log.log_start_offset,
        header.record_count,
        size,
        batch.source_compression,
        False,
        end_offset - log.recovery_point >= config.flush_messages,
        rolled,
    )


def _check_control_batch(log: Log, plain: PlainBatch | None, batch: ValidatedBatch) -> Marker | None:
    marker = read_marker(batch.to_bytes(), 0, batch.header) if plain is None else plain.marker
    if marker is not None:
        log.producer_state.check_marker(batch.header, marker.coordinator_epoch)
    return marker


def _duplicate_info(log: Log, batch: ValidatedBatch, stored: BatchMetadata) -> LogAppendInfo:
    return LogAppendInfo(
        stored.first_offset,
        stored.last_offset,
        batch.max_timestamp,
        batch.offset_of_max_timestamp,
        stored.timestamp,
        log.log_start_offset,
        batch.header.record_count,
        batch.size_in_bytes,
        batch.source_compression,
        True,
        False,
        False,
    )


def _write(log: Log, batch: ValidatedBatch, now_ms: int, leader_epoch: int, marker: Marker | None) -> bool:
    """Puts the batch at the end of the log; returns whether a new segment was begun for it."""
    header = batch.header
    last_offset = header.base_offset + header.last_offset_delta
    rolled = False
    try:
        if not log.writable:
            log.make_writable()
        if leader_epoch != log.leader_epochs.latest_epoch and leader_epoch >= 0:
            log.leader_epochs.assign(leader_epoch, header.base_offset)
        segment = log.active_segment
        if segment.should_roll(log.config, batch.size_in_bytes, last_offset, batch.max_timestamp, now_ms):
            previous = segment
            segment = roll(log)
            rolled = segment is not previous
        if marker is not None:
            _index_aborted(log, segment, header, marker)
        parts = batch.parts
        ahead = log.ahead
        if ahead is not None:
            log.ahead = None
            if ahead.holds(batch, segment):
                parts = parts[:1]
            else:
                segment.cut_torn_tail(log.log_end_offset)
        segment.append(parts, batch.size_in_bytes, header.base_offset, last_offset, batch.max_timestamp, last_offset)
    except OSError as error:
        raise storage_error(log, "append_failed", error) from error
    if log.tails is not None:
        size = batch.size_in_bytes
        segment.tail = log.tails.keep(segment.tail, batch.parts, segment.size - size, size)
    log.log_end_offset = last_offset + 1
    return rolled


def roll(log: Log) -> LogSegment:
    """See Log.roll."""
    previous = log.active_segment
    if previous.size == 0 and previous.base_offset == log.log_end_offset:
        return previous
    segment = log.new_segment(log.log_end_offset)
    log.directory_changed = True
    log.producer_state.map_end_offset = log.log_end_offset
    try:
        previous.seal()
        log.snapshots.take(log.producer_state, sync=False)
    except OSError as error:
        _log.warning("roll_incomplete", partition=str(log.topic_partition), reason=str(error))
    log.unsynced_segments.append(previous)
    log.segments.add(segment)
    log.use(previous)
    return segment


def storage_error(log: Log, event: str, error: OSError) -> ProtocolError:
    """Case (B): names what happened (once a period), brings the log's files back to what they were, and makes the error
    for the client.
    """
    log.lines.tell(
        _log.error,
        (event, error.errno),
        event,
        partition=str(log.topic_partition),
        directory=log.directory,
        reason=str(error),
    )
    log.mark_torn()
    message = f"the log of {log.topic_partition} cannot be written: {error.strerror}"
    return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, message)


def _index_aborted(log: Log, segment: LogSegment, header: BatchHeader, marker: Marker) -> None:
    """An aborted transaction enters its index before its marker is written: a marker without its entry would show
    aborted records to consumers. An entry whose marker could not be written is cut off with the torn tail.
    """
    aborted = log.producer_state.aborted_by(header) if marker.aborted else None
    if aborted is not None:
        segment.transaction_index.append(aborted)


def _note_producer(log: Log, header: BatchHeader, marker: Marker | None) -> None:
    if not header.is_control:
        log.producer_state.apply_data_batch(header)
    elif marker is not None:
        log.producer_state.apply_marker(header, marker.aborted, marker.coordinator_epoch, marker.timestamp)
