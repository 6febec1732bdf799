"""Finds the end of a partition's log, and its open and aborted transactions.

The last segment is read by its batch headers, starting as late as its index or a producer snapshot allows.
"""

from __future__ import annotations

import bisect
from typing import NamedTuple

from odradek.pipeline.segments.batches import SegmentFile, damaged, is_intact, walk
from odradek.pipeline.segments.indexes import (
    batch_at,
    find_snapshots,
    position_before,
    read_offset_index,
    read_snapshot,
    read_transaction_index,
)
from odradek.pipeline.segments.log_directory import Segment
from odradek.pipeline.segments.ranges import Aborted
from odradek.protocol.batch_contents import read_records
from odradek.protocol.batch_header import BatchHeader
from odradek.protocol.control_records import ControlType, read_control_type
from odradek.protocol.errors import ProtocolError

_INDEX_ENTRIES = 3  # tried from the last one; it may point into a torn tail


class LogEnd(NamedTuple):
    """The offset after the last intact batch, and its position in the last segment."""

    offset: int
    position: int


def find_log_end(last: Segment) -> LogEnd:
    """Returns the end of the log. Raises PipelineError if there is damage before the tail (D)."""
    with last.open() as file:
        entries = read_offset_index(last)
        for entry in entries[: -1 - _INDEX_ENTRIES : -1]:
            if batch_at(file, entry):
                return _end_from(file, int(entry[1])) or LogEnd(last.base_offset, 0)
        found = _end_from(file, 0) or LogEnd(last.base_offset, 0)
        for entry in entries[entries[:, 1] > found.position]:
            if batch_at(file, entry):
                raise damaged(file, found.position, f"no batch starts there, but one does at {entry[1]}")
        return found


def _end_from(file: SegmentFile, start: int) -> LogEnd | None:
    """Returns the end of the last intact batch from `start` on. None if there is none."""
    batches = list(walk(file, start, file.size))
    for position, header in reversed(batches):
        if is_intact(file, position, header):
            return LogEnd(header.last_offset + 1, position + header.size_in_bytes)
    return None


class Transactions(NamedTuple):
    """The last stable offset of a log, and the aborted transactions that a read_committed reader skips."""

    last_stable_offset: int
    aborted: list[Aborted]


def find_transactions(directory: str, segments: list[Segment], start_offset: int, end: LogEnd) -> Transactions:
    """Returns the transactions of [start_offset, end). Raises PipelineError, OSError.

    Aborted transactions come from the transaction indexes; from a damaged index on, and after the last producer
    snapshot, from the markers themselves. Open transactions come from the snapshot and the batches after it."""
    bases = [segment.base_offset for segment in segments]
    aborted: set[Aborted] = set()
    walk_from = end.offset
    for segment in segments[max(bisect.bisect_right(bases, start_offset) - 1, 0) :]:
        entries = read_transaction_index(segment)
        if entries is None:
            walk_from = min(walk_from, segment.base_offset)
        aborted.update(entries or ())
    offset, still_open = _snapshot_before(directory, walk_from, segments[0].base_offset)
    follower = _Follower(still_open)
    for number in range(max(bisect.bisect_right(bases, offset) - 1, 0), len(segments)):
        is_last = number == len(segments) - 1
        follower.follow(segments[number], offset, end.position if is_last else None)
    aborted.update(follower.aborted)
    stable = min(follower.still_open.values(), default=end.offset)
    return Transactions(stable, sorted(one for one in aborted if one.last_offset >= start_offset))


def _snapshot_before(directory: str, offset: int, log_start: int) -> tuple[int, dict[int, int]]:
    """Returns the newest intact snapshot at or below the offset; without one, the start of the log."""
    for candidate in find_snapshots(directory):
        if log_start <= candidate <= offset and (found := read_snapshot(directory, candidate)) is not None:
            return candidate, found
    return log_start, {}


class _Follower:
    """Tracks transactions from batch to batch."""

    def __init__(self, still_open: dict[int, int]) -> None:
        self.still_open = still_open
        self.aborted: list[Aborted] = []

    def follow(self, segment: Segment, offset: int, end: int | None) -> None:
        """Processes the batches from `offset` on. `end` is None if the segment must be intact up to its end."""
        with segment.open() as file:
            after = position_before(segment, file, offset) if offset > segment.base_offset else 0
            limit = segment.size if end is None else end
            for position, header in walk(file, after, limit):
                if header.is_transactional and header.last_offset >= offset:
                    self._take(file, position, header)
                after = position + header.size_in_bytes
            if after != limit:
                raise damaged(file, after, "no complete batch starts there")

    def _take(self, file: SegmentFile, position: int, header: BatchHeader) -> None:
        if not header.is_control:
            self.still_open.setdefault(header.producer_id, header.base_offset)
            return
        kind = _control_type(file.read(position, header.size_in_bytes), header)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return
        first = self.still_open.pop(header.producer_id, None)
        if kind == ControlType.ABORT and first is not None:
            self.aborted.append(Aborted(header.producer_id, first, header.last_offset))


def _control_type(batch: bytes, header: BatchHeader) -> ControlType:
    """Returns the type of a control batch. UNKNOWN if the batch is empty, or if its record or key is damaged."""
    try:
        records = read_records(batch, 0, header)
        return read_control_type(records[0].key) if records else ControlType.UNKNOWN
    except ProtocolError:
        return ControlType.UNKNOWN
