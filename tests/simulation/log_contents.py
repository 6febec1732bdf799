"""The batches of a log as its disk has them, read without an effect on the broker: no file is opened."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

from odradek.protocol.batch_header import BatchHeader, CorruptBatch, check_crc
from odradek.protocol.control_records import ControlType, read_control_type, read_coordinator_epoch
from odradek.protocol.errors import ProtocolError
from odradek.protocol.record import MalformedRecord
from odradek.protocol.records import iter_batches, read_batch_header, read_records
from odradek.storage.file_names import LOG_SUFFIX
from odradek.storage.log.log import Log
from odradek.storage.segment.segment import LogSegment
from tests.simulation.disk import SimulatedDisk

UNDECODABLE = (ProtocolError, MalformedRecord, ValueError, IndexError, struct.error)
"""What decoding a damaged batch may raise."""


class EndOfTransaction(NamedTuple):
    """The marker in a control batch."""

    is_abort: bool
    coordinator_epoch: int
    timestamp_ms: int


class Batch(NamedTuple):
    """A batch at `position` in the file of its segment."""

    segment_base: int
    position: int
    header: BatchHeader
    content: bytes

    @property
    def end_of_transaction(self) -> EndOfTransaction | None:
        """None for data, and for a control batch that the cleaner has emptied."""
        return end_of_transaction(self.content) if self.header.is_control and self.header.record_count else None


class SegmentContents(NamedTuple):
    """The batches of a segment. `damage`: why what follows them is none, within the segment's size."""

    segment: LogSegment
    batches: Sequence[Batch]
    damage: str = ""


@lru_cache(maxsize=10_000)
def end_of_transaction(content: bytes) -> EndOfTransaction | None:
    """The marker in a control batch, None if it has another control record."""
    (record, *_) = read_records(content, 0, read_batch_header(content))
    kind = read_control_type(record.key)
    if kind not in (ControlType.COMMIT, ControlType.ABORT):
        return None
    return EndOfTransaction(kind is ControlType.ABORT, read_coordinator_epoch(record.value), record.timestamp)


@lru_cache(maxsize=20_000)
def why_undecodable(content: bytes) -> str:
    """Why a batch cannot be decoded; nothing if it can."""
    try:
        header = read_batch_header(content)
        if not check_crc(content, 0, header):
            return "its checksum does not match"
        records = read_records(content, 0, header)
    except UNDECODABLE as error:
        return f"{type(error).__name__}: {error}"
    return "" if len(records) == header.record_count else f"it has {len(records)} of {header.record_count} records"


def contents_of(log: Log) -> list[SegmentContents]:
    """All segments of a log, in order."""
    return [segment_contents(log, segment) for segment in log.segments]


def segment_contents(log: Log, segment: LogSegment) -> SegmentContents:
    """The batches of one segment."""
    data = segment_bytes(log, segment)
    batches: list[Batch] = []
    end = 0
    try:
        for position, header in iter_batches(data):
            end = position + header.size_in_bytes
            if end > len(data):
                return SegmentContents(segment, batches, f"a batch at byte {position} that is cut off")
            batches.append(Batch(segment.base_offset, position, header, data[position:end]))
    except CorruptBatch as error:
        return SegmentContents(segment, batches, f"no batch at byte {end}: {error}")
    return SegmentContents(segment, batches, "" if end == segment.size else f"{end} of {segment.size} bytes in batches")


def segment_bytes(log: Log, segment: LogSegment, start: int = 0) -> bytes:
    """What is in the segment from this position on."""
    return file_content(log, segment.path(LOG_SUFFIX), start, segment.size)


def file_content(log: Log, path: str, start: int = 0, end: int | None = None) -> bytes:
    """What is in a file now between two positions, synced or not; nothing if it is not there."""
    inode = cast(SimulatedDisk, log.files).names.get(path)
    return b"" if inode is None else bytes(inode.data[start:end])


def all_batches(contents: Sequence[SegmentContents]) -> Iterator[Batch]:
    """The batches of all segments."""
    return (batch for segment in contents for batch in segment.batches)
