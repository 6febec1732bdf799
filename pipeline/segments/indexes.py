"""The index files of a segment: offset index, transaction index, producer snapshot. All are big-endian.

.index      int32 offset (from the segment's base) and int32 position, ascending; zeros up to the end of the file in
            an active segment of Kafka. The batch at the position starts at or before the offset.
.txnindex   34 bytes each: int16 version 0, int64 producer id, first offset, last offset, last stable offset
.snapshot   int16 version 1, uint32 CRC-32C of the rest, int32 count; then for each producer int64 id, int16 epoch,
            int32 sequence, int64 last offset, int32 delta, int64 timestamp, int32 coordinator epoch, int64 first
            offset of its open transaction, or -1

An index is an optimization: its entries are checked against the segment; without it the whole segment is read.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from odradek.pipeline.segments.batches import SegmentFile, is_intact, read_plausible_header
from odradek.pipeline.segments.log_directory import Segment
from odradek.pipeline.segments.ranges import Aborted
from odradek.protocol.batch_header import BATCH_OVERHEAD, BatchHeader

_ABORTED = struct.Struct(">hqqqq")
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_PRODUCER = struct.Struct(">qhiqiqiq")
_SNAPSHOT_NAME = re.compile(r"(\d{20})\.snapshot")


def read_offset_index(segment: Segment) -> NDArray[np.int64]:
    """Returns rows of offset (absolute) and position, as far as they ascend. Empty without an index."""
    try:
        data = Path(segment.beside(".index")).read_bytes()
    except OSError:
        data = b""
    entries = np.frombuffer(data[: len(data) // 8 * 8], ">i4").reshape(-1, 2).astype(np.int64)
    falls = np.flatnonzero((np.diff(entries, axis=0) <= 0).any(axis=1))
    entries = entries[: falls[0] + 1] if falls.size else entries
    entries[:, 0] += segment.base_offset
    return entries[(entries[:, 1] > 0) & (entries[:, 1] < segment.size)]


def batch_at(file: SegmentFile, entry: NDArray[np.int64]) -> BatchHeader | None:
    """Returns the header of the batch that an index entry points to. None if there is no intact batch."""
    offset, position = int(entry[0]), int(entry[1])
    data = file.read(position, BATCH_OVERHEAD)
    header = read_plausible_header(data, 0, file.size - position, file.base_offset, file.base_offset)
    is_it = header is not None and header.base_offset <= offset and is_intact(file, position, header)
    return header if is_it else None


def position_before(segment: Segment, file: SegmentFile, offset: int) -> int:
    """Returns the position from which to read an offset: the last indexed batch that starts at or before it."""
    entries = read_offset_index(segment)
    last = int(np.searchsorted(entries[:, 0], offset, side="right")) - 1
    return int(entries[last, 1]) if last >= 0 and batch_at(file, entries[last]) else 0


def read_transaction_index(segment: Segment) -> list[Aborted] | None:
    """Returns the aborted transactions that ended in the segment. None if the file is damaged."""
    try:
        data = Path(segment.beside(".txnindex")).read_bytes()
    except FileNotFoundError:
        return []
    found = []
    for version, producer_id, first, last, _ in _ABORTED.iter_unpack(
        data[: len(data) // _ABORTED.size * _ABORTED.size]
    ):
        if version != 0 or last < segment.base_offset or first > last:
            return None
        found.append(Aborted(producer_id, first, last))
    return found if len(data) % _ABORTED.size == 0 else None


def find_snapshots(directory: str) -> list[int]:
    """Returns the offsets of the producer snapshots, in descending order."""
    matches = [_SNAPSHOT_NAME.fullmatch(name) for name in os.listdir(directory)]
    return sorted((int(match[1]) for match in matches if match), reverse=True)


def read_snapshot(directory: str, offset: int) -> dict[int, int] | None:
    """Returns the transactions open at the offset: producer id -> first offset. None if the file is damaged."""
    try:
        data = Path(f"{directory}/{offset:020d}.snapshot").read_bytes()
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
        if version != 1 or crc32c(data[6:]) != crc:
            return None
        producers = [_PRODUCER.unpack_from(data, _SNAPSHOT_HEAD.size + at * _PRODUCER.size) for at in range(count)]
    except (OSError, struct.error):
        return None
    return {producer[0]: producer[-1] for producer in producers if producer[-1] >= 0}
