"""How long other clients wait: the processor time of one turn of a broker's loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.broker.serve import GC_THRESHOLDS
from odradek.broker.testing import BrokerThread

PAUSE_S = 0.001
"""The pause between two measurements; the turns in between count as one. Without it, other threads could hardly run."""


class LongestTurn:
    """The longest turn since `begin`, in milliseconds of the loop's thread, about one too many. Waiting for a
    processor and the work of other threads do not count.
    """

    def __init__(self) -> None:
        self.milliseconds = 0.0
        self._ended = False
        self._watching: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self._watching = asyncio.create_task(self._watch())
        await asyncio.sleep(0)

    async def end(self) -> None:
        assert self._watching is not None
        self._ended = True
        await self._watching

    async def _watch(self) -> None:
        last = time.thread_time()
        while not self._ended:
            await asyncio.sleep(PAUSE_S)
            now = time.thread_time()
            self.milliseconds = max(self.milliseconds, (now - last) * 1000)
            last = now


@contextmanager
def longest_turn(broker: BrokerThread) -> Iterator[LongestTurn]:
    """Measures the broker's loop during the block."""
    turn = LongestTurn()
    with collector_as_when_served():
        broker.call(turn.begin())
        try:
            yield turn
        finally:
            broker.call(turn.end())


@contextmanager
def collector_as_when_served() -> Iterator[None]:
    """Excludes all current objects from garbage collection (those of other tests can take 250 ms), and collects the
    others as rarely as `odradek serve`.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
