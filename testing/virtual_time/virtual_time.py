"""The time of all brokers of one test. It is their `Clock`, and node loops take their timers and turns from it.

    state      how time passes                                        what runs the timers
    ---------  -----------------------------------------------------  ---------------------------------------------
    flowing    as the loop below has it, from where an advance ended   one timer of the loop below, for the earliest
    standing   not at all; `move_to` jumps                             `move_to`: all that are due, in order

Time is counted in whole microseconds from an arbitrary start. While time stands, what node loops have to do is ready
(schedule.py) until the advance takes it, call by call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, TypeVarTuple

from odradek.testing.node_loop import NodeLoop
from odradek.testing.virtual_time.schedule import Schedule, run
from odradek.testing.virtual_time.under_way import what_is_under_way
from odradek.timer import Clock, SystemClock

Ts = TypeVarTuple("Ts")


class VirtualTime(Schedule):
    """See the head of this file. The running loop is the one below. `clock` says what date it is at the beginning."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self.below = asyncio.get_running_loop()
        self.is_claimed = False
        """Whether somebody advances it."""
        self._context = copy_context()
        self._loops: list[NodeLoop] = []
        self._ahead_us = 0
        self._standing_us: int | None = None
        self._turns_below = 0
        """How many turns of node loops the loop below has been asked for."""
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

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        call = super().call_at(when, callback, *args, context=context)
        self._wake_up_in_time()
        return call

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        call = super().call_soon(callback, *args, context=context)
        if self._standing_us is None:
            self._turn_below(self.ready.pop())
        return call

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """See asyncio."""
        self.below.call_exception_handler(context)

    def _turn_below(self, call: asyncio.Handle) -> None:
        self._turns_below += 1
        self.below.call_soon(self._run_turn, call, context=self._context)

    def _run_turn(self, call: asyncio.Handle) -> None:
        self._turns_below -= 1
        run(call)

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
        """Time flows from now on. What is ready runs soon."""
        self._ahead_us = self.now_us - self._below_us()
        self._standing_us = None
        while self.ready:
            self._turn_below(self.ready.popleft())
        self._wake_up_in_time()

    def move_to(self, now_us: int) -> None:
        """While time stands: moves to a later moment, and runs the timers that are due then."""
        self._standing_us = now_us
        self._run_due(now_us)

    def what_is_under_way(self) -> str:
        """Says what must be waited for before time may move. Empty if there is nothing."""
        if self._turns_below:
            return "the loop of a broker has begun a turn"
        return next(filter(None, map(what_is_under_way, self._loops)), "")

    def _run_due(self, now_us: int) -> None:
        self.reach(now_us)
        for _ in range(len(self.ready)):
            run(self.ready.popleft())
