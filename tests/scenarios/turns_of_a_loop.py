"""How long the others wait: the processor time that a broker's loop spends in one of its turns."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.broker.serve import GC_THRESHOLDS
from odradek.broker.testing import BrokerThread

PAUSE_S = 0.001
"""Between two looks; the turns in between count as one. Without a pause other threads could hardly work."""


class LongestTurn:
    """The longest turn since `begin`, in milliseconds of the loop's own thread, about one too many: waiting for a
    processor that other programs use, and the work of other threads, do not count.
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
    """Watches the broker's loop while the block runs."""
    turn = LongestTurn()
    with collector_as_when_served():
        broker.call(turn.begin())
        try:
            yield turn
        finally:
            broker.call(turn.end())


@contextmanager
def collector_as_when_served() -> Iterator[None]:
    """The garbage collector never again looks at what there is now (what other tests have left can take it 250 ms), and
    at the rest as rarely as in `odradek serve`.
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
