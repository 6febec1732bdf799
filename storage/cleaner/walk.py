"""The cleaner's loops over the records of a batch. They run twice for every record of a compacted log.

The layout of a record is described in protocol/record_walk. These loops read records from the log whose checksum has
been verified. If lengths are inconsistent they return a negative number instead of guessing.

Keys are compared as bytes. A key of 32 bytes or more is replaced with its 32-byte BLAKE2b, so that the size of a key
table is predictable. A short key and a hash cannot collide: they differ in length.

Runs both interpreted and compiled, like record_walk (see compiled_modules.txt).
"""

from hashlib import blake2b
from typing import Final

from mypy_extensions import i64

from odradek.protocol.record_walk import varint, varlong, varlong_size

MALFORMED: Final = -1
LONG_KEY: Final = 32
_NO_OFFSET: Final = (1 << 62) + ((1 << 62) - 1)


def put_keys(data: bytes, start: int, count: int, base_offset: int, from_offset: int, latest: dict[bytes, int]) -> int:
    """Stores in `latest` the offset of each of `count` records in `data[start:]` that has a key and an offset at or
    above `from_offset`; returns the size of those keys in bytes, or MALFORMED.
    """
    return _put_keys(data, start, count, base_offset, from_offset, latest)


def _put_keys(data: bytes, start: i64, count: i64, base_offset: i64, from_offset: i64, latest: dict[bytes, int]) -> int:
    end: i64 = len(data)
    position: i64 = start
    index: i64 = 0
    key_bytes: i64 = 0
    long: i64
    raw: i64
    while index < count:
        long = varint(data, position, end)
        raw = long >> 3
        position += long & 7
        record_end: i64 = position + (raw >> 1)
        if long == 0 or raw & 1 != 0 or record_end > end:
            return MALFORMED
        position += 1
        long = varlong_size(data, position, record_end)
        if long < 0:
            return MALFORMED
        position += long
        long = varint(data, position, record_end)
        if long == 0:
            return MALFORMED
        raw = long >> 3
        position += long & 7
        offset: i64 = base_offset + ((raw >> 1) ^ -(raw & 1))
        long = varint(data, position, record_end)
        if long == 0:
            return MALFORMED
        raw = long >> 3
        position += long & 7
        if raw & 1 == 0:
            size: i64 = raw >> 1
            if position + size > record_end:
                return MALFORMED
            if offset >= from_offset:
                if size < LONG_KEY:
                    latest[data[position : position + size]] = int(offset)
                    key_bytes += size
                else:
                    latest[blake2b(data[position : position + size], digest_size=32).digest()] = int(offset)
                    key_bytes += LONG_KEY
        position = record_end
        index += 1
    return int(key_bytes)


def select_records(
    data: bytes,
    start: int,
    count: int,
    base_offset: int,
    latest_offset: int,
    latest: dict[bytes, int],
    survivors: list[int],
    slot: int,
    tombstones: bool,
) -> tuple[int, list[int], int, int, int, int, int]:
    """Selects which of `count` records in `data[start:]` stay in a compacted log.

    A record stays if its offset is above `latest_offset`, up to which `latest` knows the keys. It also stays if it is
    the last one of its key and has a value or `tombstones` stay. `survivors` are the offsets in `latest`, ascending. A
    `slot` of 0 or above is the index of the batch's first survivor: the batch was read into `latest`, so no key is
    looked up.

    Returns (number of remaining records or MALFORMED, their ranges as start, end, start, end ..., the timestamp delta
    of the first, the smallest and the largest of them, the number of remaining tombstones, the number of removed
    records without a key).
    """
    return _select_records(data, start, count, base_offset, latest_offset, latest, survivors, slot, tombstones)


def _select_records(  # noqa: C901
    data: bytes,
    start: i64,
    count: i64,
    base_offset: i64,
    latest_offset: i64,
    latest: dict[bytes, int],
    survivors: list[int],
    slot: i64,
    tombstones: bool,
) -> tuple[int, list[int], int, int, int, int, int]:
    runs: list[int] = []
    end: i64 = len(data)
    position: i64 = start
    run_start: i64 = -1
    index: i64 = 0
    kept: i64 = 0
    first: i64 = 0
    least: i64 = 0
    most: i64 = 0
    kept_tombstones: i64 = 0
    without_key: i64 = 0
    long: i64
    raw: i64
    size: i64
    delta: i64
    keep: bool
    was_read: bool = slot >= 0
    total: i64 = len(survivors)
    survivor: i64 = survivors[slot] if was_read and slot < total else _NO_OFFSET
    while index < count:
        record_start: i64 = position
        if position + 1 < end and data[position] < 0x80:
            raw = data[position]
            position += 1
        else:
            long = varint(data, position, end)
            if long == 0:
                return MALFORMED, runs, 0, 0, 0, 0, 0
            raw = long >> 3
            position += long & 7
        record_end: i64 = position + (raw >> 1)
        if raw & 1 != 0 or record_end > end:
            return MALFORMED, runs, 0, 0, 0, 0, 0
        position += 1
        size = varlong_size(data, position, record_end)
        if size < 0:
            return MALFORMED, runs, 0, 0, 0, 0, 0
        delta = varlong(data, position, size)
        position += size
        long = varint(data, position, record_end)
        if long == 0:
            return MALFORMED, runs, 0, 0, 0, 0, 0
        raw = long >> 3
        position += long & 7
        offset: i64 = base_offset + ((raw >> 1) ^ -(raw & 1))
        long = varint(data, position, record_end)
        if long == 0:
            return MALFORMED, runs, 0, 0, 0, 0, 0
        raw = long >> 3
        position += long & 7
        keep = offset > latest_offset
        if raw & 1 != 0:
            if not keep:
                without_key += 1
        else:
            size = raw >> 1
            if position + size > record_end:
                return MALFORMED, runs, 0, 0, 0, 0, 0
            if was_read:
                while survivor < offset:
                    slot += 1
                    survivor = survivors[slot] if slot < total else _NO_OFFSET
                keep = survivor == offset
            elif not keep:
                if size < LONG_KEY:
                    found = latest.get(data[position : position + size])
                else:
                    found = latest.get(blake2b(data[position : position + size], digest_size=32).digest())
                if found is None:
                    keep = True
                else:
                    latest_of_key: i64 = found
                    keep = offset >= latest_of_key
            position += size
        if keep:
            long = varint(data, position, record_end)
            if long == 0:
                return MALFORMED, runs, 0, 0, 0, 0, 0
            if (long >> 3) & 1 != 0:
                if tombstones or offset > latest_offset:
                    kept_tombstones += 1
                else:
                    keep = False
        if keep:
            if kept == 0:
                first = delta
                least = delta
                most = delta
            elif delta > most:
                most = delta
            elif delta < least:
                least = delta
            kept += 1
            if run_start < 0:
                run_start = record_start
        elif run_start >= 0:
            runs.append(int(run_start))
            runs.append(int(record_start))
            run_start = -1
        position = record_end
        index += 1
    if run_start >= 0:
        runs.append(int(run_start))
        runs.append(int(position))
    return int(kept), runs, int(first), int(least), int(most), int(kept_tombstones), int(without_key)


def move_timestamps(data: bytes, runs: list[int], shift: int, fixed: bool) -> bytes:
    """Returns the records in `runs` with `shift` subtracted from their timestamp deltas. `fixed`: every delta becomes
    -`shift` (a batch with LogAppendTime). Deltas and shift must fit 62 bits.
    """
    return _move_timestamps(data, runs, shift, fixed)


def _move_timestamps(data: bytes, runs: list[int], shift: i64, fixed: bool) -> bytes:
    parts: list[bytes] = []
    pair: i64 = 0
    total: i64 = len(runs)
    while pair < total:
        position: i64 = runs[pair]
        end: i64 = runs[pair + 1]
        while position < end:
            long: i64 = varint(data, position, end)
            position += long & 7
            record_end: i64 = position + (long >> 4)
            attributes: i64 = position
            position += 1
            size: i64 = varlong_size(data, position, record_end)
            delta: i64 = -shift if fixed else varlong(data, position, size) - shift
            position += size
            encoded: bytes = varint_bytes(delta)
            new_size: i64 = 1 + len(encoded) + (record_end - position)
            parts.append(varint_bytes(new_size))
            parts.append(data[attributes : attributes + 1])
            parts.append(encoded)
            parts.append(data[position:record_end])
            position = record_end
        pair += 2
    return b"".join(parts)


def varint_bytes(value: i64) -> bytes:
    """Encodes a number of at most 62 bits as a ZigZag varint."""
    raw: i64 = (value << 1) ^ (value >> 63)
    parts: list[int] = []
    while raw >= 0x80:
        parts.append(int(raw & 0x7F | 0x80))
        raw >>= 7
    parts.append(int(raw))
    return bytes(parts)
