"""One record of a batch: reads it from the batch's decompressed bytes, and writes it.

The layout is in record_walk.
"""

from collections.abc import Iterator

# A record's timestamp, offset and sequence are relative to those of its batch.
_TWO_64 = 1 << 64
_MAX_INT64 = (1 << 63) - 1
_MAX_INT32 = (1 << 31) - 1


class MalformedRecord(ValueError):
    """A record is truncated, or its length differs from that of its fields."""


class Record:
    """A decoded record.

    `offset` is absolute; `timestamp` is in milliseconds since 1970, -1 for none; `key` and `value` are None for null;
    `headers` are (key, value or None) in order; `sequence` is -1 outside idempotent batches; `attributes` is raw.
    """

    __slots__ = ("attributes", "headers", "key", "offset", "sequence", "timestamp", "value")

    def __init__(
        self,
        offset: int = 0,
        timestamp: int = -1,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
        sequence: int = -1,
        attributes: int = 0,
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers: list[tuple[str, bytes | None]] = [] if headers is None else headers
        self.sequence = sequence
        self.attributes = attributes

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, value={self.value!r}, "
            f"headers={self.headers!r}, sequence={self.sequence})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.timestamp == other.timestamp
            and self.key == other.key
            and self.value == other.value
            and self.headers == other.headers
            and self.sequence == other.sequence
        )

    __hash__ = None  # type: ignore[assignment]


class _Reader:
    """A read position in the bytes of a batch's records."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position
        self.end = len(data)

    def varint(self) -> int:
        raw = 0
        for shift in range(0, 35, 7):
            if self.position >= self.end:
                raise MalformedRecord("a varint is truncated")
            byte = self.data[self.position]
            self.position += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                raw &= 0xFFFFFFFF
                return (raw >> 1) ^ -(raw & 1)
        raise MalformedRecord("a varint has more than five bytes")

    def varlong(self) -> int:
        raw = 0
        for shift in range(0, 70, 7):
            if self.position >= self.end:
                raise MalformedRecord("a varlong is truncated")
            byte = self.data[self.position]
            self.position += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                raw &= _TWO_64 - 1
                return (raw >> 1) ^ -(raw & 1)
        raise MalformedRecord("a varlong has more than ten bytes")

    def nullable_bytes(self) -> bytes | None:
        size = self.varint()
        return None if size < 0 else self.take(size)

    def take(self, size: int) -> bytes:
        start = self.position
        if size > self.end - start:
            raise MalformedRecord(f"a field of {size} bytes exceeds the remaining {self.end - start}")
        self.position = start + size
        return self.data[start : start + size]


def read_each(
    data: bytes,
    position: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    base_sequence: int,
    log_append_time: int | None,
) -> Iterator[Record]:
    """Yields `count` records from `position` to the end of `data`.

    `log_append_time` is the timestamp of every record if the batch's timestamp type is LogAppendTime, else None.
    Raises MalformedRecord for what Kafka's reader refuses, including bytes after the last record.
    """
    reader = _Reader(data, position)
    for _ in range(count):
        record = _read_one(reader, base_timestamp)
        if base_sequence >= 0:
            record.sequence = base_sequence + record.offset
            if record.sequence > _MAX_INT32:
                record.sequence -= _MAX_INT32 + 1
        record.offset += base_offset
        if log_append_time is not None:
            record.timestamp = log_append_time
        yield record
    if count > 0 and reader.position != len(data):
        raise MalformedRecord(f"{len(data) - reader.position} bytes follow the last record")


def _read_one(reader: _Reader, base_timestamp: int) -> Record:
    """Reads the record at the reader's position; its offset is still relative to the batch's."""
    size = reader.varint()
    start = reader.position
    end = start + size
    if size < 0 or end > reader.end:
        raise MalformedRecord(f"a record of {size} bytes exceeds the remaining {reader.end - start}")
    attributes = reader.take(1)[0]
    timestamp = wrap_int64(base_timestamp + reader.varlong())
    offset_delta = reader.varint()
    key = reader.nullable_bytes()
    value = reader.nullable_bytes()
    header_count = reader.varint()
    if header_count < 0 or header_count > reader.end - reader.position:
        raise MalformedRecord(f"{header_count} headers exceed the remaining {reader.end - reader.position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(header_count):
        key_size = reader.varint()
        if key_size < 0:
            raise MalformedRecord("a header's key is null")
        header_key = reader.take(key_size).decode("utf-8", "replace")
        headers.append((header_key, reader.nullable_bytes()))
    if reader.position != end:
        raise MalformedRecord(f"a record of {size} bytes has fields of {reader.position - start} bytes")
    return Record(offset_delta, timestamp, key, value, headers, -1, attributes)


def wrap_int64(value: int) -> int:
    """Wraps a timestamp or delta to 64 bits: deltas of more than 63 bits wrap around in writers and readers alike."""
    return (value + _MAX_INT64 + 1) % _TWO_64 - _MAX_INT64 - 1


def varint_bytes(value: int) -> bytes:
    """Encodes `value` (at most 64 bits) as a ZigZag varint or varlong."""
    raw = (value << 1) ^ (value >> 63)
    if raw < 0x80:
        return bytes((raw,))
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def record_bytes(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """Encodes the record as in a batch, its length first; attributes are 0, as in Kafka."""
    key, value = record.key, record.value
    parts = [b"\x00", varint_bytes(timestamp_delta), varint_bytes(offset_delta)]
    parts += (b"\x01",) if key is None else (varint_bytes(len(key)), key)
    parts += (b"\x01",) if value is None else (varint_bytes(len(value)), value)
    parts.append(varint_bytes(len(record.headers)))
    for header_key, header_value in record.headers:
        encoded = header_key.encode()
        parts += (varint_bytes(len(encoded)), encoded)
        parts += (b"\x01",) if header_value is None else (varint_bytes(len(header_value)), header_value)
    body = b"".join(parts)
    return varint_bytes(len(body)) + body
