"""The segments of a log: a list that ascends; the last is the active one. Which are unsynced, which are in use."""

from bisect import bisect_left, bisect_right

from odradek.storage.segment import LogSegment
from odradek.storage.segment_cache import SegmentCache


class LogSegments(list[LogSegment]):
    """`base_offsets` are theirs, in the same order. `unsynced` are sealed ones that a flush has yet to sync, with their
    indexes. Change it by `add` and `drop` alone.
    """

    __slots__ = ("_cache", "base_offsets", "unsynced")

    def __init__(self, cache: SegmentCache) -> None:
        super().__init__()
        self._cache = cache
        self.base_offsets: list[int] = []
        self.unsynced: list[LogSegment] = []

    def __contains__(self, segment: object) -> bool:
        """Whether it is this one that is there, and not another one that begins where it does."""
        if not isinstance(segment, LogSegment):
            return False
        slot = bisect_left(self.base_offsets, segment.base_offset)
        return slot < len(self) and self[slot] is segment

    @property
    def size_in_bytes(self) -> int:
        """Bytes of records in all of them."""
        return sum(segment.size for segment in self)

    def add(self, segment: LogSegment) -> None:
        """Puts it where its base offset belongs."""
        slot = bisect_right(self.base_offsets, segment.base_offset)
        self.insert(slot, segment)
        self.base_offsets.insert(slot, segment.base_offset)

    def drop(self, segment: LogSegment) -> None:
        """Takes a segment out of the log; its files are the caller's."""
        slot = self.index(segment)
        del self[slot], self.base_offsets[slot]
        self._cache.forget(segment)
        if segment in self.unsynced:
            self.unsynced.remove(segment)

    def use(self, segment: LogSegment) -> LogSegment:
        """The segment, counted as used if it is one that may be released."""
        if segment is not self[-1]:
            self._cache.use(segment)
        return segment
