"""The two sparse indexes of a segment, in Kafka's formats: offset -> position, and timestamp -> offset.

On disk, entries are big-endian and ascending: int32 offset (relative to the segment's base) and int32 position in an
offset index, int64 timestamp (ms) and int32 relative offset in a time index. Kafka allocates the full file of an active
segment and trims it when the segment rolls; here a file always has exactly its entries.

In memory, an index is two arrays, bisected in C. Entries are written to the file in blocks, and when the segment is
flushed, rolled or closed:
(A) the index of a segment below the recovery point is complete on disk, because the point moves only after a flush;
(B) any other index is rebuilt from its segment after a crash, so late writes lose nothing;
(C) so a full disk never makes an append fail because of an index: entries that could not be written are written later.

A sealed segment's index is loaded when it is first used, and may be unloaded again (`unload`). Files are open only
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
_BLOCK_ENTRIES = 512  # the number of unwritten entries that triggers a write
_SWAP = sys.byteorder == "little"


class CorruptIndexError(Exception):
    """The index file does not match its segment; it must be rebuilt."""


class _IndexFile:
    """The file of an index: opened on demand, written lazily, with `written` entries on the disk."""

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
        """Returns the content; b"" if the file is missing, because the disk may be too full to create it."""
        if not self.exists():
            return b""
        file = self.open()
        try:
            return bytes(file.read(0, file.size()))
        finally:
            self.close()

    def write(self, data: bytes, total: int) -> None:
        """Appends complete entries; `total` is the number of entries afterwards."""
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
    """The base of both indexes: ascending keys with a value for each. The subclasses define the keys, the values and
    the layout of an entry in the file.
    """

    __slots__ = ("_keys", "_store", "_values", "base_offset", "max_entries", "rebuild")
    _entry_size: ClassVar[int]
    _key_type: ClassVar[Literal["I", "q"]]

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        self._store = _IndexFile(files, path, self._entry_size)
        self._keys: array[int] | None = None  # None: not loaded
        self._values: array[int] = array("I")
        self.base_offset = base_offset
        self.rebuild: Callable[[], None] | None = None  # called if the file turns out to be corrupt
        self.max_entries = max_bytes // self._entry_size

    # ---- what the subclasses define

    def _decode(self, fields: array[int]) -> tuple[array[int], array[int]]:
        """Returns the keys and values in the file's four-byte fields."""
        raise NotImplementedError

    def _encode(self, keys: array[int], values: array[int]) -> array[int]:
        """Returns the file's four-byte fields for keys and values."""
        raise NotImplementedError

    def _end(self, keys: array[int], values: array[int]) -> int:
        """Returns the number of entries before the zeros that an interrupted Kafka leaves at the end of a file."""
        raise NotImplementedError

    def _is_sound(self, keys: list[int], values: list[int]) -> bool:
        """Whether entries ascend as they must."""
        raise NotImplementedError

    def _relative_offsets(self) -> array[int]:
        raise NotImplementedError

    # ---- loading and unloading

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
        """Reads the file; raises CorruptIndexError unless it has complete, ascending entries."""
        data = self._store.read()
        if len(data) % self._entry_size:
            raise CorruptIndexError(f"{self.path} has {len(data)} bytes, not a multiple of the entry size")
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
        """Positions are not checked here: LogSegment.locate notices wrong ones when they are used."""
        if not self._is_sound(self._entries().tolist(), self._values.tolist()):
            raise CorruptIndexError(f"the entries of {self.path} do not ascend")
        offsets = self._relative_offsets()
        if offsets and offsets[-1] > MAX_RELATIVE_OFFSET:
            raise CorruptIndexError(f"{self.path} has an offset below its segment's base")

    def unload(self) -> None:
        """Drops the entries from memory if the file has all of them; they are read again on demand."""
        if self._keys is not None and self._store.written == len(self._keys):
            self._keys = None
            self._values = array("I")
        self._store.close()

    def _entries(self) -> array[int]:
        """Returns the keys, after loading the index if necessary."""
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
        """Completes and syncs the file of a sealed segment. On a full disk, removes the file instead, so that the next
        start rebuilds it. Raises OSError.
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
        """Writes buffered entries and returns the open file, for a sync. Raises OSError."""
        keys = self._keys
        if keys is not None:
            start, end = self._store.written, len(keys)
            if start > end:
                self._store.truncate(end)
            elif start < end:
                self._store.write(self._packed(keys[start:], self._values[start:]), end)
        return self._store.open()

    def packed(self, entries: int) -> bytes:
        """Returns the first `entries` as a file has them."""
        return self._packed(self._entries()[:entries], self._values[:entries])

    def _packed(self, keys: array[int], values: array[int]) -> bytes:
        fields = self._encode(keys, values)
        if _SWAP:
            fields.byteswap()
        return fields.tobytes()

    def close(self) -> None:
        """Closes the file. Entries in memory are kept."""
        self._store.close()


class OffsetIndex(SparseIndex):
    """The last offsets of batches (relative in memory too) and the positions where the batches start."""

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
        """Returns the position of the last indexed batch whose last offset is not above `offset`, or 0."""
        offsets = self._keys if self._keys is not None else self._entries()
        slot = bisect_right(offsets, offset - self.base_offset)
        return self._values[slot - 1] if slot else 0

    def upper_bound_offset(self, position: int) -> int | None:
        """Returns the first indexed offset whose batch starts at or after `position` (Kafka's
        fetchUpperBoundOffset).
        """
        offsets = self._entries()
        slot = bisect_left(self._values, position)
        return self.base_offset + offsets[slot] if slot < len(offsets) else None

    def last_start(self, position: int) -> int:
        """Returns the last indexed position, at or before `position`, where a batch starts; 0 if there is none."""
        self._entries()
        slot = bisect_right(self._values, position)
        return self._values[slot - 1] if slot else 0

    def append(self, offset: int, position: int) -> None:
        self._append(offset - self.base_offset, position)


class TimeIndex(SparseIndex):
    """Timestamps, each with the last offset (relative in memory) of the batch that reached this maximum."""

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
        return 1 if end == 0 and len(keys) == 1 else end  # a single zero entry is a valid record of 1970

    def _is_sound(self, keys: list[int], values: list[int]) -> bool:
        return sorted(keys) == keys and sorted(values) == values

    def _relative_offsets(self) -> array[int]:
        return self._values

    @property
    def is_full(self) -> bool:
        """One entry early: the last one is reserved for the roll."""
        return len(self._entries()) >= self.max_entries - 1

    @property
    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) if the index is empty."""
        timestamps = self._entries()
        if not timestamps:
            return -1, self.base_offset
        return timestamps[-1], self.base_offset + self._values[-1]

    def entry(self, number: int) -> tuple[int, int]:
        return self._entries()[number], self.base_offset + self._values[number]

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Returns the last entry whose timestamp is not above `timestamp`, or (-1, base offset)."""
        slot = bisect_right(self._entries(), timestamp)
        return self.entry(slot - 1) if slot else (-1, self.base_offset)

    def packed_with(self, entries: int, timestamp: int, offset: int) -> bytes:
        """Returns the first `entries`, and one with this timestamp if it is larger, as a file has them."""
        keys, values = self._entries()[:entries], self._values[:entries]
        if timestamp > (keys[-1] if keys else -1):
            keys.append(timestamp)
            values.append(offset - self.base_offset)
        return self._packed(keys, values)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if the timestamp is larger than that of the last entry."""
        timestamps = self._entries()
        if timestamp > (timestamps[-1] if timestamps else -1):
            self._append(timestamp, offset - self.base_offset)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
