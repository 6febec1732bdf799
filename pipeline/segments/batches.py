"""Batches of message format 2: the header, walking a file by headers, checksums.

A batch, big-endian: int64 base offset, int32 length (of what follows it), int32 leader epoch, int8 magic, uint32
CRC-32C of all behind it, int16 attributes, int32 last offset delta, int64 base timestamp, int64 maximum timestamp,
int64 producer id, int16 producer epoch, int32 base sequence, int32 count of records; then the records.
Attributes: bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control. (DefaultRecordBatch)
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple

from crc32c import crc32c

from odradek.pipeline.errors import PipelineError

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LENGTH_ENDS = 12
CHECKED_FROM = 21
CODEC_BITS = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
WINDOW = 4096 + HEADER_SIZE
MAX_RELATIVE_OFFSET = 2**31 - 1
MEND = "start the broker on it, or restore it"


class Header(NamedTuple):
    """The fields of a batch, as stored."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return LENGTH_ENDS + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


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


def walk(file: SegmentFile, position: int, end: int) -> Iterator[tuple[int, Header]]:
    """The whole batches of [position, end) with their positions, by headers alone; ends where none can begin.

    Raises PipelineError for a message of format 0 or 1."""
    window, start = b"", position
    after = file.base_offset
    while end - position >= HEADER_SIZE:
        if position + HEADER_SIZE > start + len(window):
            window, start = file.read(position, min(WINDOW, end - position)), position
            if len(window) < HEADER_SIZE:
                return
        header = Header._make(HEADER.unpack_from(window, position - start))
        if header.magic in (0, 1):
            refuse_old_format(file, position, header)
        if not is_plausible(header, end - position, file.base_offset, after):
            return
        yield position, header
        position += header.size
        after = header.last_offset + 1


def is_plausible(header: Header, room: int, segment_base: int, after: int) -> bool:
    """Whether a header can be one: of format 2, whole within `room` bytes, its offsets in this segment, from `after`
    on."""
    return (
        header.magic == 2
        and HEADER_SIZE <= header.size <= room
        and header.base_offset >= after
        and 0 <= header.last_offset_delta <= segment_base + MAX_RELATIVE_OFFSET - header.base_offset
        and header.record_count >= 0
    )


def refuse_old_format(file: SegmentFile, position: int, header: Header) -> None:
    """Raises PipelineError if it is a message of format 0 or 1, by its own checksum; else it is damage."""
    if 14 <= header.length <= file.size - position - LENGTH_ENDS:
        message = file.read(position + LENGTH_ENDS, header.length)
        if zlib.crc32(message[4:]) == int.from_bytes(message[:4], "big"):
            raise PipelineError(
                f"{file.path} has a message of format {header.magic} at position {position}, offset "
                f"{header.base_offset}: only format 2 (Kafka 0.11) is read",
                "read this topic through the broker",
            )


def is_intact(file: SegmentFile, position: int, header: Header) -> bool:
    """Whether the checksum is right."""
    data = file.read(position + CHECKED_FROM, header.size - CHECKED_FROM)
    return len(data) == header.size - CHECKED_FROM and crc32c(data) == header.crc


def damaged(file: SegmentFile, position: int, what: str) -> PipelineError:
    """The error for bytes that are no batch, or no good one."""
    return PipelineError(f"{file.path} is damaged at position {position}: {what}", MEND)
