"""`advance` and `advance_until`, which brokers and clusters inherit."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial

from odradek.broker.server import Broker
from odradek.testing.failures import NotReached
from odradek.testing.network import Network
from odradek.testing.node_loop import NodeLoop, node_loop
from odradek.testing.virtual_time.advance import Advance
from odradek.testing.virtual_time.members import extend_sessions
from odradek.testing.virtual_time.virtual_time import VirtualTime
from odradek.timer import Clock

Span = float | timedelta
"""Seconds, or a timedelta."""
Condition = Callable[[], object]
"""Whether it holds; it may be a coroutine function."""

WALL, VIRTUAL = "wall", "virtual"
AN_HOUR_S = 3600.0
LONGEST_S = 1e9
"""About thirty years. Dates must remain dates."""
TURNS_FOR_CLIENTS = 2
"""What clients have sent before an advance is received before it."""


class CannotAdvance(RuntimeError):
    """Time cannot be advanced now. The message says why, and what to do."""


def time_of(time: str, clock: Clock | None) -> VirtualTime | None:
    """Returns what the argument `time` of a broker or a cluster stands for: None is wall time. Raises ValueError."""
    if time not in (WALL, VIRTUAL):
        raise ValueError(f'time is "{WALL}" or "{VIRTUAL}", not {time!r}')
    if time == WALL:
        return None
    if clock is not None:
        raise ValueError('with time="virtual" a broker has a clock of its own: leave out clock')
    return VirtualTime()


@contextlib.asynccontextmanager
async def own_loop(time: VirtualTime | None) -> AsyncIterator[NodeLoop | None]:
    """Yields the loop of a single broker with virtual time; None in wall time, in which it needs none."""
    if time is None:
        yield None
        return
    loop = node_loop(0, Network(), time)
    time.belongs_to(loop)
    try:
        yield loop
    finally:
        loop.end()
        await loop.all_gone()


class TimeControls:
    """What tests do with the time of a broker or a cluster. `virtual_time`: None in wall time."""

    virtual_time: VirtualTime | None

    @abstractmethod
    def brokers_in_time(self) -> Sequence[Broker]:
        """Returns the brokers that have not stopped."""

    @abstractmethod
    def state_in_time(self) -> str:
        """Returns what there is, for errors."""

    async def advance(self, by: Span, *, keep_members: bool = False) -> None:
        """Advances virtual time `by` seconds, or a timedelta. Everything that falls due meanwhile happens in order.
        Returns when nothing is left to do at that time. With `keep_members`, the sessions of group members are paused.

        Raises CannotAdvance, AdvanceFailed, and ValueError if time would go back.
        """
        span_us = _microseconds(by)
        async with self._advancing() as time:
            await Advance(time, time.now_us + span_us, moves=self._moves(keep_members)).run()

    async def advance_until(
        self, condition: Condition, *, within: Span = AN_HOUR_S, what: str = "", keep_members: bool = False
    ) -> None:
        """Advances virtual time to the first moment at which `condition()` holds; it may be a coroutine function, which
        may use a client. `what` names it. Raises NotReached if it does not hold `within` so much virtual time, and what
        `advance` raises.
        """
        span_us = _microseconds(within)
        async with self._advancing() as time:
            until_us, moves = time.now_us + span_us, self._moves(keep_members)
            while True:
                is_last = time.now_us >= until_us  # while the condition is awaited, time flows
                holds = condition()
                is_awaited = isinstance(holds, Awaitable)
                if await holds if isinstance(holds, Awaitable) else holds:
                    return
                if is_last:
                    raise self._not_reached(what or name_of(condition), span_us / 1e6)
                is_over = partial(_has_moved, time, time.now_us) if is_awaited else partial(_holds, condition)
                await Advance(time, max(until_us, time.now_us), is_over=is_over, moves=moves).run()

    @contextlib.asynccontextmanager
    async def _advancing(self) -> AsyncIterator[VirtualTime]:
        """Nobody else advances time meanwhile. Raises CannotAdvance."""
        time = self.virtual_time
        if time is None:
            raise CannotAdvance('this broker or cluster has wall time: start it with time="virtual"')
        if asyncio.get_running_loop() is not time.below:
            raise CannotAdvance(
                "time is advanced on the event loop of the broker or cluster: "
                "if it has a thread of its own, use the methods of the thread"
            )
        if not self.brokers_in_time():
            raise CannotAdvance("no broker is running: start one, or advance before you stop it")
        if time.is_claimed:
            raise CannotAdvance("another task is advancing time: await it first")
        time.is_claimed = True
        try:
            for _ in range(TURNS_FOR_CLIENTS):
                await asyncio.sleep(0)
            yield time
        finally:
            time.is_claimed = False

    def _moves(self, keep_members: bool) -> Callable[[int], None] | None:
        return (lambda ms: extend_sessions(self.brokers_in_time(), ms)) if keep_members else None

    def _not_reached(self, what: str, span_s: float) -> NotReached:
        return NotReached(f"{what}: not within {span_s:g} s of virtual time. What there is:\n{self.state_in_time()}")


def name_of(condition: Condition) -> str:
    """Returns what a condition is called if its caller does not say."""
    return getattr(condition, "__name__", "a condition")


def decided(condition: Callable[[], object]) -> bool:
    """Returns whether a condition of a wait that blocks holds. Raises TypeError if it is a coroutine function, which
    would always hold.
    """
    holds = condition()
    if inspect.iscoroutine(holds):
        holds.close()
        raise TypeError(f"{name_of(condition)} is a coroutine function: a wait that blocks takes a plain function")
    return bool(holds)


def _microseconds(span: Span) -> int:
    """Raises ValueError for what is no time to come."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if not math.isfinite(seconds) or not 0 <= seconds <= LONGEST_S:
        raise ValueError(f"time advances by 0 to {LONGEST_S:g} seconds, not by {span}: it does not go back")
    return round(seconds * 1e6)


def _has_moved(time: VirtualTime, since_us: int) -> bool:
    return time.now_us > since_us


def _holds(condition: Condition) -> bool:
    return bool(condition())
