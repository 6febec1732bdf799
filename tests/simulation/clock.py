"""The clocks of a machine: both follow the virtual time of the loop, each from its own start."""

from __future__ import annotations

from tests.simulation.loop import SimulatedLoop

START_OF_TIME_MS = 1_700_000_000_000


class SimulatedClock:
    """`up_since_ms`: how long the machine had been running when the simulation began; its monotonic clock counts from
    its start, and a machine that has just started is a case of its own. `skew_ms`: how far its date is ahead."""

    __slots__ = ("_loop", "_monotonic_us", "_wall_us")

    def __init__(self, loop: SimulatedLoop, *, up_since_ms: int = 0, skew_ms: int = 0) -> None:
        self._loop = loop
        self._monotonic_us = up_since_ms * 1000
        self._wall_us = (START_OF_TIME_MS + skew_ms) * 1000

    def now_ms(self) -> int:
        """See odradek.timer.Clock."""
        return (self._loop.now_us + self._monotonic_us) // 1000

    def wall_ms(self) -> int:
        """See odradek.timer.Clock."""
        return (self._loop.now_us + self._wall_us) // 1000
