"""A leader's append: validates the batch, checks its producer, writes it, and only then applies it.

Case (B) of log_writer holds for the producer state too: it is unchanged if the write fails.
(C) A duplicate of one of the producer's last five batches is not written again; the offsets of the original are
    returned.
"""

from __future__ import annotations

from odradek.protocol.append_allowance import AppendAllowance, TooMuchForOneTurn
from odradek.protocol.batch_header import LOG_OVERHEAD, BatchHeader
from odradek.protocol.control_records import Marker
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.leader_assignment import ValidatedBatch
from odradek.protocol.plain_batch import PlainBatch
from odradek.protocol.record_validation import AppendOrigin, BatchValidation, check_size
from odradek.storage.log.folder import LogFolder
from odradek.storage.log.log_state import LogState
from odradek.storage.log.writer import LogWriter
from odradek.storage.log_config import LogConfig
from odradek.storage.producers.producer_state import ProducerState
from odradek.storage.producers.producer_state_entry import BatchMetadata
from odradek.storage.producers.transaction_marker import read_marker

_KEEPING_PLAIN = ("producer", "uncompressed")
"""The values of compression.type with which an uncompressed batch is stored uncompressed."""


class LogAppendInfo:
    """The result of an append. Offsets are absolute; times in ms, -1 for none.

    `log_append_time_ms` is -1 with CreateTime, except for a duplicate, which has the stored time (as in Kafka).
    `flush_required`: the topic's flush.messages requires a flush before the response.
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


class LogAppender:
    """Appends to one log; see Log.append_as_leader."""

    __slots__ = ("_folder", "_max_decompressed_bytes", "_producers", "_state", "_writer")

    def __init__(
        self,
        state: LogState,
        folder: LogFolder,
        producers: ProducerState,
        writer: LogWriter,
        max_decompressed_bytes: int,
    ) -> None:
        self._state = state
        self._folder = folder
        self._producers = producers
        self._writer = writer
        self._max_decompressed_bytes = max_decompressed_bytes

    def validation(
        self,
        records: bytes,
        config: LogConfig,
        leader_epoch: int,
        api_version: int,
        origin: AppendOrigin,
        now_ms: int,
    ) -> BatchValidation:
        """See Log.validation."""
        return BatchValidation(
            records,
            now_ms=now_ms,
            partition_leader_epoch=leader_epoch,
            timestamp_type=config.timestamp_type,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            compacted=config.compact,
            max_batch_bytes=config.max_message_bytes,
            max_decompressed_bytes=self._max_decompressed_bytes,
            max_record_bytes=config.max_decompressed_message_bytes,
            target_compression=config.compression_type,
            compression_level=config.compression_level,
            api_version=api_version,
            origin=origin,
        )

    def append(
        self,
        records: bytes | PlainBatch | ValidatedBatch,
        config: LogConfig,
        leader_epoch: int,
        api_version: int,
        origin: AppendOrigin,
        allowance: AppendAllowance | None,
    ) -> LogAppendInfo:
        if allowance is not None and self._writer.ahead is not None:
            raise TooMuchForOneTurn
        state = self._state
        now_ms = self._folder.clock.wall_ms()
        if isinstance(records, ValidatedBatch):
            batch = records.place(state.log_end_offset, leader_epoch)
        elif isinstance(records, PlainBatch):
            if config.timestamp_type or config.compression_type not in _KEEPING_PLAIN:
                if records.marker is not None:
                    self._check_marker(records.header, records.marker)  # its bytes lack the transaction's version
                return self.append(records.to_bytes(), config, leader_epoch, api_version, origin, allowance)
            check_size(records.header.batch_length + LOG_OVERHEAD, config.max_message_bytes)
            batch = records.placed(state.log_end_offset, leader_epoch)
        else:
            validation = self.validation(records, config, leader_epoch, api_version, origin, now_ms)
            batch = validation.at_once(allowance).place(state.log_end_offset, leader_epoch)
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
                marker = self._check_control_batch(records if isinstance(records, PlainBatch) else None, batch)
            elif origin is AppendOrigin.CLIENT:
                duplicate = self._producers.find_duplicate(header)
                if duplicate is not None:
                    return self._duplicate_info(batch, duplicate)
                self._producers.check_data_batch(header)
            else:
                self._producers.check_data_batch(header, sequences=False)
        rolled = self._writer.write(batch, config, now_ms, leader_epoch, marker)
        if header.producer_id >= 0:
            self._producers.apply(header, marker)
        self._producers.map_end_offset = end_offset = header.base_offset + header.last_offset_delta + 1
        return LogAppendInfo(
            header.base_offset,
            end_offset - 1,
            batch.max_timestamp,
            batch.offset_of_max_timestamp,
            batch.log_append_time_ms,
            state.log_start_offset,
            header.record_count,
            size,
            batch.source_compression,
            False,
            end_offset - state.recovery_point >= config.flush_messages,
            rolled,
        )

    def _check_control_batch(self, plain: PlainBatch | None, batch: ValidatedBatch) -> Marker | None:
        marker = read_marker(batch.to_bytes(), 0, batch.header) if plain is None else plain.marker
        if marker is not None:
            self._check_marker(batch.header, marker)
        return marker

    def _check_marker(self, header: BatchHeader, marker: Marker) -> None:
        self._producers.check_marker(header, marker.coordinator_epoch, marker.transaction_version)

    def _duplicate_info(self, batch: ValidatedBatch, stored: BatchMetadata) -> LogAppendInfo:
        return LogAppendInfo(
            stored.first_offset,
            stored.last_offset,
            batch.max_timestamp,
            batch.offset_of_max_timestamp,
            stored.timestamp,
            self._state.log_start_offset,
            batch.header.record_count,
            batch.size_in_bytes,
            batch.source_compression,
            True,
            False,
            False,
        )
