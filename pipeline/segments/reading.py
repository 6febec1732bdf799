"""Reads a planned range: finds its file, verifies and inflates its batches, and converts them to Arrow batches."""

from __future__ import annotations

import bisect
import glob
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segments.batches import SegmentFile, damaged, read_plausible_header, refuse_old_format
from odradek.pipeline.segments.columns import Columns
from odradek.pipeline.segments.log_directory import DELETED, LOG, SWAP, list_segments
from odradek.pipeline.segments.options import Options
from odradek.pipeline.segments.ranges import Planned, SegmentRange
from odradek.pipeline.segments.records import BadRecords, Batch, decode, portions
from odradek.protocol.batch_header import BATCH_OVERHEAD, BatchHeader, Compression, check_crc
from odradek.protocol.compression import decompress
from odradek.protocol.compression_errors import CompressionFailed, TooLarge

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 4 << 20
BLOCK_BYTES = 2 << 20
BLOCK_ROWS = 1 << 14
INFLATED_LIMIT = 1 << 30
"""Maximum inflated bytes of a batch, so that a small batch cannot exhaust memory. Apache Kafka has no such limit."""
_TRIES = 10
_log = logging.getLogger(__name__)

_Piece = tuple[SegmentFile, int, int]
"""A file, and the start and end position to read."""


def read_range(wanted: SegmentRange, options: Options) -> Iterator[pa.RecordBatch]:
    """Yields the records of the range, in order. Raises PipelineError."""
    columns = Columns(wanted.topic, wanted.partition, with_headers=options.include_headers)
    aborted = _AbortedBatches(wanted)
    for file, start, end in _find(wanted, options):
        with file:
            for block in _blocks(file, start, end, wanted, aborted, options):
                yield from _arrow_batches(file, block, wanted, columns, options)


def _find(wanted: SegmentRange, options: Options) -> Iterator[_Piece]:
    """Yields the planned file, under any of its names (F), or else its replacements."""
    planned = _open_planned(wanted)
    if planned is None:
        yield from _open_replacements(wanted, options)
        return
    if planned.size < wanted.end_position:
        problem = (
            f"{planned.path} was truncated to {planned.size} bytes: when the read was planned, it had the offsets up "
            f"to {wanted.end_offset - 1} of {wanted.topic}-{wanted.partition}"
        )
        _report_loss(problem, options)
    yield planned, wanted.start_position, min(wanted.end_position, planned.size)


def _open_planned(wanted: SegmentRange) -> SegmentFile | None:
    directories = [wanted.directory, *glob.glob(f"{glob.escape(wanted.directory)}.*-delete")]
    for _ in range(2):  # the file may be renamed during the first pass
        for directory in directories:
            for suffix in (LOG, SWAP, DELETED):
                path = f"{directory}/{wanted.segment.base_offset:020d}{suffix}"
                try:
                    file = SegmentFile(path, wanted.segment.base_offset)
                except FileNotFoundError:
                    continue
                if file.identity == wanted.segment.identity:
                    return file
                with file:
                    pass
    return None


def _open_replacements(wanted: SegmentRange, options: Options) -> Iterator[_Piece]:
    """Yields the cleaner's new segments that contain the range. Offsets that no segment contains are lost (G)."""
    for _ in range(_TRIES):
        try:
            segments = list_segments(wanted.directory) if os.path.isdir(wanted.directory) else []
            at = bisect.bisect_right([one.base_offset for one in segments], wanted.start_offset) - 1
            floor = Planned(segments[at].base_offset, segments[at].identity) if at >= 0 else None
            if floor is None or floor == wanted.previous:
                after = segments[at + 1].base_offset if at + 1 < len(segments) else wanted.end_offset
                _lose(wanted, min(after, wanted.end_offset), options)
                at += 1
            pieces = [one.open() for one in segments[max(at, 0) :] if one.base_offset < wanted.end_offset]
        except FileNotFoundError:
            continue
        yield from ((file, 0, file.size) for file in pieces)
        return
    raise PipelineError(f"{wanted.directory} changes faster than it can be listed", "repeat the read")


def _lose(wanted: SegmentRange, end: int, options: Options) -> None:
    problem = (
        f"the offsets {wanted.start_offset} to {end - 1} of {wanted.topic}-{wanted.partition} are lost: segment "
        f"{wanted.segment.base_offset:020d} was deleted before it was read"
    )
    _report_loss(problem, options)


def _report_loss(problem: str, options: Options) -> None:
    if options.fail_on_data_loss:
        raise PipelineError(problem, "repeat the read, or set failOnDataLoss=false to skip them")
    _log.warning(problem)


class _AbortedBatches:
    """Identifies the batches of aborted transactions (C)."""

    def __init__(self, wanted: SegmentRange) -> None:
        self._of_producer: dict[int, list[tuple[int, int]]] = {}
        for one in sorted(wanted.aborted, key=lambda aborted: aborted.first_offset):
            self._of_producer.setdefault(one.producer_id, []).append((one.first_offset, one.last_offset))

    def has(self, header: BatchHeader) -> bool:
        spans = self._of_producer.get(header.producer_id)
        if spans is None or not header.is_transactional:
            return False
        at = bisect.bisect_right(spans, (header.base_offset, 2**63)) - 1
        return at >= 0 and header.base_offset <= spans[at][1]


def _blocks(
    file: SegmentFile, start: int, end: int, wanted: SegmentRange, aborted: _AbortedBatches, options: Options
) -> Iterator[list[Batch]]:
    """Yields the inflated batches with wanted records, in blocks of about BLOCK_BYTES or BLOCK_ROWS."""
    block: list[Batch] = []
    rows = size = 0
    for position, header, data in _stored(file, start, end):
        if header.base_offset >= wanted.end_offset:
            break
        if header.last_offset < wanted.start_offset:
            continue
        if options.verify_crc and not check_crc(data, 0, header):
            raise damaged(file, position, f"the checksum of the batch at offset {header.base_offset} is wrong")
        if header.is_control or header.record_count == 0 or aborted.has(header):
            continue
        for part in _parts(file, position, header, data):
            block.append(part)
            rows += part.record_count
            size += len(part.records)
            if rows >= BLOCK_ROWS or size >= BLOCK_BYTES:
                yield block
                block, rows, size = [], 0, 0
    if block:
        yield block


def _parts(file: SegmentFile, position: int, header: BatchHeader, data: memoryview) -> Iterator[Batch]:
    """Yields the inflated batch, in parts if it has more than BLOCK_ROWS records."""
    try:
        records = _inflated(data[BATCH_OVERHEAD:], header)
        yield from portions(Batch(header, records, header.record_count, position), BLOCK_ROWS)
    except (BadRecords, CompressionFailed, TooLarge) as error:
        raise _unreadable(file, position, header, error) from error


def _inflated(records: memoryview, header: BatchHeader) -> bytes | memoryview:
    if header.compression == Compression.NONE:
        return records
    return decompress(header.compression, records, INFLATED_LIMIT)


def _unreadable(file: SegmentFile, position: int, header: BatchHeader, error: Exception) -> PipelineError:
    return PipelineError(
        f"{file.path} has a batch at position {position}, offset {header.base_offset}, that cannot be read: {error}",
        f"skip it: read up to {header.base_offset} (endingOffsets), then from {header.last_offset + 1} "
        "(startingOffsets)",
    )


def _stored(file: SegmentFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yields all batches of [position, end) with their bytes. Raises PipelineError at an incomplete batch."""
    after = file.base_offset
    need = CHUNK
    while position < end:
        wanted = min(need, end - position)
        chunk = memoryview(file.read(position, wanted))
        at, need = 0, CHUNK
        while len(chunk) - at >= BATCH_OVERHEAD:
            header = read_plausible_header(chunk, at, end - position, file.base_offset, after)
            if header is None:
                refuse_old_format(file, position)
                raise damaged(file, position, "no complete batch starts there")
            size = header.size_in_bytes
            if size > len(chunk) - at:
                need = max(CHUNK, size)
                break
            yield position, header, chunk[at : at + size]
            at += size
            position += size
            after = header.last_offset + 1
        if at == 0 and (len(chunk) < wanted or wanted < BATCH_OVERHEAD):
            raise damaged(file, position, "the file ends within a batch")


def _arrow_batches(
    file: SegmentFile, block: list[Batch], wanted: SegmentRange, columns: Columns, options: Options
) -> Iterator[pa.RecordBatch]:
    """Yields the block's wanted rows, in Arrow batches of at most BLOCK_ROWS."""
    try:
        rows = decode(block, with_headers=options.include_headers)
        chosen = None
        if block[0].header.base_offset < wanted.start_offset or block[-1].header.last_offset >= wanted.end_offset:
            chosen = np.flatnonzero((rows.offsets >= wanted.start_offset) & (rows.offsets < wanted.end_offset))
        batch = columns.batch(rows, chosen)
    except BadRecords as error:
        bad = block[error.batch]
        raise _unreadable(file, bad.position, bad.header, error) from error
    for at in range(0, batch.num_rows, BLOCK_ROWS):
        yield batch.slice(at, BLOCK_ROWS)
