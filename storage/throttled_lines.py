"""Rate-limited logging of repeated failures: a full disk refuses thousands of appends a second."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from odradek.timer.clock import Clock

PERIOD_MS = 10_000
MOST_KINDS = 64


class ThrottledLines:
    """Logs one line per period for each kind of failure. The next line has the number of lines that were suppressed."""

    __slots__ = ("_clock", "_kinds")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kinds: dict[Hashable, tuple[int, int]] = {}  # when the next line is due, how many were suppressed

    def log(self, line: Callable[..., object], kind: Hashable, event: str, **details: Any) -> None:
        """Calls `line(event, **details)`, a logger's method, unless it was called for this kind within the period."""
        now_ms = self._clock.now_ms()
        due_ms, left_out = self._kinds.get(kind, (now_ms, 0))
        if now_ms < due_ms:
            self._kinds[kind] = due_ms, left_out + 1
            return
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
            self._kinds.clear()
        self._kinds[kind] = now_ms + PERIOD_MS, 0
        if left_out:
            details["suppressed"] = left_out
        line(event, **details)
