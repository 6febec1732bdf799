"""The positions of a segment's most recent batches, to find its end without reading the disk."""

from __future__ import annotations

from bisect import bisect_right

_KEPT = 256


class RecentBatches:
    """The last 256 to 511 batches, by offset."""

    __slots__ = ("_end", "_last_offset", "_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self._end: int = 0
        self._last_offset: int = -1

    def append(self, base_offset: int, last_offset: int, position: int, size: int) -> None:
        offsets = self._offsets
        offsets.append(self._last_offset + 1 if offsets else base_offset)  # after a gap: its first offset
        self._positions.append(position)
        if len(offsets) >= 2 * _KEPT:
            del offsets[:_KEPT], self._positions[:_KEPT]
        self._end = position + size
        self._last_offset = last_offset

    def clear(self) -> None:
        self._offsets = []
        self._positions = []

    def reach(self, offset: int) -> bool:
        """Whether the offset is not below the oldest remembered batch."""
        return bool(self._offsets) and offset >= self._offsets[0]

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Returns (position, size) of the first batch that ends at or above `offset`, which must be within reach; None
        if `offset` is beyond the last batch.
        """
        offsets, positions = self._offsets, self._positions
        slot = bisect_right(offsets, offset)
        position = positions[slot - 1]
        if slot < len(offsets):
            return position, positions[slot] - position
        return (position, self._end - position) if offset <= self._last_offset else None
