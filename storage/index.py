"""The two sparse indexes of a segment, in Kafka's formats: offset -> position, and timestamp -> offset.

On disk an offset index is entries of int32 offset (relative to the segment's base) and int32 position; a time index
entries of int64 timestamp (ms) and int32 relative offset; big-endian, ascending. Kafka allocates the file of an
active segment in full and trims it at the roll; here a file holds exactly its entries, always.

In memory an index is two arrays, bisected in C. Entries reach the file in blocks, when the segment is flushed,
rolled or closed:
(A) an index of a segment below the recovery point is complete on disk, since the point moves only after a flush;
(B) any other index is rebuilt from its segment after a crash, so nothing is lost by writing late;
(C) so a disk that is full never makes an append fail because of an index: what could not be written is written
    later.

A sealed segment's index is read when it is first used, and may be forgotten again (`unload`). Files are open only
while they are read or written: with ten thousand partitions, two descriptors for each would leave none for clients.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from storage.files import File, Files

OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12
MAX_RELATIVE_OFFSET = 2**31 - 1
_BLOCK_ENTRIES = 512  # unwritten entries that are worth a write of their own
_SWAP = sys.byteorder == "little"


class CorruptIndexError(Exception):
    """An index file that cannot be what was written beside its segment; the remedy is to rebuild it."""


class _IndexFile:
    """The file part that both indexes share: opened when needed, written behind, `written` entries on the disk."""

    __slots__ = ("_file", "_files", "entry_size", "path", "written")

    def __init__(self, files: Files, path: str, entry_size: int) -> None:
        self._files = files
        self._file: File | None = None
        self.path = path
        self.entry_size = entry_size
        self.written = 0

    def open(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path, create=True)
        return self._file

    def read(self) -> bytes:
        file = self.open()
        try:
            return bytes(file.read(0, file.size()))
        finally:
            self.close()

    def write(self, data: bytes, total: int) -> None:
        """Appends whole entries; `total` is how many there are afterwards."""
        self.open().write((data,), self.written * self.entry_size)
        self.written = total

    def truncate(self, entries: int) -> None:
        self.open().truncate(entries * self.entry_size)
        self.written = entries

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class OffsetIndex:
    """Offsets of batches (their last ones) and the positions where those begin."""

    __slots__ = ("_offsets", "_positions", "_store", "base_offset", "max_entries", "rebuild")

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        self._store = _IndexFile(files, path, OFFSET_ENTRY_SIZE)
        self._offsets: array[int] | None = None  # relative; None: not loaded
        self._positions: array[int] = array("I")
        self.base_offset = base_offset
        self.rebuild: Callable[[], None] | None = None  # called when the file turns out to be corrupt
        self.max_entries = max_bytes // OFFSET_ENTRY_SIZE

    @property
    def path(self) -> str:
        return self._store.path

    @path.setter
    def path(self, path: str) -> None:
        self._store.path = path

    @property
    def loaded(self) -> bool:
        return self._offsets is not None

    def load(self) -> None:
        """Reads the file; raises CorruptIndexError unless it is whole entries that ascend.

        The zeros that an interrupted Kafka leaves at the end of an allocated file are no entries.
        """
        data = self._store.read()
        if len(data) % OFFSET_ENTRY_SIZE:
            raise CorruptIndexError(f"{self.path} has {len(data)} bytes, no whole number of entries")
        fields = array("I", data)
        if _SWAP:
            fields.byteswap()
        self._offsets, self._positions = fields[0::2], fields[1::2]
        self._store.written = len(self._offsets)
        end = len(self._offsets)
        while end > 1 and self._offsets[end - 1] == 0 and self._positions[end - 1] == 0:
            end -= 1
        if end == 1 and self._offsets[0] == 0 and self._positions[0] == 0:
            end = 0
        del self._offsets[end:], self._positions[end:]
        try:
            self._check()
        except CorruptIndexError:
            self._offsets = None
            raise

    def _check(self) -> None:
        """Whether the positions are those of batches shows when they are used (LogSegment.locate)."""
        offsets, positions = self._entries().tolist(), self._positions.tolist()
        if len(set(offsets)) != len(offsets) or sorted(offsets) != offsets or sorted(positions) != positions:
            raise CorruptIndexError(f"the entries of {self.path} do not ascend")
        if offsets and offsets[-1] > MAX_RELATIVE_OFFSET:
            raise CorruptIndexError(f"{self.path} has an offset below its segment's base")

    def unload(self) -> None:
        """Forgets the entries if the file has them all; they are read again when needed."""
        if self._offsets is not None and self._store.written == len(self._offsets):
            self._offsets = None
            self._positions = array("I")
        self._store.close()

    def _entries(self) -> "array[int]":
        if self._offsets is None:
            try:
                self.load()
            except CorruptIndexError:
                if self.rebuild is None:
                    raise
                self.rebuild()
            assert self._offsets is not None
        return self._offsets

    def __len__(self) -> int:
        return len(self._entries())

    @property
    def is_full(self) -> bool:
        return len(self._entries()) >= self.max_entries

    @property
    def memory_bytes(self) -> int:
        return 0 if self._offsets is None else len(self._offsets) * OFFSET_ENTRY_SIZE

    @property
    def last_offset(self) -> int:
        offsets = self._entries()
        return self.base_offset + (offsets[-1] if offsets else 0)

    def can_append(self, offset: int) -> bool:
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def entry(self, number: int) -> tuple[int, int]:
        return self.base_offset + self._entries()[number], self._positions[number]

    def lookup(self, offset: int) -> int:
        """The position of the last indexed batch whose last offset is not above `offset`; 0 when there is none."""
        offsets = self._offsets if self._offsets is not None else self._entries()
        slot = bisect_right(offsets, offset - self.base_offset)
        return self._positions[slot - 1] if slot else 0

    def upper_bound_offset(self, position: int) -> int | None:
        """The first indexed offset whose batch begins at `position` or behind it (Kafka's fetchUpperBoundOffset)."""
        offsets = self._entries()
        slot = bisect_left(self._positions, position)
        return self.base_offset + offsets[slot] if slot < len(offsets) else None

    def append(self, offset: int, position: int) -> None:
        offsets = self._entries()
        offsets.append(offset - self.base_offset)
        self._positions.append(position)
        if len(offsets) - self._store.written >= _BLOCK_ENTRIES:
            _write_if_there_is_room(self)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries of `offset` and above."""
        self.truncate_to_entries(bisect_left(self._entries(), offset - self.base_offset))

    def truncate_to_entries(self, entries: int) -> None:
        offsets = self._entries()
        del offsets[entries:], self._positions[entries:]
        if self._store.written > entries:
            self._store.truncate(entries)

    def reset(self) -> None:
        self._offsets = array("I")
        self._positions = array("I")
        self._store.truncate(0)

    def write(self) -> File:
        """Brings the file up to date (OSError when it cannot be) and returns it, open, for a sync."""
        offsets = self._offsets
        if offsets is not None:
            start, end = self._store.written, len(offsets)
            if start > end:
                self._store.truncate(end)
            elif start < end:
                fields = array("I", bytes(OFFSET_ENTRY_SIZE * (end - start)))
                fields[0::2], fields[1::2] = offsets[start:], self._positions[start:]
                if _SWAP:
                    fields.byteswap()
                self._store.write(fields.tobytes(), end)
        return self._store.open()

    def close(self) -> None:
        """Closes the file. What is in memory stays there."""
        self._store.close()


class TimeIndex:
    """Timestamps, and the last offset of the batch up to which none was greater."""

    __slots__ = ("_offsets", "_store", "_timestamps", "base_offset", "max_entries", "rebuild")

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        self._store = _IndexFile(files, path, TIME_ENTRY_SIZE)
        self._timestamps: array[int] | None = None  # None: not loaded
        self._offsets: array[int] = array("I")
        self.base_offset = base_offset
        self.rebuild: Callable[[], None] | None = None  # called when the file turns out to be corrupt
        self.max_entries = max_bytes // TIME_ENTRY_SIZE

    @property
    def path(self) -> str:
        return self._store.path

    @path.setter
    def path(self, path: str) -> None:
        self._store.path = path

    @property
    def loaded(self) -> bool:
        return self._timestamps is not None

    def load(self) -> None:
        """As OffsetIndex.load."""
        data = self._store.read()
        if len(data) % TIME_ENTRY_SIZE:
            raise CorruptIndexError(f"{self.path} has {len(data)} bytes, no whole number of entries")
        fields = array("I", data)
        if _SWAP:
            fields.byteswap()
        timestamps = array("q")
        timestamps.extend(_signed(high << 32 | low) for high, low in zip(fields[0::3], fields[1::3], strict=True))
        self._timestamps, self._offsets = timestamps, fields[2::3]
        self._store.written = end = len(timestamps)
        while end and timestamps[end - 1] == 0 and self._offsets[end - 1] == 0:
            end -= 1
        if end == 0 and len(timestamps) == 1:
            end = 1  # a single record of 1970 is one
        del timestamps[end:], self._offsets[end:]
        try:
            self._check()
        except CorruptIndexError:
            self._timestamps = None
            raise

    def _check(self) -> None:
        timestamps, offsets = self._entries().tolist(), self._offsets.tolist()
        if sorted(timestamps) != timestamps or sorted(offsets) != offsets:
            raise CorruptIndexError(f"the entries of {self.path} do not ascend")
        if offsets and offsets[-1] > MAX_RELATIVE_OFFSET:
            raise CorruptIndexError(f"{self.path} has an offset below its segment's base")

    def unload(self) -> None:
        """As OffsetIndex.unload."""
        if self._timestamps is not None and self._store.written == len(self._timestamps):
            self._timestamps = None
            self._offsets = array("I")
        self._store.close()

    def _entries(self) -> "array[int]":
        if self._timestamps is None:
            try:
                self.load()
            except CorruptIndexError:
                if self.rebuild is None:
                    raise
                self.rebuild()
            assert self._timestamps is not None
        return self._timestamps

    def __len__(self) -> int:
        return len(self._entries())

    @property
    def is_full(self) -> bool:
        """One entry early: the last one is kept for the roll."""
        return len(self._entries()) >= self.max_entries - 1

    @property
    def memory_bytes(self) -> int:
        return 0 if self._timestamps is None else len(self._timestamps) * TIME_ENTRY_SIZE

    @property
    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset); (-1, base offset) of an empty index."""
        timestamps = self._entries()
        if not timestamps:
            return -1, self.base_offset
        return timestamps[-1], self.base_offset + self._offsets[-1]

    def entry(self, number: int) -> tuple[int, int]:
        return self._entries()[number], self.base_offset + self._offsets[number]

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry whose timestamp is not above the one asked for, or (-1, base offset)."""
        slot = bisect_right(self._entries(), timestamp)
        return self.entry(slot - 1) if slot else (-1, self.base_offset)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry when time has moved on since the last one."""
        timestamps = self._entries()
        if timestamp <= (timestamps[-1] if timestamps else -1):
            return
        timestamps.append(timestamp)
        self._offsets.append(offset - self.base_offset)
        if len(timestamps) - self._store.written >= _BLOCK_ENTRIES:
            _write_if_there_is_room(self)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries of `offset` and above."""
        timestamps = self._entries()
        entries = bisect_left(self._offsets, offset - self.base_offset)
        del timestamps[entries:], self._offsets[entries:]
        if self._store.written > entries:
            self._store.truncate(entries)

    def reset(self) -> None:
        self._timestamps = array("q")
        self._offsets = array("I")
        self._store.truncate(0)

    def write(self) -> File:
        """As OffsetIndex.write."""
        timestamps = self._timestamps
        if timestamps is not None:
            start, end = self._store.written, len(timestamps)
            if start > end:
                self._store.truncate(end)
            elif start < end:
                fields = array("I", bytes(TIME_ENTRY_SIZE * (end - start)))
                fields[0::3] = array("I", [timestamp >> 32 & 0xFFFFFFFF for timestamp in timestamps[start:]])
                fields[1::3] = array("I", [timestamp & 0xFFFFFFFF for timestamp in timestamps[start:]])
                fields[2::3] = self._offsets[start:]
                if _SWAP:
                    fields.byteswap()
                self._store.write(fields.tobytes(), end)
        return self._store.open()

    def close(self) -> None:
        """As OffsetIndex.close."""
        self._store.close()


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _write_if_there_is_room(index: OffsetIndex | TimeIndex) -> None:
    try:
        index.write()
        index.close()
    except OSError:  # case (C): the entries stay in memory until a flush, a roll or a close writes them
        pass
