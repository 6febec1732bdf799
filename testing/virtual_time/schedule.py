"""What is to be called in virtual time: calls that are ready, and calls that are due at a later moment.

    call_soon    the call is ready, behind those that are
    call_at      the call is due at that moment, in whole microseconds
    reach        time has come to a moment: all calls that are due by then are ready, in order. Those of one moment are
                 in the order in which they were scheduled

The owner of a schedule says what time it is (`now_us`), moves time, and takes the calls from `ready`:

    virtual_time.py             for brokers of a test, above the loop of the system
    tests/simulation/loop.py    for the simulation, which has no loop below

docs/decisions/two-virtual-times.md says why these two have no more in common.
"""

from __future__ import annotations

import asyncio
import heapq
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple, cast

Ts = TypeVarTuple("Ts")

FEW_TIMERS = 100
"""So many are never looked through for those that were cancelled."""
Timer = tuple[int, int, asyncio.TimerHandle]
"""When it is due, in microseconds; its number, in the order in which timers were scheduled; what it calls."""


class Schedule:
    """See the head of this file."""

    def __init__(self) -> None:
        self.ready: deque[asyncio.Handle] = deque()
        self._timers: list[Timer] = []
        self._scheduled = 0
        self._look_through_at = FEW_TIMERS

    @property
    @abstractmethod
    def now_us(self) -> int:
        """Microseconds from an arbitrary start."""

    def time(self) -> float:
        """See asyncio."""
        return self.now_us / 1e6

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        call = asyncio.Handle(callback, args, cast(asyncio.AbstractEventLoop, self), context)
        self.ready.append(call)
        return call

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        call = asyncio.TimerHandle(when, callback, args, cast(asyncio.AbstractEventLoop, self), context)
        self.put(round(when * 1e6), call)
        return call

    def get_debug(self) -> bool:
        """See asyncio."""
        return False

    def _timer_handle_cancelled(self, call: asyncio.TimerHandle) -> None:
        """Called by asyncio. The timer is left out when it is due, or earlier, if there are many."""

    def put(self, due_us: int, call: asyncio.TimerHandle) -> None:
        """The call is due then, behind all that are."""
        self._scheduled += 1
        heapq.heappush(self._timers, (due_us, self._scheduled, call))
        if len(self._timers) > self._look_through_at:
            self._timers = [timer for timer in self._timers if not timer[2].cancelled()]
            heapq.heapify(self._timers)
            self._look_through_at = FEW_TIMERS + 2 * len(self._timers)

    def first(self) -> Timer | None:
        """Returns the timer that is due next, unless there is none."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        return timers[0] if timers else None

    def pop(self) -> None:
        """Takes the timer that `first` returned."""
        heapq.heappop(self._timers)

    def put_back(self, timer: Timer) -> None:
        """It has its place again."""
        heapq.heappush(self._timers, timer)

    def next_us(self) -> int | None:
        """When the next timer is due; None without timers."""
        first = self.first()
        return None if first is None else first[0]

    def reach(self, now_us: int) -> None:
        """See the head of this file."""
        timers = self._timers
        while timers and timers[0][0] <= now_us:
            self.ready.append(heapq.heappop(timers)[2])


def run(call: asyncio.Handle) -> None:
    """Makes a call, unless it was cancelled."""
    if not call.cancelled():
        call._run()
