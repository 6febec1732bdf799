"""How many lines of one kind are logged: what clients cause must not fill the disk.

Lines are taken from a token bucket that holds `burst` and refills by `per_second`. Suppressed lines are counted; the
next line reports the count.
"""

from __future__ import annotations

from typing import Any

from odradek.timer import Clock


class LineRate:
    def __init__(self, clock: Clock, *, burst: int = 1000, per_second: int = 100) -> None:
        self._clock = clock
        self._burst = burst
        self._per_second = per_second
        self._tokens = float(burst)
        self._refilled_ms = clock.now_ms()
        self._suppressed = 0

    def admits(self, details: dict[str, Any]) -> bool:
        """Whether a line may be logged now. Adds to its details how many were suppressed before it."""
        if not self._take():
            self._suppressed += 1
            return False
        if self._suppressed:
            details["suppressed"] = self._suppressed
            self._suppressed = 0
        return True

    def _take(self) -> bool:
        now_ms = self._clock.now_ms()
        refill = (now_ms - self._refilled_ms) * self._per_second / 1000
        self._tokens = min(self._burst, self._tokens + refill)
        self._refilled_ms = now_ms
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
