"""Decodes the records of many batches at once: positions first, then whole columns with numpy.

A record: varint length, int8 attributes, varlong timestamp delta, varint offset delta, varint key length, the key,
varint value length, the value, varint count of headers, the headers (varint key length, key, varint value length,
value). Negative lengths mean null. Varints are zigzag-encoded. (DefaultRecord, KIP-82)

The start of a record is known only from the record before it. So `follow` goes from length to length, the only Python
code that runs per record. Then each field is read for all records at once, at an array of positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.pipeline.segments.record_starts import follow
from odradek.protocol.batch_header import TIMESTAMP_TYPE_MASK, BatchHeader

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
_SMALLEST_RECORD = 7
_GREATEST_MS = (2**63 - 1) // 1000  # Spark counts microseconds
_INT_BYTES, _LONG_BYTES = 5, 10


class BadRecords(Exception):
    """Records that do not match their lengths and counts. `batch` is the index of the batch within the block."""

    def __init__(self, batch: int, reason: str) -> None:
        super().__init__(reason)
        self.batch = batch


class Batch(NamedTuple):
    """A batch of a block, or a part of a batch: its header, its decompressed records, their number, and the batch's
    position in the file."""

    header: BatchHeader
    records: bytes | memoryview
    record_count: int
    position: int


@dataclass(slots=True)
class Headers:
    """The headers of all records, in order. `record` is the row; the others are positions in the block's data."""

    record: Ints
    key_starts: Ints
    key_ends: Ints
    value_starts: Ints
    value_ends: Ints
    value_nulls: NDArray[np.bool_]


@dataclass(slots=True)
class Rows:
    """The columns of a block. Keys and values are positions in `data`."""

    data: bytes
    offsets: Ints
    timestamps: Ints
    timestamp_types: NDArray[np.int32] | None
    """None: all are CreateTime."""
    key_starts: Ints
    key_ends: Ints
    key_nulls: NDArray[np.bool_]
    value_starts: Ints
    value_ends: Ints
    value_nulls: NDArray[np.bool_]
    headers: Headers | None

    def __len__(self) -> int:
        return len(self.offsets)


def decode(batches: list[Batch], *, with_headers: bool = False) -> Rows:
    """Decodes all records of the batches. Raises BadRecords."""
    data = b"".join([batch.records for batch in batches])
    counts = np.array([batch.record_count for batch in batches], np.int64)
    starts = np.array(_starts(data, batches), np.int64)
    decoder = _Decoder(np.frombuffer(data, np.uint8), np.cumsum(counts))
    lengths, body = decoder.varints(starts, _INT_BYTES)
    ends = body + lengths
    following = np.append(starts[1:], len(data))
    decoder.require(ends == following, "a record has a negative length")
    decoder.ends = ends
    timestamp_deltas, at = decoder.varints(body + 1, _LONG_BYTES)
    offset_deltas, at = decoder.varints(at, _INT_BYTES)
    keys = decoder.spans(at)
    values = decoder.spans(keys.ends)
    header_counts, at = decoder.varints(values.ends, _INT_BYTES)
    decoder.require(header_counts >= 0, "a record has a negative count of headers")
    decoder.require((header_counts > 0) | (at == ends), "a record is longer than its fields")
    timestamps = _timestamps(batches, counts, timestamp_deltas)
    decoder.require(np.abs(timestamps // 2) <= _GREATEST_MS // 2, "a timestamp is beyond Spark's range")
    append_time = any(batch.header.attributes & TIMESTAMP_TYPE_MASK for batch in batches)
    return Rows(
        data,
        np.repeat(np.array([batch.header.base_offset for batch in batches], np.int64), counts) + offset_deltas,
        timestamps,
        np.repeat(_timestamp_types(batches), counts) if append_time else None,
        keys.starts,
        keys.ends,
        keys.nulls,
        values.starts,
        values.ends,
        values.nulls,
        decoder.headers(header_counts, at) if with_headers else None,
    )


def _starts(data: bytes, batches: list[Batch]) -> list[int]:
    """Returns the start positions of the records. Raises BadRecords."""
    starts: list[int] = []
    position = end = 0
    for number, batch in enumerate(batches):
        position, end = end, end + len(batch.records)
        count = batch.record_count
        if count > (end - position) // _SMALLEST_RECORD:
            raise BadRecords(number, f"{end - position} bytes cannot hold {count} records")
        try:
            position = follow(data, position, count, starts)
        except IndexError:
            position = -1
        if position != end:
            raise BadRecords(number, f"its {count} records do not fill it exactly")
    return starts


def portions(batch: Batch, most: int) -> Iterator[Batch]:
    """Yields the batch in parts of at most `most` records, so that a batch of millions does not exhaust memory.

    Raises BadRecords."""
    count, position = batch.record_count, 0
    records = bytes(batch.records) if count > most else b""
    while count > most:
        try:
            end = follow(records, position, most, [])
        except IndexError:
            end = len(records) + 1
        if end > len(records):
            raise BadRecords(0, f"its {batch.record_count} records do not fit into it")
        yield batch._replace(records=records[position:end], record_count=most)
        count, position = count - most, end
    if position:
        batch = batch._replace(records=records[position:], record_count=count)
    yield batch


def _timestamps(batches: list[Batch], counts: Ints, deltas: Ints) -> Ints:
    """Returns milliseconds: base plus delta, or the batch's maximum timestamp (LogAppendTime)."""
    appended = np.array([bool(batch.header.attributes & TIMESTAMP_TYPE_MASK) for batch in batches])
    base = np.array(
        [
            header.max_timestamp if one else header.base_timestamp
            for (header, *_), one in zip(batches, appended, strict=True)
        ],
        np.int64,
    )
    if appended.any():
        deltas = np.where(np.repeat(appended, counts), 0, deltas)
    return np.repeat(base, counts) + deltas


def _timestamp_types(batches: list[Batch]) -> NDArray[np.int32]:
    return np.array([1 if batch.header.attributes & TIMESTAMP_TYPE_MASK else 0 for batch in batches], np.int32)


class _Spans(NamedTuple):
    """Keys or values: the range [start, end) of each, and whether it is null (then start = end)."""

    starts: Ints
    ends: Ints
    nulls: NDArray[np.bool_]


class _Decoder:
    """Reads fields at arrays of positions, one per record, and never beyond the record's end."""

    def __init__(self, data: Bytes, last_rows: Ints) -> None:
        self._data = data
        self._last_rows = last_rows
        self.ends: Ints = np.full(last_rows[-1], len(data), np.int64)

    def require(self, good: NDArray[np.bool_], reason: str) -> None:
        """Raises BadRecords for the first record that is not good."""
        if not good.all():
            self._refuse(int(np.argmin(good)), reason)

    def _refuse(self, row: int, reason: str) -> None:
        raise BadRecords(int(np.searchsorted(self._last_rows, row, side="right")), reason)

    def varints(self, at: Ints, longest: int, rows: Ints | None = None) -> tuple[Ints, Ints]:
        """Returns the numbers at `at` and the positions after them. `rows`: their records; None: one of each record.

        Raises BadRecords if a number has more than `longest` bytes or extends beyond the record's end."""
        ends = self.ends if rows is None else self.ends[rows]
        self._require_inside(at, ends, rows)
        byte = self._data[at]
        value = (byte & 0x7F).astype(np.uint64)
        at = at + 1
        more = np.flatnonzero(byte > 0x7F)
        shift = 7
        while more.size:
            owners = more if rows is None else rows[more]
            if shift == 7 * longest:
                self._refuse(int(owners[0]), "a number has too many bytes")
            self._require_inside(at[more], ends[more], owners)
            byte = self._data[at[more]]
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[more] += 1
            more = more[byte > 0x7F]
            shift += 7
        return ((value >> np.uint64(1)) ^ (np.uint64(0) - (value & np.uint64(1)))).view(np.int64), at

    def _require_inside(self, at: Ints, ends: Ints, rows: Ints | None) -> None:
        inside = at < ends
        if not inside.all():
            first = int(np.argmin(inside))
            self._refuse(first if rows is None else int(rows[first]), "a record is shorter than its fields")

    def spans(self, at: Ints, rows: Ints | None = None) -> _Spans:
        """Returns the length-prefixed byte strings at `at`. Raises BadRecords if one extends beyond its record."""
        lengths, starts = self.varints(at, _INT_BYTES, rows)
        nulls = lengths < 0
        ends = starts + np.maximum(lengths, 0)
        limits = self.ends if rows is None else self.ends[rows]
        self._require_inside(ends, limits + 1, rows)
        return _Spans(starts, ends, nulls)

    def headers(self, counts: Ints, at: Ints) -> Headers:
        """Reads the headers of all records: the first of each, the second of each, and so on; then sorts them."""
        parts: list[tuple[Ints, _Spans, _Spans]] = []
        ends = self.ends.copy()
        rows = np.flatnonzero(counts)
        at, number = at[rows], 1
        while rows.size:
            keys = self.spans(at, rows)
            if keys.nulls.any():
                self._refuse(int(rows[np.argmax(keys.nulls)]), "the key of a header is null")
            values = self.spans(keys.ends, rows)
            parts.append((rows, keys, values))
            left = counts[rows] > number
            done = values.ends[~left] == ends[rows[~left]]
            if not done.all():
                self._refuse(int(rows[~left][np.argmin(done)]), "a record is longer than its headers")
            rows, at, number = rows[left], values.ends[left], number + 1
        return _in_order(parts)


def _in_order(parts: list[tuple[Ints, _Spans, _Spans]]) -> Headers:
    if not parts:
        none = np.empty(0, np.int64)
        return Headers(none, none, none, none, none, np.empty(0, np.bool_))
    record = np.concatenate([rows for rows, _, _ in parts])
    order = np.argsort(record, kind="stable")
    return Headers(
        record[order],
        np.concatenate([keys.starts for _, keys, _ in parts])[order],
        np.concatenate([keys.ends for _, keys, _ in parts])[order],
        np.concatenate([values.starts for _, _, values in parts])[order],
        np.concatenate([values.ends for _, _, values in parts])[order],
        np.concatenate([values.nulls for _, _, values in parts])[order],
    )
