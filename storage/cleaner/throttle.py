"""Limits the I/O of all cleaners together (log.cleaner.io.max.bytes.per.second; Kafka's Throttler)."""

from __future__ import annotations

BURST_MS = 300
"""The I/O allowed at once after a pause, as time at the configured rate."""


class Throttle:
    """Times in ms by the monotonic clock."""

    __slots__ = ("_free_at_ms", "bytes_per_second")

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_at_ms = 0.0

    def delay_ms(self, size: int, now_ms: int) -> float:
        """Counts `size` bytes read or written; returns how long to wait before the next ones."""
        self._free_at_ms = max(self._free_at_ms, now_ms - BURST_MS) + size * 1000 / self.bytes_per_second
        return max(self._free_at_ms - now_ms, 0.0)
