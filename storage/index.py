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

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import ClassVar, Literal

import structlog

from odradek.storage.files import File, Files, is_full

_log = structlog.get_logger(__name__)
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

    def exists(self) -> bool:
        return self._file is not None or self._files.exists(self.path)

    def open(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path, create=True)
        return self._file

    def read(self) -> bytes:
        """The content; nothing of a file that is missing, for there may be no room to make it."""
        if not self.exists():
            return b""
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

    def remove(self) -> None:
        self.close()
        self._files.remove(self.path)
        self.written = 0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class SparseIndex:
    """What both indexes are: keys that ascend, and what lies at each. The two say which is which, and how an entry lies
    in the file.
    """

    __slots__ = ("_keys", "_store", "_values", "base_offset", "max_entries", "rebuild")
    _entry_size: ClassVar[int]
    _key_type: ClassVar[Literal["I", "q"]]

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        self._store = _IndexFile(files, path, self._entry_size)
        self._keys: array[int] | None = None  # None: not loaded
        self._values: array[int] = array("I")
        self.base_offset = base_offset
        self.rebuild: Callable[[], None] | None = None  # called when the file turns out to be corrupt
        self.max_entries = max_bytes // self._entry_size

    # ---- what the two differ in

    def _decode(self, fields: array[int]) -> tuple[array[int], array[int]]:
        """Keys and values of the file's four-byte fields."""
        raise NotImplementedError

    def _encode(self, keys: array[int], values: array[int]) -> array[int]:
        """The file's four-byte fields of keys and values."""
        raise NotImplementedError

    def _end(self, keys: array[int], values: array[int]) -> int:
        """How many entries there are before the zeros that an interrupted Kafka leaves at the end of a file."""
        raise NotImplementedError

    def _is_sound(self, keys: list[int], values: list[int]) -> bool:
        """Whether entries ascend as they must."""
        raise NotImplementedError

    def _relative_offsets(self) -> array[int]:
        raise NotImplementedError

    # ---- in memory or not

    @property
    def path(self) -> str:
        return self._store.path

    @path.setter
    def path(self, path: str) -> None:
        self._store.path = path

    @property
    def loaded(self) -> bool:
        return self._keys is not None

    def load(self) -> None:
        """Reads the file; raises CorruptIndexError unless it is whole entries that ascend."""
        data = self._store.read()
        if len(data) % self._entry_size:
            raise CorruptIndexError(f"{self.path} has {len(data)} bytes, no whole number of entries")
        fields = array("I", data)
        if _SWAP:
            fields.byteswap()
        keys, values = self._decode(fields)
        self._store.written = len(keys)
        end = self._end(keys, values)
        del keys[end:], values[end:]
        self._keys, self._values = keys, values
        try:
            self._check()
        except CorruptIndexError:
            self._keys = None
            raise

    def _check(self) -> None:
        """Whether positions are those of batches shows when they are used (LogSegment.locate)."""
        if not self._is_sound(self._entries().tolist(), self._values.tolist()):
            raise CorruptIndexError(f"the entries of {self.path} do not ascend")
        offsets = self._relative_offsets()
        if offsets and offsets[-1] > MAX_RELATIVE_OFFSET:
            raise CorruptIndexError(f"{self.path} has an offset below its segment's base")

    def unload(self) -> None:
        """Forgets the entries if the file has them all; they are read again when needed."""
        if self._keys is not None and self._store.written == len(self._keys):
            self._keys = None
            self._values = array("I")
        self._store.close()

    def _entries(self) -> array[int]:
        """The keys, read from the file if need be."""
        if self._keys is None:
            try:
                self.load()
            except CorruptIndexError:
                if self.rebuild is None:
                    raise
                self.rebuild()
            assert self._keys is not None
        return self._keys

    def __len__(self) -> int:
        return len(self._entries())

    @property
    def is_full(self) -> bool:
        return len(self._entries()) >= self.max_entries

    @property
    def memory_bytes(self) -> int:
        return 0 if self._keys is None else len(self._keys) * self._entry_size

    # ---- changes

    def _append(self, key: int, value: int) -> None:
        keys = self._entries()
        keys.append(key)
        self._values.append(value)
        if len(keys) - self._store.written >= _BLOCK_ENTRIES:
            self.write_if_there_is_room()

    def write_if_there_is_room(self) -> None:
        """Case (C): entries that cannot be written stay in memory until a flush, a roll or a close writes them."""
        try:
            self.write()
        except OSError:
            pass
        finally:
            self.close()

    def write_durably_if_there_is_room(self) -> None:
        """The file of a sealed segment is complete and synced; or, on a full disk, it is gone, so that the next start
        makes it anew. Raises OSError.
        """
        try:
            self.write().sync()
        except OSError as error:
            if not is_full(error):
                raise
            self._store.remove()
            _log.warning("index write deferred", path=self.path, reason=str(error))
        finally:
            self.close()

    def truncate_to(self, offset: int) -> None:
        """Drops the entries of `offset` and above."""
        self._entries()
        self.truncate_to_entries(bisect_left(self._relative_offsets(), offset - self.base_offset))

    def truncate_to_entries(self, entries: int) -> None:
        keys = self._entries()
        del keys[entries:], self._values[entries:]
        if self._store.written > entries:
            self._store.truncate(entries)

    def reset(self) -> None:
        self._keys = array(self._key_type)
        self._values = array("I")
        if self._store.exists():
            self._store.truncate(0)

    def write(self) -> File:
        """Brings the file up to date (OSError when it cannot be) and returns it, open, for a sync."""
        keys = self._keys
        if keys is not None:
            start, end = self._store.written, len(keys)
            if start > end:
                self._store.truncate(end)
            elif start < end:
                fields = self._encode(keys[start:], self._values[start:])
                if _SWAP:
                    fields.byteswap()
                self._store.write(fields.tobytes(), end)
        return self._store.open()

    def close(self) -> None:
        """Closes the file. What is in memory stays there."""
        self._store.close()


class OffsetIndex(SparseIndex):
    """Offsets of batches (their last ones, relative in memory too) and the positions where those begin."""

    __slots__ = ()
    _entry_size = OFFSET_ENTRY_SIZE
    _key_type = "I"

    def _decode(self, fields: array[int]) -> tuple[array[int], array[int]]:
        return fields[0::2], fields[1::2]

    def _encode(self, keys: array[int], values: array[int]) -> array[int]:
        fields = array("I", bytes(OFFSET_ENTRY_SIZE * len(keys)))
        fields[0::2], fields[1::2] = keys, values
        return fields

    def _end(self, keys: array[int], values: array[int]) -> int:
        end = len(keys)
        while end and keys[end - 1] == 0 and values[end - 1] == 0:
            end -= 1
        return end

    def _is_sound(self, keys: list[int], values: list[int]) -> bool:
        return len(set(keys)) == len(keys) and sorted(keys) == keys and sorted(values) == values

    def _relative_offsets(self) -> array[int]:
        return self._entries()

    @property
    def last_offset(self) -> int:
        offsets = self._entries()
        return self.base_offset + (offsets[-1] if offsets else 0)

    def entry(self, number: int) -> tuple[int, int]:
        return self.base_offset + self._entries()[number], self._values[number]

    def lookup(self, offset: int) -> int:
        """The position of the last indexed batch whose last offset is not above `offset`; 0 when there is none."""
        offsets = self._keys if self._keys is not None else self._entries()
        slot = bisect_right(offsets, offset - self.base_offset)
        return self._values[slot - 1] if slot else 0

    def upper_bound_offset(self, position: int) -> int | None:
        """The first indexed offset whose batch begins at `position` or behind it (Kafka's fetchUpperBoundOffset)."""
        offsets = self._entries()
        slot = bisect_left(self._values, position)
        return self.base_offset + offsets[slot] if slot < len(offsets) else None

    def append(self, offset: int, position: int) -> None:
        self._append(offset - self.base_offset, position)


class TimeIndex(SparseIndex):
    """Timestamps, and the last offset (relative in memory) of the batch up to which none was greater."""

    __slots__ = ()
    _entry_size = TIME_ENTRY_SIZE
    _key_type = "q"

    def _decode(self, fields: array[int]) -> tuple[array[int], array[int]]:
        timestamps = array("q")
        timestamps.extend(_signed(high << 32 | low) for high, low in zip(fields[0::3], fields[1::3], strict=True))
        return timestamps, fields[2::3]

    def _encode(self, keys: array[int], values: array[int]) -> array[int]:
        fields = array("I", bytes(TIME_ENTRY_SIZE * len(keys)))
        fields[0::3] = array("I", [timestamp >> 32 & 0xFFFFFFFF for timestamp in keys])
        fields[1::3] = array("I", [timestamp & 0xFFFFFFFF for timestamp in keys])
        fields[2::3] = values
        return fields

    def _end(self, keys: array[int], values: array[int]) -> int:
        end = len(keys)
        while end and keys[end - 1] == 0 and values[end - 1] == 0:
            end -= 1
        return 1 if end == 0 and len(keys) == 1 else end  # a single record of 1970 is one

    def _is_sound(self, keys: list[int], values: list[int]) -> bool:
        return sorted(keys) == keys and sorted(values) == values

    def _relative_offsets(self) -> array[int]:
        return self._values

    @property
    def is_full(self) -> bool:
        """One entry early: the last one is kept for the roll."""
        return len(self._entries()) >= self.max_entries - 1

    @property
    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset); (-1, base offset) of an empty index."""
        timestamps = self._entries()
        if not timestamps:
            return -1, self.base_offset
        return timestamps[-1], self.base_offset + self._values[-1]

    def entry(self, number: int) -> tuple[int, int]:
        return self._entries()[number], self.base_offset + self._values[number]

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry whose timestamp is not above the one asked for, or (-1, base offset)."""
        slot = bisect_right(self._entries(), timestamp)
        return self.entry(slot - 1) if slot else (-1, self.base_offset)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry when time has moved on since the last one."""
        timestamps = self._entries()
        if timestamp > (timestamps[-1] if timestamps else -1):
            self._append(timestamp, offset - self.base_offset)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
