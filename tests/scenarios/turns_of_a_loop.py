"""How long other clients wait: the work between two turns of a broker's loop.

A broker promises turns of at most PROMISED_MS. The same work takes several times as long on a slow machine or beside
busy neighbours, so only a soak, on a quiet machine, judges the processor time. All other runs count what a turn does
on any machine: the functions that it calls, of Python or of C. MOST_CALLS take about 25 ms on a quiet machine, and
PROMISED_MS on one of half the speed, half of which a neighbour takes. What a call does within C or a compiled module is
not counted.

Only the loop's thread counts.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.broker.serve import GC_THRESHOLDS
from odradek.testing import BrokerThread
from tests.soak import SOAK

PROMISED_MS = 100
MOST_CALLS = 120_000
PAUSE_S = 0.001
"""The pause between two measurements; the turns in between count as one. Without it, other threads could hardly run."""


class Turns:
    """The turns from the first call of `next` to `end`, of the thread that calls them."""

    def __init__(self) -> None:
        self.count = 0
        self.longest_ms = 0.0
        self.most_calls = 0
        self._began_s: float | None = None
        self._profile = None if SOAK else cProfile.Profile(subcalls=False)

    def next(self) -> None:
        """A turn ends and the next one begins."""
        self.end()
        self._began_s = time.thread_time()
        if self._profile is not None:
            self._profile.enable()

    def end(self) -> None:
        """A turn ends, and none begins."""
        if self._began_s is None:
            return
        if self._profile is not None:
            self._profile.disable()
            self.most_calls = max(self.most_calls, sum(each.callcount for each in self._profile.getstats()))
            self._profile.clear()
        self.count += 1
        self.longest_ms = max(self.longest_ms, (time.thread_time() - self._began_s) * 1000)
        self._began_s = None

    def are_short(self) -> bool:
        """Whether each turn keeps what this run judges."""
        return self.longest_ms < PROMISED_MS if SOAK else self.most_calls < MOST_CALLS

    def __repr__(self) -> str:
        return f"{self.count} turns of up to {self.longest_ms:.1f} ms and {self.most_calls} calls"


class EachTurn(Turns):
    """Watches the running loop by a callback that schedules itself, until `stop`."""

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = False
        self._watch()

    def stop(self) -> None:
        self.end()
        self._ended = True

    def _watch(self) -> None:
        if not self._ended:
            self.next()
            self._loop.call_soon(self._watch)


class LongestTurn(Turns):
    """Watches the running loop by a task, about once in a millisecond."""

    _ended = False

    async def begin(self) -> None:
        self._watching = asyncio.create_task(self._watch())
        await asyncio.sleep(0)

    async def ended(self) -> None:
        self._ended = True
        await self._watching

    async def _watch(self) -> None:
        self.next()
        while not self._ended:
            await asyncio.sleep(PAUSE_S)
            self.next()
        self.end()


@contextmanager
def longest_turn(broker: BrokerThread) -> Iterator[LongestTurn]:
    """Measures the broker's loop during the block."""
    turn = LongestTurn()
    with collector_as_when_served():
        broker.call(turn.begin())
        try:
            yield turn
        finally:
            broker.call(turn.ended())


@contextmanager
def collector_as_when_served() -> Iterator[None]:
    """Collects rarely, as `odradek serve` does, and never again what there is now: other tests' objects took 250 ms."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
