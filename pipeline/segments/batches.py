"""The batches of a .log file: what can be the header of one, walking a file by headers, damage.

`protocol/batch_header.py` has the header's layout. A header must also fit its place in the segment, because a torn tail
may hold any bytes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from types import TracebackType

from odradek.pipeline.errors import PipelineError
from odradek.protocol.batch_header import (
    BATCH_OVERHEAD,
    HEADER_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MAX_INT32,
    SMALLEST_BATCH_LENGTH,
    UNCHECKED_PART,
    BatchHeader,
    Buffer,
    check_crc,
    read_batch_header,
)
from odradek.protocol.errors import ProtocolError

WINDOW = 4096 + BATCH_OVERHEAD
MEND = "start the broker on it, or restore it"


class SegmentFile:
    """An open .log file. A context manager; raises OSError."""

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._descriptor = os.open(path, os.O_RDONLY)
        status = os.fstat(self._descriptor)
        self.size = status.st_size
        self.identity = status.st_ino

    def read(self, position: int, length: int) -> bytes:
        """Fewer bytes only at the end of the file."""
        data = os.pread(self._descriptor, length, position)
        while 0 < len(data) < length:
            more = os.pread(self._descriptor, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


def walk(file: SegmentFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """The whole batches of [position, end) with their positions, by headers alone; ends where none can begin.

    Raises PipelineError for a message of format 0 or 1."""
    window, start = b"", position
    after = file.base_offset
    while end - position >= BATCH_OVERHEAD:
        if position + BATCH_OVERHEAD > start + len(window):
            window, start = file.read(position, min(WINDOW, end - position)), position
        header = read_plausible_header(window, position - start, end - position, file.base_offset, after)
        if header is None:
            refuse_old_format(file, position)
            return
        yield position, header
        position += header.batch_length + LOG_OVERHEAD
        after = header.base_offset + header.last_offset_delta + 1


def read_plausible_header(data: Buffer, at: int, room: int, segment_base: int, after: int) -> BatchHeader | None:
    """The header at `at`, if it can be one: of format 2, of a batch that is whole within `room` bytes, with offsets in
    this segment, from `after` on."""
    try:
        header = read_batch_header(data, at)
    except ProtocolError:
        return None
    is_plausible = (
        header.batch_length + LOG_OVERHEAD <= room
        and header.base_offset >= after
        and 0 <= header.last_offset_delta <= segment_base + MAX_INT32 - header.base_offset
        and header.record_count >= 0
    )
    return header if is_plausible else None


def refuse_old_format(file: SegmentFile, position: int) -> None:
    """Raises PipelineError if there is a message of format 0 or 1, by its own checksum; else it is damage."""
    head = file.read(position, HEADER_UP_TO_MAGIC)
    if len(head) < HEADER_UP_TO_MAGIC:
        return
    base_offset, length, _, magic = UNCHECKED_PART.unpack(head)
    if magic in (0, 1) and SMALLEST_BATCH_LENGTH <= length <= file.size - position - LOG_OVERHEAD:
        message = file.read(position + LOG_OVERHEAD, length)
        if zlib.crc32(message[4:]) == int.from_bytes(message[:4], "big"):
            raise PipelineError(
                f"{file.path} has a message of format {magic} at position {position}, offset {base_offset}: only "
                "format 2 (Kafka 0.11) is read",
                "read this topic through the broker",
            )


def is_intact(file: SegmentFile, position: int, header: BatchHeader) -> bool:
    """Whether the checksum is right."""
    return check_crc(file.read(position, header.size_in_bytes), 0, header)


def damaged(file: SegmentFile, position: int, what: str) -> PipelineError:
    """The error for bytes that are no batch, or no good one."""
    return PipelineError(f"{file.path} is damaged at position {position}: {what}", MEND)
