"""Limits the open files and the memory of all logs' segments.

At most MAX_SEGMENTS sealed segments are open at once; the least recently used ones release their files and indexes. A
segment that waits for its flush counts too: its files are opened again to be synced. So segments that roll faster than
the disk syncs do not keep additional files open. The cache also holds the tails of the active segments (tail.py), if
tails are enabled.
"""

from collections import OrderedDict

from odradek.storage.segment.segment import LogSegment
from odradek.storage.segment.tail import Tails

MAX_SEGMENTS = 512
MAX_INDEX_BYTES = 64 << 20


class SegmentCache:
    """Shared by all logs of a broker. Call `use` before reading a sealed segment."""

    __slots__ = ("_index_bytes", "_max_index_bytes", "_max_segments", "_segments", "tails")

    def __init__(
        self,
        max_segments: int = MAX_SEGMENTS,
        max_index_bytes: int = MAX_INDEX_BYTES,
        *,
        tails: Tails | None = None,
    ) -> None:
        self.tails = tails
        self._max_segments = max_segments
        self._max_index_bytes = max_index_bytes
        self._segments: OrderedDict[LogSegment, int] = OrderedDict()
        self._index_bytes = 0

    def __len__(self) -> int:
        return len(self._segments)

    def use(self, segment: LogSegment) -> None:
        bytes_now = segment.offset_index.memory_bytes + segment.time_index.memory_bytes
        self._index_bytes += bytes_now - self._segments.get(segment, 0)
        self._segments[segment] = bytes_now
        self._segments.move_to_end(segment)
        while len(self._segments) > 1 and (
            len(self._segments) > self._max_segments or self._index_bytes > self._max_index_bytes
        ):
            oldest, index_bytes = self._segments.popitem(last=False)
            self._index_bytes -= index_bytes
            oldest.release()

    def forget(self, segment: LogSegment) -> None:
        """Drops a segment that its log has closed or deleted."""
        self._index_bytes -= self._segments.pop(segment, 0)
