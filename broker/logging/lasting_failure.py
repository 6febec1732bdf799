"""A failure that lasts, and is met again and again: a line when it begins or has another reason, then one a minute that
says since when.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from typing import Any

from odradek.timer import Clock

REMINDER_MS = 60_000


class LastingFailure:
    """`over` ends it: the next failure is a new one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms: int | None = None
        self._began_wall_ms = 0
        self._kinds: set[Hashable] = set()
        self._due_ms = 0

    def met(self, line: Callable[..., object], kind: Hashable, event: str, /, **details: Any) -> None:
        """Calls `line(event, **details)`, a logger's method, if there is something to say. Another `kind` of it is."""
        now_ms = self._clock.now_ms()
        if self._began_ms is None:
            self._began_ms, self._began_wall_ms = now_ms, self._clock.wall_ms()
            self._due_ms = now_ms + REMINDER_MS
        elif now_ms >= self._due_ms:
            self._due_ms = now_ms + REMINDER_MS
            details["since"] = datetime.fromtimestamp(self._began_wall_ms / 1000, UTC).isoformat(timespec="seconds")
            details["for_s"] = (now_ms - self._began_ms) // 1000
        elif kind in self._kinds:
            return
        self._kinds.add(kind)
        line(event, **details)

    def over(self) -> None:
        """It has ended, if there was one."""
        self._began_ms = None
        self._kinds.clear()
