"""Scanning the batches of a segment file by their headers, one window at a time.

Batches of message formats 0 and 1, which an old Kafka may have left in a directory, are scanned too. Their first field
is the offset of the only or the last message.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from odradek.protocol.batch_header import BATCH_OVERHEAD, LOG_OVERHEAD, MAGIC_POSITION, SMALLEST_BATCH_LENGTH
from odradek.storage.files import Buffer, File

# base offset, length, leader epoch, magic, (crc, attributes), last offset delta, (base timestamp), max timestamp
_FIELDS = struct.Struct(">qiib6xi8xq")
_LEGACY_TIMESTAMP = struct.Struct(">q")
_LEGACY_TIMESTAMP_POSITION = 18
SCAN_WINDOW = 4096 + BATCH_OVERHEAD


class ScannedBatch(NamedTuple):
    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    magic: int


class WouldBlock(Exception):
    """The page cache does not have the requested bytes, and the caller must not wait for the disk."""

    def __init__(self, file: File, position: int, length: int) -> None:
        super().__init__(file.path)
        self.file = file
        self.position = position
        self.length = length


def read_window(file: File, position: int, length: int, may_block: bool) -> Buffer:
    """Returns `length` bytes at `position`, fewer at the end of the file. Raises WouldBlock if `may_block` is False and
    they are not in the page cache.
    """
    if may_block:
        return file.read(position, length)
    data = file.read_cached(position, length)
    if data is None:
        raise WouldBlock(file, position, length)
    return data


def scan_batches(file: File, position: int, end: int, *, may_block: bool = True) -> Iterator[ScannedBatch]:
    """Yields the complete batches of [position, end). Stops silently at invalid bytes, which recovery reports."""
    window: Buffer = b""
    start = position
    while end - position >= BATCH_OVERHEAD:
        offset = position - start
        if offset + BATCH_OVERHEAD > len(window):
            window = read_window(file, position, min(SCAN_WINDOW, end - position), may_block)
            start, offset = position, 0
            if len(window) < BATCH_OVERHEAD:
                return
        base, length, epoch, magic, delta, timestamp = _FIELDS.unpack_from(window, offset)
        size = length + LOG_OVERHEAD
        if length < SMALLEST_BATCH_LENGTH or size > end - position:
            return
        if magic != 2:
            if not 0 <= magic < 2:
                return
            epoch, delta = -1, 0
            timestamp = legacy_timestamp(window, offset)
        yield ScannedBatch(position, size, base, base + delta, timestamp, epoch, magic)
        position += size


def legacy_timestamp(data: Buffer, position: int) -> int:
    """Returns the timestamp of a message of format 1, and -1 for format 0, which has none."""
    if data[position + MAGIC_POSITION] == 0:
        return -1
    return int(_LEGACY_TIMESTAMP.unpack_from(data, position + _LEGACY_TIMESTAMP_POSITION)[0])


class CorruptSegment(Exception):
    """The bytes at `position` of a segment are not a valid batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class UnreadableBatch(OSError):
    """A segment does not have a batch where one must be."""


class StoredBatch(NamedTuple):
    """A complete batch in memory: at `start` of `data`, at `position` of the file."""

    data: Buffer
    start: int
    position: int
    size: int
    magic: int


_CHUNK = 1 << 20
_MAGIC_LENGTH = MAGIC_POSITION + 1 - LOG_OVERHEAD
_LENGTH_AND_MAGIC = struct.Struct(">8xi4xB")


def whole_batches(file: File, position: int, end: int) -> Iterator[StoredBatch]:
    """Yields the complete batches of [position, end) with their bytes, read in large chunks; for recovery and replay.

    Stops silently if the last batch is incomplete. Raises CorruptSegment at bytes that are not a batch.
    """
    data: Buffer = b""
    start = position
    while end - position >= LOG_OVERHEAD + _MAGIC_LENGTH:
        offset = position - start
        if len(data) - offset < BATCH_OVERHEAD and start + len(data) < end:
            data = file.read(position, min(_CHUNK, end - position))
            start, offset = position, 0
        if len(data) - offset < LOG_OVERHEAD + _MAGIC_LENGTH:
            return
        length, magic = _LENGTH_AND_MAGIC.unpack_from(data, offset)
        size = length + LOG_OVERHEAD
        if length < SMALLEST_BATCH_LENGTH or (magic == 2 and size < BATCH_OVERHEAD):
            raise CorruptSegment(position, f"batch length {length} is too small")
        if magic > 2:
            raise CorruptSegment(position, f"magic {magic} is unknown")
        if size > end - position:
            return
        if size > len(data) - offset:
            data = file.read(position, max(_CHUNK, size) if end - position > max(_CHUNK, size) else end - position)
            start, offset = position, 0
            if size > len(data):
                return
        yield StoredBatch(data, offset, position, size, magic)
        position += size
