"""Time as an argument: a clock that is passed in, so that a test can jump an hour.

`now_ms` measures durations: it starts at an arbitrary value, never goes back, and drives timers, ages and timeouts.
`wall_ms` is the date: milliseconds since 1970 (UTC), as in records and checkpoints; it may jump when the clock is set.
"""

import time
from typing import Protocol

from mypy_extensions import mypyc_attr


class Clock(Protocol):
    """The broker's source of time. Both values are whole milliseconds."""

    def now_ms(self) -> int:
        """Monotonic milliseconds from an arbitrary start."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970 (UTC)."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


@mypyc_attr(allow_interpreted_subclasses=True)
class ManualClock:
    """A clock that stands still until `advance` moves both values."""

    __slots__ = ("_now_ms", "_wall_ms")

    def __init__(self, now_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def advance(self, ms: int) -> None:
        """Lets `ms` milliseconds pass. Raises ValueError for a negative step: monotonic time does not go back."""
        if ms < 0:
            raise ValueError(f"the clock cannot go back: advance({ms})")
        self._now_ms += ms
        self._wall_ms += ms

    def set_wall_ms(self, wall_ms: int) -> None:
        """Sets the wall clock alone, forwards or back, as an administrator or NTP would."""
        self._wall_ms = wall_ms
