"""The segment that a clean writes: `.log.cleaned` with its three indexes, beside the segments that it will replace.

Unlike a LogSegment it is not part of a log, and may be discarded at any time. `finish` makes it durable.
"""

from __future__ import annotations

from odradek.storage.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from odradek.storage.files import Buffer, Files
from odradek.storage.segment.index import OffsetIndex, TimeIndex
from odradek.storage.segment.transaction_index import TransactionIndex


class CleanedSegment:
    """`size` in bytes, including batches that are noted but not written yet."""

    __slots__ = (
        "_file",
        "_files",
        "_index_interval_bytes",
        "_max_timestamp",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_since_entry",
        "_time_index",
        "_written",
        "base_offset",
        "directory",
        "size",
        "transaction_index",
    )

    def __init__(
        self, files: Files, directory: str, base_offset: int, index_bytes: int, index_interval_bytes: int
    ) -> None:
        """Replaces files of the same names. Raises OSError."""
        self._files = files
        self.directory = directory
        self.base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        for suffix in SEGMENT_SUFFIXES:
            files.remove(self.path(suffix))
        self._file = files.open(self.path(LOG_SUFFIX), exclusive=True)
        self._offset_index = OffsetIndex(files, self.path(INDEX_SUFFIX), base_offset, index_bytes)
        self._time_index = TimeIndex(files, self.path(TIME_INDEX_SUFFIX), base_offset, index_bytes)
        self.transaction_index = TransactionIndex(files, self.path(TRANSACTION_INDEX_SUFFIX), base_offset)
        self._max_timestamp = -1
        self._offset_of_max_timestamp = base_offset
        self._since_entry = 0
        self._written = 0
        self.size = 0

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{offset_file_name(self.base_offset, suffix)}{CLEANED_SUFFIX}"

    def note_batch(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Indexes the next batch that will be passed to `write`."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp, self._offset_of_max_timestamp = max_timestamp, last_offset
        if self._since_entry > self._index_interval_bytes:
            self._offset_index.append(last_offset, self.size)
            self._time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
            self._since_entry = 0
        self._since_entry += size
        self.size += size

    def write(self, parts: list[Buffer]) -> None:
        """Writes the noted batches, in their order. Raises OSError."""
        for start in range(0, len(parts), _PARTS_PER_WRITE):
            self._written += self._file.write(parts[start : start + _PARTS_PER_WRITE], self._written)

    def finish(self, modified_ms: int) -> None:
        """Syncs the files' contents, but not their names. Raises OSError."""
        if self._max_timestamp >= 0:
            self._time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        for index in (self._offset_index, self._time_index):
            index.write().sync()
            index.close()
        transaction_file = self.transaction_index.file_for_sync()
        if transaction_file is not None:
            transaction_file.sync()
        self.transaction_index.close()
        self._file.close()
        self._files.set_modified_ms(self.path(LOG_SUFFIX), modified_ms)
        self._files.sync_file(self.path(LOG_SUFFIX))

    def discard(self) -> None:
        """Removes the files."""
        for index in (self._offset_index, self._time_index, self.transaction_index):
            index.close()
        self._file.close()
        for suffix in SEGMENT_SUFFIXES:
            self._files.remove(self.path(suffix))


_PARTS_PER_WRITE = 512
"""Below IOV_MAX."""
