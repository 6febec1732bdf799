"""The aborted transactions that ended in a segment, in Kafka's format (AbortedTxn): what read_committed consumers
must filter.

An entry is 34 bytes, big-endian: int16 version (0), int64 producer id, first offset, last offset (the marker's),
and the last stable offset when the marker was written. Entries ascend by last offset. The file exists once there
is an entry; it is small (one entry per aborted transaction), so it is kept in memory while it is used and every
entry is written at once.
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
    """An entry that cannot be: of a version from the future, or below its segment."""


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
        """How many of the entries in memory are in the file: all, but for those that wait for room."""
        self.is_synced = True
        """False once it was changed, until whoever synced the file says so: it may be closed and opened in between."""

    def entries(self) -> list[AbortedTransaction]:
        """All entries; bytes behind the last whole one are passed over. Raises CorruptTransactionIndex."""
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
        """As `append`; on a full disk the entry stays in memory, and is written with the next one or before a sync.
        After a crash it is made again from the segment. Raises OSError.
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
        """Whether the file lacks entries that are in memory."""
        return self._entries is not None and self.written < len(self._entries)

    def write(self) -> None:
        """Writes what waits for room. Raises OSError."""
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
        """The aborted transactions that overlap [fetch_offset, upper_bound_offset), and whether no later segment
        can have more.
        """
        found = []
        for entry in self.entries():
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions that ended at `offset` or above."""
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
        """The file, open, if there is something to sync. Raises OSError."""
        return None if self.is_synced else self._write()

    def unload(self) -> None:
        """Forgets the entries if the file has them all; they are read again when needed."""
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
