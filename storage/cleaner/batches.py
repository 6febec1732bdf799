"""What a clean does with each batch: removes it, copies it, rebuilds it from the remaining records, or empties it.

(A) A record is removed if a later one has its key, if it is a tombstone whose delete horizon has passed, if it has no
    key, or if its transaction was aborted. Nothing after the offset up to which the keys are known is removed.
(B) A batch that loses nothing is copied byte for byte.
(C) A batch that loses some of its records keeps its base offset, last offset, sequence, epochs and codec.
(D) The first clean that finds a tombstone to keep, or a marker whose data is all gone, gives the batch a delete
    horizon, `now + delete.retention.ms`, in place of its base timestamp (KIP-534).
(E) A batch that loses all records is removed, unless it is the last one of a producer that is still known (its
    sequence, or the epoch of its marker, must be found there) or the last one of the cleaned range (the log's offsets
    must not move back). These batches stay without records.
(F) Batches of message formats 0 and 1 are copied unchanged.

Source: Kafka's Cleaner.cleanInto, MemoryRecords.filterTo.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from crc32c import crc32c

from odradek.protocol.batch_contents import inflate, read_records
from odradek.protocol.batch_header import (
    BATCH_OVERHEAD,
    CHECKED_PART,
    COMPRESSION_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    compute_crc,
)
from odradek.protocol.compression import compress
from odradek.protocol.control_records import ControlType, read_control_type
from odradek.protocol.errors import ProtocolError
from odradek.protocol.record import wrap_int64
from odradek.storage.cleaner.job import CleanJob, CleanStats, UncleanableLog
from odradek.storage.cleaner.transactions import CleanedTransactions
from odradek.storage.cleaner.walk import MALFORMED, move_timestamps, select_records

_SANE_TIME: Final = 1 << 60
_NOTHING_KNOWN: Final = -1


def checked_header(data: bytes, position: int, header: BatchHeader) -> None:
    """Raises UncleanableLog if the batch's checksum is wrong: a rebuilt batch would hide the damage."""
    if compute_crc(data, position, header.size_in_bytes) != header.crc:
        raise UncleanableLog(f"the checksum of the batch at offset {header.base_offset} does not match")


def batch_body(data: bytes, position: int, header: BatchHeader, max_decompressed_bytes: int) -> bytes:
    """Returns the uncompressed records of a compressed batch. Raises UncleanableLog."""
    body = memoryview(data)[position + BATCH_OVERHEAD : position + header.size_in_bytes]
    try:
        return inflate(body, header.attributes & COMPRESSION_MASK, max_decompressed_bytes)
    except ProtocolError as error:
        raise UncleanableLog(f"the batch at offset {header.base_offset} cannot be read: {error}") from error


def marker_type(data: bytes, position: int, header: BatchHeader) -> ControlType | None:
    """Returns the type of a control batch; None for an empty one. Raises UncleanableLog."""
    try:
        records = read_records(data, position, header)
        return read_control_type(records[0].key) if records else None
    except ProtocolError as error:
        raise UncleanableLog(f"the control batch at offset {header.base_offset} cannot be read: {error}") from error


class BatchFilter:
    """`latest`: the last offset of each key, known up to `latest_offset`."""

    __slots__ = ("_job", "_latest", "_latest_offset", "_stats", "_survivors", "_transactions")

    def __init__(
        self,
        job: CleanJob,
        latest: dict[bytes, int],
        latest_offset: int,
        transactions: CleanedTransactions,
        stats: CleanStats,
    ) -> None:
        self._job = job
        self._latest = latest
        self._latest_offset = latest_offset
        self._survivors = sorted(latest.values())
        self._transactions = transactions
        self._stats = stats

    def filtered(self, data: bytes, position: int, header: BatchHeader) -> bytes | None:
        """Returns what remains of the batch: the same `data` object if it is unchanged, new bytes, or None if it is
        removed.

        Raises UncleanableLog.
        """
        checked_header(data, position, header)
        self._stats.messages_read += header.record_count
        if header.attributes & CONTROL_MASK:
            kept = self._control_batch(data, position, header)
        elif header.attributes & TRANSACTIONAL_MASK and self._transactions.data_batch(header):
            kept = self._without_records(header)
        else:
            kept = self.of_records(data, position, header, self._latest_offset)
        return kept

    def _control_batch(self, data: bytes, position: int, header: BatchHeader) -> bytes | None:
        may_go = self._transactions.marker(header, marker_type(data, position, header))
        horizon = header.delete_horizon_ms
        if header.record_count == 0 or (may_go and horizon is not None and horizon <= self._job.now_ms):
            return self._without_records(header)
        if not may_go or horizon is not None:
            self._stats.messages_written += header.record_count
            return data
        return self.of_records(data, position, header, _NOTHING_KNOWN, wants_horizon=True)

    def of_records(
        self, data: bytes, position: int, header: BatchHeader, latest_offset: int, *, wants_horizon: bool = False
    ) -> bytes | None:
        """`filtered`, considering only the records. `wants_horizon`: set a delete horizon even without tombstones."""
        attributes = header.attributes
        count = header.record_count
        if attributes & COMPRESSION_MASK:
            body = batch_body(data, position, header, self._job.max_decompressed_bytes)
        else:
            body = data[position + BATCH_OVERHEAD : position + header.batch_length + LOG_OVERHEAD]
        has_horizon = attributes & DELETE_HORIZON_MASK != 0
        tombstones_stay = not has_horizon or self._job.now_ms < header.base_timestamp
        base_offset = header.base_offset
        was_read = self._job.first_dirty_offset <= base_offset and header.last_offset <= latest_offset
        slot = bisect_left(self._survivors, base_offset) if was_read else -1
        selected = select_records(
            body, 0, count, base_offset, latest_offset, self._latest, self._survivors, slot, tombstones_stay
        )
        kept, runs, first, least, most, tombstones, without_key = selected
        if kept == MALFORMED:
            raise UncleanableLog(f"the records of the batch at offset {header.base_offset} are malformed")
        self._stats.messages_written += kept
        self._stats.invalid_messages_read += without_key
        if kept == 0:
            return self._without_records(header)
        needs_horizon = (tombstones > 0 or wants_horizon) and not has_horizon
        if kept == count and not needs_horizon:
            return data
        return self._made_anew(header, body, kept, runs, (first, least, most), needs_horizon=needs_horizon)

    def _made_anew(
        self,
        header: BatchHeader,
        body: bytes,
        kept: int,
        runs: list[int],
        deltas: tuple[int, int, int],
        *,
        needs_horizon: bool,
    ) -> bytes:
        """(C) and (D). Timestamps are relative to the first remaining record, as in Kafka's builder, or to the horizon.
            If they are millions of years apart, they are kept.

        `deltas`: the timestamp deltas of the first remaining record, the smallest, the largest.
        """
        first, least, most = deltas
        attributes = header.attributes
        base = header.base_timestamp
        is_sane = -_SANE_TIME < base < _SANE_TIME and least > -_SANE_TIME and most < _SANE_TIME
        if attributes & TIMESTAMP_TYPE_MASK:
            max_timestamp = header.max_timestamp
            reference = max_timestamp
        else:
            max_timestamp = max(wrap_int64(base + most), NO_TIMESTAMP)
            reference = base + first
        if needs_horizon and is_sane:
            reference = self._job.now_ms + self._job.delete_retention_ms
            attributes |= DELETE_HORIZON_MASK
        elif attributes & DELETE_HORIZON_MASK or not is_sane:
            reference = base
        if attributes & TIMESTAMP_TYPE_MASK and is_sane:
            records = move_timestamps(body, runs, reference - max_timestamp, True)
        elif reference != base:
            records = move_timestamps(body, runs, reference - base, False)
        elif len(runs) == 2:
            records = body[runs[0] : runs[1]]
        else:
            records = b"".join([body[runs[index] : runs[index + 1]] for index in range(0, len(runs), 2)])
        codec = attributes & COMPRESSION_MASK
        if codec:
            records = compress(codec, records)
        return _batch(header, attributes, reference, max_timestamp, kept, records)

    def _without_records(self, header: BatchHeader) -> bytes | None:
        """(E)"""
        if not self._must_stay(header):
            return None
        kept_bits = TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK
        return _batch(header, header.attributes & kept_bits, NO_TIMESTAMP, header.max_timestamp, 0, b"")

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.next_offset == self._job.upper_bound_offset:
            return True
        producer = self._job.producers.get(header.producer_id)
        if producer is None:
            return False
        if producer.last_data_offset >= 0:
            return header.last_offset == producer.last_data_offset
        return header.is_control and header.producer_epoch == producer.producer_epoch


def _batch(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, count: int, records: bytes
) -> bytes:
    """Returns a batch that replaces the one with this header."""
    checked = CHECKED_PART.pack(
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    made = BatchHeader(
        header.base_offset,
        BATCH_OVERHEAD - LOG_OVERHEAD + len(records),
        header.partition_leader_epoch,
        header.magic,
        crc32c(records, crc32c(checked)),
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    return made.pack() + records
