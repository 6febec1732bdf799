"""The positions of a log's offsets: segment and byte.

Every fetch looks up the high watermark and the last stable offset, so their positions are cached. Call `forget` when
positions change: when segments were deleted, truncated or replaced.
"""

from __future__ import annotations

from bisect import bisect_right

from odradek.storage.log.log_state import LogState
from odradek.storage.log.segments import LogSegments
from odradek.storage.log_offsets import LogOffsetMetadata
from odradek.storage.segment.segment import LogSegment


class LogPositions:
    __slots__ = ("_high_watermark", "_last_stable", "_segments", "_state")

    def __init__(self, state: LogState, segments: LogSegments) -> None:
        self._state = state
        self._segments = segments
        self._high_watermark: LogOffsetMetadata | None = None
        self._last_stable: LogOffsetMetadata | None = None

    @property
    def log_end(self) -> LogOffsetMetadata:
        active: LogSegment = self._segments[-1]
        return LogOffsetMetadata(self._state.log_end_offset, active.base_offset, active.size)

    @property
    def high_watermark(self) -> LogOffsetMetadata:
        offset = self._state.high_watermark
        if offset == self._state.log_end_offset:
            return self.log_end
        known = self._high_watermark = self._located(self._high_watermark, offset)
        return known

    def last_stable(self, offset: int) -> LogOffsetMetadata:
        """Returns the position of the last stable offset, which the producer state knows."""
        if offset == self._state.high_watermark:
            return self.high_watermark
        known = self._last_stable = self._located(self._last_stable, offset)
        return known

    def _located(self, known: LogOffsetMetadata | None, offset: int) -> LogOffsetMetadata:
        if known is None or known.message_offset != offset or known.message_offset_only:
            return self.of(offset)
        return known

    def forget(self) -> None:
        self._high_watermark = None
        self._last_stable = None

    def of(self, offset: int, may_block: bool = True) -> LogOffsetMetadata:
        """Returns the offset's position; the offset alone if outside the log. Raises WouldBlock and OSError."""
        state = self._state
        if offset == state.log_end_offset:
            return self.log_end
        if not state.log_start_offset <= offset <= state.log_end_offset:
            return LogOffsetMetadata(offset)
        located = self.locate(offset, may_block)
        if located is None:
            return self.log_end
        return LogOffsetMetadata(offset, located[0].base_offset, located[1])

    def locate(self, offset: int, may_block: bool = True) -> tuple[LogSegment, int, int] | None:
        """Returns (segment, position, size) of the first batch that ends at or above `offset`; None at the log's end.
        Raises WouldBlock and OSError.
        """
        segments = self._segments
        segment: LogSegment = segments[-1]
        if offset >= segment.base_offset:
            where = segment.locate(offset, may_block=may_block)
            return None if where is None else (segment, *where)
        slot = max(bisect_right(segments.base_offsets, offset) - 1, 0)
        while slot < len(segments):
            segment = segments[slot]
            where = segments.use(segment).locate(offset, may_block=may_block)
            if where is not None:
                return segment, *where
            slot += 1
        return None
