"""One segment of a log: `<base offset>.log` with its indexes (Kafka's LogSegment).

The last segment of a log is *active*: batches are appended to it, its index entries are buffered, and the positions of
its most recent batches are kept in memory. The others are *sealed*: their files are opened and their indexes are loaded
on demand, and may be released at any time.
"""

import errno
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import structlog

from odradek.storage.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from odradek.storage.files import Buffer, File, Files
from odradek.storage.log_config import LogConfig
from odradek.storage.segment.batch_scan import ScannedBatch, UnreadableBatch, scan_batches
from odradek.storage.segment.index import MAX_RELATIVE_OFFSET, OffsetIndex, TimeIndex
from odradek.storage.segment.recent_batches import RecentBatches
from odradek.storage.segment.tail import Tail
from odradek.storage.segment.transaction_index import TransactionIndex

_log = structlog.get_logger(__name__)


class SegmentMark(NamedTuple):
    """The end of a segment: what changes with each batch."""

    size: int
    bytes_since_index_entry: int
    first_batch_timestamp: int
    max_timestamp: int
    offset_of_max_timestamp: int
    offset_entries: int
    time_entries: int


class LogSegment:
    """`size` in bytes, times in ms. Without timestamps, the maximum is -1 and its offset is the base offset."""

    __slots__ = (
        "_file",
        "_files",
        "_first_batch_timestamp",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_recent",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "directory",
        "index_interval_bytes",
        "offset_index",
        "roll_jitter_ms",
        "size",
        "tail",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self, files: Files, directory: str, base_offset: int, config: LogConfig, now_ms: int, roll_jitter_ms: int = 0
    ) -> None:
        """Opens existing files; see `create` for new ones. Raises FileNotFoundError if the log file does not exist."""
        self._files = files
        self.directory = directory
        self.base_offset = base_offset
        self._file: File | None = None
        self.index_interval_bytes = config.index_interval_bytes
        self.roll_jitter_ms = roll_jitter_ms
        self.created_ms = now_ms
        self.offset_index = OffsetIndex(files, self.path(INDEX_SUFFIX), base_offset, config.segment_index_bytes)
        self.time_index = TimeIndex(files, self.path(TIME_INDEX_SUFFIX), base_offset, config.segment_index_bytes)
        self.offset_index.rebuild = self.time_index.rebuild = self.rebuild_indexes
        self.transaction_index = TransactionIndex(files, self.path(TRANSACTION_INDEX_SUFFIX), base_offset)
        self.size = files.size(self.path(LOG_SUFFIX))
        self.bytes_since_index_entry = 0
        self._first_batch_timestamp: int | None = None
        self._max_timestamp: int | None = None
        self._offset_of_max_timestamp = base_offset
        self._recent: RecentBatches = RecentBatches()
        self.tail: Tail | None = None

    @classmethod
    def create(
        cls, files: Files, directory: str, base_offset: int, config: LogConfig, now_ms: int, roll_jitter_ms: int = 0
    ) -> "LogSegment":
        """Creates an empty segment, replacing files of the same names. Leaves no new file behind on OSError."""
        suffixes = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        paths = [f"{directory}/{offset_file_name(base_offset, suffix)}" for suffix in suffixes]
        files.remove(f"{directory}/{offset_file_name(base_offset, TRANSACTION_INDEX_SUFFIX)}")
        try:
            for path in paths:
                files.remove(path)
                file = files.open(path, create=True)
                try:
                    if config.preallocate and path.endswith(LOG_SUFFIX):
                        file.allocate(config.segment_bytes)
                finally:
                    file.close()
            segment = cls(files, directory, base_offset, config, now_ms, roll_jitter_ms)
        except OSError:
            for path in paths:
                files.remove(path)
            raise
        segment.size = 0
        segment.offset_index.load()
        segment.time_index.load()
        return segment

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{offset_file_name(self.base_offset, suffix)}"

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path(LOG_SUFFIX))
        return self._file

    @property
    def is_released(self) -> bool:
        """Whether the segment has no open file, no index in memory, and no data that waits for disk space."""
        indexes_loaded = self.offset_index.loaded or self.time_index.loaded
        return self._file is None and not indexes_loaded and not self.transaction_index.waits_for_room

    # ---- appending

    def can_take(self, offset: int) -> bool:
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def append(
        self,
        parts: Sequence[Buffer],
        size: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
    ) -> None:
        """Writes one batch of `size` bytes at the end. On OSError the segment is unchanged, except for a torn tail in
        its file.
        """
        file = self._file if self._file is not None else self.file
        file.write(parts, self.size)
        self.note(size, base_offset, last_offset, max_timestamp, offset_of_max_timestamp)

    def note(
        self, size: int, base_offset: int, last_offset: int, max_timestamp: int, offset_of_max_timestamp: int
    ) -> None:
        """Counts and indexes one batch at the end of the segment, whose bytes the caller writes there. Raises OSError,
        without any change.
        """
        position = self.size
        largest_before = self.max_timestamp
        self.size = position + size
        if position == 0:
            self._first_batch_timestamp = max_timestamp
        if max_timestamp > largest_before:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = offset_of_max_timestamp
        self._index(position, size, last_offset)
        self._recent.append(base_offset, last_offset, position, size)

    def mark(self) -> SegmentMark:
        """Returns where the segment ends now, for `rewind`. Raises OSError."""
        return SegmentMark(
            self.size,
            self.bytes_since_index_entry,
            self.first_batch_timestamp,
            self.max_timestamp,
            self._offset_of_max_timestamp,
            len(self.offset_index),
            len(self.time_index),
        )

    def rewind(self, mark: SegmentMark) -> None:
        """Forgets the batches that were noted since the mark. Their bytes may be in the file. Raises OSError if index
        entries that are in their files cannot be removed.
        """
        self.size = mark.size
        self.bytes_since_index_entry = mark.bytes_since_index_entry
        self._first_batch_timestamp = mark.first_batch_timestamp if mark.size else None
        self._max_timestamp = mark.max_timestamp
        self._offset_of_max_timestamp = mark.offset_of_max_timestamp
        self._recent.clear()
        self.offset_index.truncate_to_entries(mark.offset_entries)
        self.time_index.truncate_to_entries(mark.time_entries)

    def _index(self, position: int, size: int, last_offset: int) -> None:
        """Counts a written batch, and adds an index entry if the last entry is far enough back."""
        if self.bytes_since_index_entry > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
            self.bytes_since_index_entry = 0
        self.bytes_since_index_entry += size

    def drop_tail(self) -> None:
        """Drops the in-memory tail, because the segment's end changes or the segment is no longer appended to."""
        tail = self.tail
        if tail is not None:
            self.tail = None
            tail.owner.drop(tail)

    def cut_torn_tail(self, end_offset: int) -> None:
        """Truncates what a failed append may have left in the files after the last complete batch, which ends at
        `end_offset`.
        """
        self.file.truncate(self.size)
        self.transaction_index.truncate_to(end_offset)

    def age_for_roll(self, now_ms: int, timestamp: int) -> int:
        """Returns the age of the segment in ms, by the records' timestamps if they have any, otherwise by the clock."""
        first = self.first_batch_timestamp
        return timestamp - first if first >= 0 else now_ms - self.created_ms

    def should_roll(self, config: LogConfig, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch with these properties needs a new segment (Kafka's LogSegment.shouldRoll)."""
        if self.size > config.segment_bytes - size or not self.can_take(last_offset):
            return True
        if self.size and self.age_for_roll(now_ms, max_timestamp) > config.max_segment_ms - self.roll_jitter_ms:
            return True
        return self.offset_index.is_full or self.time_index.is_full

    # ---- times

    @property
    def knows_its_times(self) -> bool:
        """Whether `max_timestamp` is known without reading the disk."""
        return self._max_timestamp is not None

    @property
    def first_batch_timestamp(self) -> int:
        if self._first_batch_timestamp is None:
            first = next(iter(self.scan(0)), None)
            if first is None:
                return -1
            self._first_batch_timestamp = first.max_timestamp
        return self._first_batch_timestamp

    @property
    def max_timestamp(self) -> int:
        if self._max_timestamp is None:
            self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last_entry
            if self._max_timestamp < 0 and any(batch.max_timestamp >= 0 for batch in self.scan(0)):
                self.rebuild_indexes()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch with the largest timestamp."""
        return self._offset_of_max_timestamp if self.max_timestamp >= 0 else self.base_offset

    @property
    def largest_timestamp(self) -> int:
        """For retention: the largest record timestamp, or the file's modification time if no record has one."""
        return self.max_timestamp if self.max_timestamp >= 0 else self._files.modified_ms(self.path(LOG_SUFFIX))

    # ---- rebuilding indexes

    def reset_indexes(self) -> None:
        """Empties all three indexes. Call index_recovered for each batch from the start, then finish_indexes."""
        self._begin_indexes()
        self.transaction_index.reset()

    def _begin_indexes(self) -> None:
        self.offset_index.reset()
        self.time_index.reset()
        self._max_timestamp, self._offset_of_max_timestamp = -1, self.base_offset
        self._first_batch_timestamp = None
        self._recent.clear()
        self.bytes_since_index_entry = 0

    def index_recovered(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        if max_timestamp > self.max_timestamp:
            self._max_timestamp, self._offset_of_max_timestamp = max_timestamp, last_offset
        self._index(position, size, last_offset)

    def finish_indexes(self) -> None:
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
        self.offset_index.write_if_there_is_room()
        self.time_index.write_if_there_is_room()

    def rebuild_indexes(self) -> None:
        """Rebuilds the offset and the time index from the records. The transaction index needs the producer state (see
        recovery).
        """
        _log.warning("indexes rebuilt", directory=self.directory, segment=self.base_offset)
        self._begin_indexes()
        for batch in self.scan(0):
            self.index_recovered(batch.position, batch.size, batch.last_offset, batch.max_timestamp)
        self.finish_indexes()
        self.offset_index.write_durably_if_there_is_room()
        self.time_index.write_durably_if_there_is_room()

    def cut_at(self, size: int) -> None:
        """Truncates the file at `size`, after which recovery found no complete batch."""
        self.drop_tail()
        self.file.truncate(size)
        self.size = size

    # ---- lookup

    def scan(self, position: int, end: int | None = None, *, may_block: bool = True) -> Iterator[ScannedBatch]:
        return scan_batches(self.file, position, self.size if end is None else end, may_block=may_block)

    def locate(self, offset: int, *, may_block: bool = True) -> tuple[int, int] | None:
        """Returns (position, size) of the first batch that ends at or above `offset`, or None."""
        recent = self._recent
        if recent.reach(offset):
            return recent.locate(offset)
        start = end = self.offset_index.lookup(offset)
        for batch in scan_batches(self.file, start, self.size, may_block=may_block):
            if batch.position == start and start and not self.base_offset <= batch.base_offset <= offset:
                return self._locate_without_index(offset)
            if batch.last_offset >= offset:
                return batch.position, batch.size
            end = batch.position + batch.size
        if end == start and start:
            return self._locate_without_index(offset)
        self._require_end(end)
        return None

    def _locate_without_index(self, offset: int) -> tuple[int, int] | None:
        """Rebuilds the indexes and scans, because an index entry did not point at the right batch."""
        self.rebuild_indexes()
        end = 0
        for batch in self.scan(0):
            if batch.last_offset >= offset:
                return batch.position, batch.size
            end = batch.position + batch.size
        self._require_end(end)
        return None

    def _require_end(self, position: int) -> None:
        """Raises OSError if a batch before the segment's end is unreadable, instead of skipping it silently."""
        if position < self.size:
            raise UnreadableBatch(errno.EIO, f"no batch can be read at byte {position} of {self.path(LOG_SUFFIX)}")

    def last_batch(self) -> ScannedBatch | None:
        batches = self.scan(self.offset_index.lookup(self.offset_index.last_offset))
        return next(iter(deque(batches, maxlen=1)), None)

    def next_offset(self) -> int:
        """Returns the offset after the last batch, read from the file."""
        last = self.last_batch()
        return self.base_offset if last is None else last.last_offset + 1

    # ---- files

    def seal(self) -> None:
        """Seals the active segment. Raises OSError if its indexes cannot be written; they then stay in memory."""
        self.drop_tail()
        self._recent.clear()
        self._finish()

    def _finish(self) -> None:
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
        if self._file is not None and self.file.size() > self.size:
            self.file.truncate(self.size)
        self.transaction_index.write()
        self.write_indexes()

    def write_indexes(self) -> None:
        for index in (self.offset_index, self.time_index):
            index.write()
            index.close()

    def files_to_sync(self) -> list[File]:
        """Writes buffered index entries and returns the files in the order in which they must be synced."""
        files = [self.file, self.offset_index.write(), self.time_index.write()]
        transaction_file = self.transaction_index.file_for_sync()
        return files if transaction_file is None else [*files, transaction_file]

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Removes all batches from `offset` on; returns the number of bytes removed."""
        where = self.locate(offset)
        self.drop_tail()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self._recent.clear()
        removed = 0
        if where is not None:
            removed = self.size - where[0]
            self.file.truncate(where[0])
            self.size = where[0]
        if self.size == 0:
            self.created_ms = now_ms
            self._first_batch_timestamp = None
        self.bytes_since_index_entry = 0
        self._read_max_timestamp()
        return removed

    def _read_max_timestamp(self) -> None:
        timestamp, offset = self.time_index.last_entry
        for batch in self.scan(self.offset_index.lookup(offset)):
            if batch.max_timestamp > timestamp:
                timestamp, offset = batch.max_timestamp, batch.last_offset
        self._max_timestamp, self._offset_of_max_timestamp = timestamp, offset

    def release(self) -> None:
        """Closes files and drops data that can be read again: of sealed segments, and of logs just opened."""
        self.offset_index.unload()
        self.time_index.unload()
        self.transaction_index.unload()
        if self._file is not None:
            self._file.close()
            self._file = None

    def relocate(self, directory: str) -> None:
        """Updates the paths after the unchanged files were moved to another folder. They are opened there on demand."""
        self.close_files()
        self.directory = directory
        self.offset_index.path = self.path(INDEX_SUFFIX)
        self.time_index.path = self.path(TIME_INDEX_SUFFIX)
        self.transaction_index.path = self.path(TRANSACTION_INDEX_SUFFIX)

    def close(self) -> None:
        """Writes buffered index entries and closes all files. Raises OSError after closing them all the same."""
        try:
            if not self.is_released:
                self._finish()
        finally:
            self.close_files()

    def close_files(self) -> None:
        self.drop_tail()
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()
        if self._file is not None:
            self._file.close()
            self._file = None
