"""One advance of virtual time, from deadline to deadline.

A moment ends when nothing is left to do: neither turns of node loops, nor what under_way.py lists. Then time moves to
the next deadline, or to the end of the advance if there is none before. Runs of periodic work that would do nothing
are no deadlines (idle_runs.py).

The advance is a series of callbacks of the loop below, never a task: a node loop runs tasks within its turns, and
asyncio does not allow one task to run within another. It takes a few turns at once, so that whatever else runs on the
loop below goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.testing.virtual_time.idle_runs import put_off_idle_runs
from odradek.testing.virtual_time.schedule import run

if TYPE_CHECKING:
    from odradek.testing.virtual_time.virtual_time import VirtualTime

TURNS_AT_ONCE = 20
TURNS_OF_A_MOMENT = 1_000_000
"""More of them are a loop without end."""
HURRIED_LOOKS = 50
"""So often the loop below is asked for another turn at once when something is under way. Then it may sleep. A timer of
asyncio that is due runs behind what has arrived meanwhile, so the next look finds it received."""
PAUSE_S = 0.001
LOOK_US = 1_000_000
"""A condition may depend on the time alone: it is asked at least so often, in virtual time."""
PATIENCE_S = 60.0
"""How long one moment may take by the wall clock, in which the brokers do nothing but wait."""


class AdvanceFailed(RuntimeError):
    """An advance did not come to its end: something that it has to wait for takes too long. The message says what."""


class Advance:
    """Made by `TimeControls`. `is_over()` is asked at the end of each moment, and at least every LOOK_US. `moves(ms)`
    is called before time moves by so many milliseconds.
    """

    def __init__(
        self,
        time: VirtualTime,
        until_us: int,
        *,
        is_over: Callable[[], bool] | None = None,
        moves: Callable[[int], None] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._time = time
        self._until_us = until_us
        self._is_over = is_over
        self._moves = moves
        self._patience_s = patience_s
        self._began_us = time.now_us
        self._next: asyncio.Handle | None = None
        self._done: asyncio.Future[None] = time.below.create_future()
        self._turns = 0
        """Of this moment."""
        self._looks = 0
        """Since the last turn."""
        self._waits_since_s = 0.0

    async def run(self) -> None:
        """Returns when it has come to its end, or is over. Raises AdvanceFailed."""
        self._time.stand()
        self._next = self._time.below.call_soon(self._go)
        try:
            await self._done
        finally:
            self._next.cancel()
            self._time.flow()

    def _go(self) -> None:
        try:
            pause_s = self._go_on()
        except BaseException as error:
            if not self._done.done():
                self._done.set_exception(error if isinstance(error, Exception) else AdvanceFailed(repr(error)))
            if not isinstance(error, Exception):
                raise
            return
        if pause_s is not None:
            self._next = self._time.below.call_later(pause_s, self._go)
        elif not self._done.done():
            self._done.set_result(None)

    def _go_on(self) -> float | None:
        """Does some of the work. Returns how long to pause then, None at the end."""
        time = self._time
        for _ in range(TURNS_AT_ONCE):
            if time.ready:
                self._turn()
            elif under_way := time.what_is_under_way():
                return self._wait_for(under_way)
            elif (self._is_over is not None and self._is_over()) or not self._next_moment():
                return None
        return 0

    def _turn(self) -> None:
        self._turns += 1
        if self._turns > TURNS_OF_A_MOMENT:
            raise self._stuck(f"the brokers have taken {TURNS_OF_A_MOMENT:,} turns and are not done")
        self._looks = 0
        run(self._time.ready.popleft())

    def _wait_for(self, under_way: str) -> float:
        now_s = self._time.below.time()
        if not self._looks:
            self._waits_since_s = now_s
        self._looks += 1
        if self._looks <= HURRIED_LOOKS:
            return 0
        waited_s = now_s - self._waits_since_s
        if waited_s > self._patience_s:
            raise self._stuck(f"for {waited_s:.0f} s of wall time, {under_way}")
        return PAUSE_S

    def _stuck(self, why: str) -> AdvanceFailed:
        after_s = (self._time.now_us - self._began_us) / 1e6
        return AdvanceFailed(f"virtual time has stopped {after_s:.3f} s after the start of this advance: {why}")

    def _next_moment(self) -> bool:
        """Returns False if time has come to the end of the advance and nothing more is due."""
        time = self._time
        now_us = time.now_us
        latest_us = self._until_us if self._is_over is None else min(self._until_us, now_us + LOOK_US)
        put_off_idle_runs(time, latest_us)
        due_us = time.next_us()
        if due_us is None or due_us > latest_us:
            if now_us >= self._until_us:
                return False
            due_us = latest_us
        if due_us > now_us:
            self._turns = self._looks = 0
            if self._moves is not None:
                self._moves(due_us // 1000 - now_us // 1000)
        time.move_to(max(due_us, now_us))
        return True
