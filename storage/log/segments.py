"""The segments of a log, in ascending order; the last one is active. Also tracks which are unsynced and which are in
use.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right

from odradek.storage.file_names import LOG_SUFFIX, SEGMENT_SUFFIXES
from odradek.storage.log.folder import LogFolder
from odradek.storage.log_config import LogConfig
from odradek.storage.producers.snapshots import ProducerSnapshots
from odradek.storage.segment.segment import LogSegment
from odradek.storage.segment.segment_cache import SegmentCache


class LogSegments(list[LogSegment]):
    """`base_offsets` are the segments' base offsets, in the same order. `unsynced` are sealed segments that a flush has
    yet to sync, with their indexes. `active_was_cut`: the active segment was truncated, which a flush has yet to sync.
    Change the list only by its methods.
    """

    __slots__ = ("_cache", "_folder", "_random", "active_was_cut", "base_offsets", "unsynced")

    def __init__(self, folder: LogFolder, cache: SegmentCache, random_source: random.Random) -> None:
        super().__init__()
        self._folder = folder
        self._cache = cache
        self._random = random_source
        self.base_offsets: list[int] = []
        self.unsynced: list[LogSegment] = []
        self.active_was_cut = False

    def __contains__(self, segment: object) -> bool:
        """Whether the log has this very segment, not another one with the same base offset."""
        if not isinstance(segment, LogSegment):
            return False
        slot = bisect_left(self.base_offsets, segment.base_offset)
        return slot < len(self) and self[slot] is segment

    @property
    def active(self) -> LogSegment:
        return self[-1]

    @property
    def size_in_bytes(self) -> int:
        """The size of the records in all segments, in bytes."""
        return sum(segment.size for segment in self)

    def next_base(self, slot: int) -> int | None:
        """Returns the base offset of the segment after that slot; None after the active one."""
        return self.base_offsets[slot + 1] if slot + 1 < len(self) else None

    def create(self, base_offset: int, config: LogConfig) -> LogSegment:
        """Creates an empty segment with its files; the caller adds it. Raises OSError, without any change."""
        folder = self._folder
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        roll_jitter_ms = self._random.randrange(jitter) if jitter > 0 else 0
        now_ms = folder.clock.wall_ms()
        segment = LogSegment.create(folder.files, folder.path, base_offset, config, now_ms, roll_jitter_ms)
        folder.mark_changed()
        return segment

    def add(self, segment: LogSegment) -> None:
        """Inserts the segment by its base offset."""
        slot = bisect_right(self.base_offsets, segment.base_offset)
        self.insert(slot, segment)
        self.base_offsets.insert(slot, segment.base_offset)

    def drop(self, segment: LogSegment) -> None:
        """Removes a segment from the log; the caller is responsible for its files."""
        slot = self.index(segment)
        del self[slot], self.base_offsets[slot]
        self._cache.forget(segment)
        self.note_synced(segment)

    def delete(self, segment: LogSegment, snapshots: ProducerSnapshots, delay_ms: int) -> None:
        """Removes a segment from the log; its files and its producer snapshot are removed later. Raises OSError: the
        log still has the segment if the file of its records keeps its name. So the next segments wait for it, and a
        recovery finds no gap.
        """
        self._folder.delete_later([segment.path(LOG_SUFFIX)], delay_ms)
        self.drop(segment)
        segment.close_files()
        paths = [segment.path(suffix) for suffix in SEGMENT_SUFFIXES if suffix != LOG_SUFFIX]
        snapshot = snapshots.release(segment.base_offset)
        self._folder.delete_later(paths if snapshot is None else [*paths, snapshot], delay_ms)

    def replace_empty(self, base_offset: int, config: LogConfig, snapshots: ProducerSnapshots) -> None:
        """Replaces the only segment, which is empty, with one that starts at another offset. Raises OSError: the log is
        unchanged if the new segment cannot be created, and has failed if the old one cannot be removed.
        """
        (empty,) = self
        segment = self.create(base_offset, config)
        self.add(segment)
        self.active_was_cut = False
        try:
            self.delete(empty, snapshots, config.file_delete_delay_ms)
        except OSError as error:
            self._folder.fail(error)
            raise

    def use(self, segment: LogSegment) -> LogSegment:
        """Returns the segment, after marking it as used in the cache if it may be released."""
        if segment is not self[-1]:
            self._cache.use(segment)
        return segment

    def forget_use(self, segment: LogSegment) -> None:
        """Stops counting the segment's memory until it is used again."""
        self._cache.forget(segment)

    def note_unsynced(self, segment: LogSegment) -> None:
        self.unsynced.append(segment)

    def note_synced(self, segment: LogSegment) -> bool:
        """Returns whether the segment was unsynced."""
        if segment not in self.unsynced:
            return False
        self.unsynced.remove(segment)
        return True

    def close_files(self) -> None:
        """Closes all files without writing anything."""
        for segment in self:
            self._cache.forget(segment)
            segment.close_files()
