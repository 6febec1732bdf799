"""Searches for the first record of a batch at or after a timestamp, in pieces, as a stored batch may inflate to ten
million records. Only the beginning of each record is read (the layout is in record_walk); the rest may be in later
pieces.

Source: Kafka's FileRecords.searchForTimestamp. Compiled, see record_walk.
"""

from typing import Final

from mypy_extensions import i64

from odradek.protocol.batch_header import BatchHeader, TimestampType
from odradek.protocol.record import MalformedRecord
from odradek.protocol.record_walk import varint, varlong, varlong_size

_BEGINNING: Final = 21
"""The largest total size of a record's length, attributes, timestamp delta and offset delta."""
_MAX_INT64: Final = (1 << 63) - 1


class TimestampSearch:
    """Searches for the first record of a batch with at least this `timestamp` (ms) and at least this `offset`.

    `found`: its timestamp and offset. `has_ended`: it was found, or all records were checked.
    """

    def __init__(self, header: BatchHeader, timestamp: int, offset: int) -> None:
        self.found: tuple[int, int] | None = None
        self._base_offset = header.base_offset
        self._base_timestamp = header.base_timestamp
        least = timestamp - header.base_timestamp
        self._log_append_time: int | None = None
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            self._log_append_time = header.max_timestamp
            least = -_MAX_INT64 if header.max_timestamp >= timestamp else _MAX_INT64
        self._least: i64 = min(max(least, -_MAX_INT64), _MAX_INT64)
        self._least_offset: i64 = min(max(offset - header.base_offset, 0), _MAX_INT64)
        self._left: i64 = header.record_count
        self._passed_over: i64 = 0
        self._rest = b""

    @property
    def has_ended(self) -> bool:
        return self.found is not None or self._left <= 0

    def take(self, piece: bytes) -> None:
        """Checks the records that begin in the next piece of the batch's records. Raises MalformedRecord."""
        data = piece
        if self._rest:
            data = b"".join((self._rest, piece))
            self._rest = b""
        end: i64 = len(data)
        position: i64 = self._passed_over
        while position < end and self._left > 0:
            begin: i64 = position
            position = self._pass_record(data, position, end)
            if position < 0:
                if end - begin >= _BEGINNING:
                    raise MalformedRecord("a varint is too long")
                self._rest = data[begin:end]
                position = end
        self._passed_over = position - end

    def finish(self) -> None:
        """Ends the input. Raises MalformedRecord if records are missing."""
        if not self.has_ended:
            raise MalformedRecord("the batch ends before its records")

    def _pass_record(self, data: bytes, position: i64, end: i64) -> i64:
        """Returns the next record's position; -1 if this record's beginning is incomplete; `end` if it is found."""
        packed: i64 = varint(data, position, end)
        raw: i64 = packed >> 3
        position += packed & 7
        record_end: i64 = position + (raw >> 1)
        position += 1
        size: i64 = varlong_size(data, position, end)
        if packed == 0 or size < 0:
            return -1
        delta: i64 = varlong(data, position, size)
        position += size
        packed = varint(data, position, end)
        if packed == 0:
            return -1
        position += packed & 7
        if raw & 1 != 0 or position > record_end:
            raise MalformedRecord("a record is shorter than its fields")
        raw = packed >> 3
        offset_delta: i64 = (raw >> 1) ^ -(raw & 1)
        self._left -= 1
        if delta >= self._least and offset_delta >= self._least_offset:
            self._settle(int(delta), int(offset_delta))
            return end
        return record_end

    def _settle(self, delta: int, offset_delta: int) -> None:
        timestamp = self._base_timestamp + delta if self._log_append_time is None else self._log_append_time
        self.found = (timestamp, self._base_offset + offset_delta)
