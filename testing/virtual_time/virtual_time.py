"""The time of all brokers of one test. It is their `Clock`, and node loops take their timers and turns from it.

    state      how time passes                                        what runs the timers
    ---------  -----------------------------------------------------  ---------------------------------------------
    flowing    as the loop below has it, from where an advance ended   one timer of the loop below, for the earliest
    standing   not at all; `move_to` jumps                             `move_to`: all that are due, in order

Time is counted in whole microseconds from an arbitrary start. Timers of one moment run in the order in which they were
scheduled. While time stands, the turns of node loops wait in `turns` for the advance, which takes them one by one.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from odradek.testing.node_loop import NodeLoop
from odradek.testing.virtual_time.call import Call
from odradek.testing.virtual_time.idle_runs import Timer, put_off_idle_runs
from odradek.testing.virtual_time.under_way import what_is_under_way
from odradek.timer import Clock, SystemClock

CANCELLED_AT_MOST = 100
"""More of them are removed when they outnumber the others."""


class VirtualTime:
    """See the head of this file. The running loop is the one below. `clock` says what date it is at the beginning."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.below = asyncio.get_running_loop()
        self.is_claimed = False
        """Whether somebody advances it."""
        self.turns: deque[Call] = deque()
        """What node loops have to do while time stands."""
        self._context = copy_context()
        self._loops: list[NodeLoop] = []
        self._ahead_us = 0
        self._standing_us: int | None = None
        self._turns_below = 0
        """How many turns of node loops the loop below has been asked for."""
        self._timers: list[Timer] = []
        self._scheduled = 0
        self._cancelled = 0
        self._wake_up: asyncio.TimerHandle | None = None
        self._wakes_up_us = 0
        self._date_of_zero_ms = (clock or SystemClock()).wall_ms() - self.now_ms()

    # --- the clock of the brokers -------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        """Microseconds from an arbitrary start."""
        return self._below_us() + self._ahead_us if self._standing_us is None else self._standing_us

    def _below_us(self) -> int:
        """Whole milliseconds, which are what brokers count in: a part of one would make their timers so much later."""
        return int(self.below.time() * 1000) * 1000

    def now_ms(self) -> int:
        """See Clock."""
        return self.now_us // 1000

    def wall_ms(self) -> int:
        """See Clock."""
        return self._date_of_zero_ms + self.now_ms()

    # --- for node loops: the methods of an event loop ----------------------------------------------------------

    def belongs_to(self, loop: NodeLoop) -> None:
        """A node loop has its timers and turns from here."""
        self._loops = [each for each in self._loops if not each.has_ended]
        self._loops.append(loop)

    def time(self) -> float:
        """See asyncio."""
        return self.now_us / 1e6

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Call:
        """See asyncio."""
        call = Call(callback, args, context, self._timer_cancelled)
        self._scheduled += 1
        heapq.heappush(self._timers, (round(when * 1e6), self._scheduled, call))
        self._wake_up_in_time()
        return call

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Call:
        """See asyncio."""
        call = Call(callback, args, context, _nothing)
        if self._standing_us is None:
            self._turn_below(call)
        else:
            self.turns.append(call)
        return call

    def _turn_below(self, call: Call) -> None:
        self._turns_below += 1
        self.below.call_soon(self._run_turn, call, context=self._context)

    def _run_turn(self, call: Call) -> None:
        self._turns_below -= 1
        call.run()

    # --- while time flows ---------------------------------------------------------------------------------------

    def _wake_up_in_time(self) -> None:
        """Has the loop below wake up when the earliest timer is due. It never wakes up before that."""
        due_us = self.next_us() if self._standing_us is None else None
        if due_us is None or (self._wake_up is not None and self._wakes_up_us <= due_us):
            return
        self._sleep_on()
        self._wakes_up_us = due_us
        self._wake_up = self._awake_in(max(due_us - self.now_us, 0))

    def _awake_in(self, microseconds: int) -> asyncio.TimerHandle:
        return self.below.call_later(-(-microseconds // 1000) / 1000, self._awake, context=self._context)

    def _sleep_on(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None

    def _awake(self) -> None:
        self._wake_up = None
        self._run_due(self.now_us)
        self._wake_up_in_time()

    # --- for the advance ----------------------------------------------------------------------------------------

    def stand(self) -> None:
        """Time stands from now on."""
        self._standing_us = self.now_us
        self._sleep_on()

    def flow(self) -> None:
        """Time flows from now on. What waits in `turns` runs soon."""
        self._ahead_us = self.now_us - self._below_us()
        self._standing_us = None
        while self.turns:
            self._turn_below(self.turns.popleft())
        self._wake_up_in_time()

    def move_to(self, now_us: int) -> None:
        """While time stands: moves to a later moment, and runs the timers that are due then."""
        self._standing_us = now_us
        self._run_due(now_us)

    def put_off_idle_runs(self, until_us: int) -> None:
        """While time stands and nothing is left to do: leaves out the runs of periodic work before `until_us` that
        would do nothing (idle_runs.py).
        """
        self._scheduled = put_off_idle_runs(self._timers, self._first, until_us, self._scheduled)

    def next_us(self) -> int | None:
        """When the earliest timer is due; None without timers."""
        first = self._first()
        return None if first is None else first[0]

    def _first(self) -> Timer | None:
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
            self._cancelled -= 1
        return timers[0] if timers else None

    def what_is_under_way(self) -> str:
        """Says what must be waited for before time may move. Empty if there is nothing."""
        if self._turns_below:
            return "the loop of a broker has begun a turn"
        return next(filter(None, map(what_is_under_way, self._loops)), "")

    def _run_due(self, now_us: int) -> None:
        timers, due = self._timers, []
        while timers and timers[0][0] <= now_us:
            due.append(heapq.heappop(timers)[2])
        for call in due:
            if call.is_cancelled:
                self._cancelled -= 1
            else:
                call.run()

    def _timer_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > CANCELLED_AT_MOST and 2 * self._cancelled > len(self._timers):
            self._timers = [timer for timer in self._timers if not timer[2].is_cancelled]
            heapq.heapify(self._timers)
            self._cancelled = 0


def _nothing() -> None:
    """A turn was cancelled: it will do nothing."""
