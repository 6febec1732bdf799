"""Prepares a validated batch for the log: the leader writes its base offset, leader epoch and timestamps.

Base offset and leader epoch are not covered by the checksum: a batch that needs no other change is neither read again
nor copied. With LogAppendTime, or if the client's maximum timestamp was wrong, the checked part of the header and the
checksum change. The leader recompresses the records only if the topic has a different codec.
"""

from __future__ import annotations

from mypy_extensions import i64

from odradek.protocol.batch_header import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    DELETE_HORIZON_MASK,
    HEADER_UP_TO_MAGIC,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    UNCHECKED_PART,
    BatchHeader,
    Buffer,
    TimestampType,
)
from odradek.protocol.record import varint_bytes
from odradek.protocol.record_walk import varint, varlong_size

_NO_ATTRIBUTES = b"\x00"
# A rewritten header keeps only the attributes with a meaning, without the timestamp type.
_KEPT_ATTRIBUTES = COMPRESSION_MASK | TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK


class ValidatedBatch:
    """A batch that is ready for the log except for its offset and leader epoch, which `place` sets.

    `header` is the header to store. `parts` are the buffers to write in order, `size_in_bytes` in total: the rewritten
    beginning of the header, or all of it, then `body`, which is a view of the request's bytes if those are unchanged.
    `max_timestamp` goes into the time index. `log_append_time_ms` is -1 with CreateTime. `source_compression` is the
    client's codec.
    """

    __slots__ = (
        "body",
        "header",
        "log_append_time_ms",
        "max_timestamp",
        "parts",
        "size_in_bytes",
        "source_compression",
    )

    def __init__(self, header: BatchHeader, body: Buffer, log_append_time_ms: int, source_compression: int) -> None:
        self.header = header
        self.body = body
        self.parts: list[Buffer] = []
        self.size_in_bytes = header.batch_length + LOG_OVERHEAD
        self.max_timestamp = header.max_timestamp
        self.log_append_time_ms = log_append_time_ms
        self.source_compression = source_compression

    @property
    def offset_of_max_timestamp(self) -> int:
        """The batch's last offset; -1 without timestamps."""
        return -1 if self.max_timestamp == NO_TIMESTAMP else self.header.last_offset

    def place(self, offset: int, partition_leader_epoch: int) -> ValidatedBatch:
        """Writes offset and leader epoch into the header, before its checked part; returns the batch itself."""
        header = self.header
        header.base_offset = offset
        header.partition_leader_epoch = partition_leader_epoch
        if self.size_in_bytes - len(self.body) == HEADER_UP_TO_MAGIC:
            place = UNCHECKED_PART.pack(offset, header.batch_length, partition_leader_epoch, CURRENT_MAGIC)
        else:
            place = header.pack()
        self.parts = [place, self.body]
        return self

    def to_bytes(self) -> bytes:
        """Returns the batch as one bytes object."""
        return b"".join(self.parts)


def keep_records(
    records: bytes, header: BatchHeader, timestamp_type: TimestampType, max_timestamp: int
) -> ValidatedBatch:
    """Builds the batch at the start of `records` with unchanged records. Modifies `header` to what will be stored."""
    appends_time = bool(timestamp_type)
    codec = header.attributes & COMPRESSION_MASK
    size = header.batch_length + LOG_OVERHEAD
    if header.max_timestamp == max_timestamp and bool(header.attributes & TIMESTAMP_TYPE_MASK) is appends_time:
        body = memoryview(records)[HEADER_UP_TO_MAGIC:size]
    else:
        body = memoryview(records)[BATCH_OVERHEAD:size]
        header.attributes &= _KEPT_ATTRIBUTES
        if appends_time:
            header.attributes |= TIMESTAMP_TYPE_MASK
        header.max_timestamp = max_timestamp
        header.seal(body)
    return ValidatedBatch(header, body, max_timestamp if appends_time else NO_TIMESTAMP, codec)


def replace_records(
    body: bytes, header: BatchHeader, timestamp_type: TimestampType, max_timestamp: int, codec: int
) -> ValidatedBatch:
    """Builds the batch with its records recompressed, as `body`. Modifies `header` to what will be stored."""
    source = header.attributes & COMPRESSION_MASK
    header.attributes = header.attributes & TRANSACTIONAL_MASK | codec
    if timestamp_type:
        header.attributes |= TIMESTAMP_TYPE_MASK
    header.max_timestamp = max_timestamp
    header.seal(body)
    return ValidatedBatch(header, body, max_timestamp if timestamp_type else NO_TIMESTAMP, source)


class Renumbering:
    """Rewrites the offset deltas of `count` records from `start` to count up from 0, in pieces of any size. A walk has
    found these records WHOLE.
    """

    def __init__(self, data: bytes, start: int, count: int) -> None:
        self._data = data
        self._position: i64 = start
        self._index: i64 = 0
        self._count: i64 = count
        self._made = bytearray()

    def take(self, items: i64) -> bool:
        """Renumbers up to `items` records; returns whether all are done."""
        data = self._data
        end: i64 = len(data)
        position: i64 = self._position
        index: i64 = self._index
        while index < self._count and items > 0:
            items -= 1
            packed: i64 = varint(data, position, end)
            start: i64 = position + (packed & 7)
            record_end: i64 = start + (packed >> 4)
            delta: i64 = start + 1 + varlong_size(data, start + 1, record_end)
            rest: i64 = delta + (varint(data, delta, record_end) & 7)
            number = varint_bytes(int(index))
            self._made += varint_bytes(int(record_end - start - (rest - delta)) + len(number))
            self._made += _NO_ATTRIBUTES
            self._made += data[start + 1 : delta]
            self._made += number
            self._made += data[rest:record_end]
            position = record_end
            index += 1
        self._position = position
        self._index = index
        return index >= self._count

    def result(self) -> memoryview:
        """Returns all renumbered records."""
        return memoryview(self._made)
