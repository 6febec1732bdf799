"""The aborted transactions that ended in a segment, in Kafka's format (AbortedTxn). read_committed consumers filter
them out.

An entry is 34 bytes, big-endian: int16 version (0), int64 producer id, first offset, last offset (the marker's), and
the last stable offset when the marker was written. Entries ascend by last offset. The file is created with the first
entry. It is small (one entry per aborted transaction), so it is kept in memory while it is in use, and every entry is
written immediately.
"""

import struct
from typing import NamedTuple

from odradek.storage.files import File, Files, is_full

_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
CURRENT_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    version: int = CURRENT_VERSION


class CorruptTransactionIndex(Exception):
    """An entry has a newer version than this broker knows, or lies below its segment."""


def _packed(entry: AbortedTransaction) -> bytes:
    return _ENTRY.pack(
        CURRENT_VERSION, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
    )


class TransactionIndex:
    __slots__ = ("_entries", "_file", "_files", "base_offset", "is_synced", "path", "written")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self._file: File | None = None
        self._entries: list[AbortedTransaction] | None = None
        self.written = 0
        """How many of the entries in memory are in the file. The others wait for disk space."""
        self.is_synced = True
        """False from a change until the caller that synced the file sets it. The file may be closed and reopened in
        between.
        """

    def entries(self) -> list[AbortedTransaction]:
        """Returns all entries, ignoring bytes after the last complete one. Raises CorruptTransactionIndex."""
        if self._entries is None:
            data = self._files.read_file(self.path) if self._files.exists(self.path) else b""
            self._entries = self._parse(data)
            self.written = len(self._entries)
        return self._entries

    def _parse(self, data: bytes) -> list[AbortedTransaction]:
        entries = []
        for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE]):
            if version > CURRENT_VERSION:
                raise CorruptTransactionIndex(f"version {version} of an aborted transaction in {self.path} is unknown")
            if last < self.base_offset:
                raise CorruptTransactionIndex(f"{self.path} has a transaction that ended at {last}, before its segment")
            entries.append(AbortedTransaction(producer_id, first, last, stable, version))
        return entries

    def append(self, transaction: AbortedTransaction) -> None:
        entries = self.entries()
        if entries and entries[-1].last_offset >= transaction.last_offset:
            raise ValueError(f"{self.path} ends at {entries[-1].last_offset}, not below {transaction.last_offset}")
        entries.append(transaction)
        try:
            self._write()
        except OSError:
            del entries[-1]
            raise

    def append_if_there_is_room(self, transaction: AbortedTransaction) -> None:
        """Like `append`, but on a full disk the entry stays in memory, and is written with the next one or before a
        sync. After a crash it is rebuilt from the segment. Raises OSError.
        """
        try:
            self.append(transaction)
        except OSError as error:
            if not is_full(error):
                raise
            self.is_synced = False
            self.entries().append(transaction)

    @property
    def waits_for_room(self) -> bool:
        """Whether memory has entries that the file does not."""
        return self._entries is not None and self.written < len(self._entries)

    def write(self) -> None:
        """Writes entries that wait for disk space. Raises OSError."""
        if self.waits_for_room:
            self._write()

    def _write(self) -> File:
        entries = self.entries()
        file = self._open()
        if self.written < len(entries):
            self.is_synced = False
            data = b"".join([_packed(entry) for entry in entries[self.written :]])
            file.write((data,), self.written * ENTRY_SIZE)
            self.written = len(entries)
        return file

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Returns the aborted transactions that overlap [fetch_offset, upper_bound_offset), and whether no later
        segment can have more.
        """
        found = []
        for entry in self.entries():
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    def packed_below(self, offset: int) -> bytes:
        """Returns the transactions that ended below `offset`, as a file has them."""
        return b"".join([_packed(entry) for entry in self.entries() if entry.last_offset < offset])

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions that ended at or above `offset`."""
        entries = self.entries()
        keep = sum(1 for entry in entries if entry.last_offset < offset)
        if keep < len(entries):
            self.is_synced = False
            self._open().truncate(min(keep, self.written) * ENTRY_SIZE)
            self.written = min(keep, self.written)
            del entries[keep:]

    def reset(self) -> None:
        self._entries = []
        self.written = 0
        if self._file is not None or self._files.exists(self.path):
            self.is_synced = False
            self._open().truncate(0)

    def file_for_sync(self) -> File | None:
        """Returns the open file if it needs a sync, otherwise None. Raises OSError."""
        return None if self.is_synced else self._write()

    def unload(self) -> None:
        """Drops the entries from memory if the file has all of them; they are read again on demand."""
        if not self.waits_for_room:
            self._entries = None
        self.close()

    def _open(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path, create=True)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
