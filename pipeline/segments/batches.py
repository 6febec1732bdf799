"""The batches of a .log file: plausible headers, iteration by headers, damage.

`protocol/batch_header.py` defines the header's layout. A header must also be plausible at its position in the segment,
because a torn tail may contain any bytes.
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
    """An open .log file, as a context manager. Raises OSError."""

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._descriptor = os.open(path, os.O_RDONLY)
        status = os.fstat(self._descriptor)
        self.size = status.st_size
        self.identity = status.st_ino

    def read(self, position: int, length: int) -> bytes:
        """Reads `length` bytes; fewer only at the end of the file."""
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
    """Yields the headers of the complete batches in [position, end) with their positions. Stops where none starts.

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
    """Returns the header at `at` if it is plausible: of format 2, of a batch that fits in `room` bytes, with offsets in
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
    """Raises PipelineError if the position has a message of format 0 or 1 with a correct checksum. Otherwise the bytes
    are damaged.
    """
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
    """Whether the checksum is correct."""
    return check_crc(file.read(position, header.size_in_bytes), 0, header)


def damaged(file: SegmentFile, position: int, what: str) -> PipelineError:
    """Returns the error for bytes that are not a batch, or not an intact one."""
    return PipelineError(f"{file.path} is damaged at position {position}: {what}", MEND)
