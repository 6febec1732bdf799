"""Turns on the event loop for long work: one step of one piece of work in each turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import TypeVar

from odradek.broker.background.stepwise import Steps

T = TypeVar("T")

MOST_BYTES_AT_ONCE = 512 << 20
"""The memory that long requests may use together. A single request may use more."""


class Turns:
    """Runs the steps of all long work: one step per turn of the loop in total, however many tasks have work."""

    def __init__(self) -> None:
        self._one_step = asyncio.Lock()
        self._fewer_bytes = asyncio.Condition()
        self._bytes = 0

    async def take(self, steps: Steps[T]) -> T:
        """Runs the steps and returns their value. Raises what they raise."""
        while True:
            async with self._one_step:
                try:
                    next(steps)
                except StopIteration as end:
                    value: T = end.value
                    return value
                await asyncio.sleep(0)

    async def take_then(
        self,
        steps: Steps[T],
        then: Callable[[T], object],
        failed: Callable[[Exception], object],
        size: int = 0,
    ) -> None:
        """Runs the steps and calls `then` with their value: for callers without coroutines, which are compiled. Calls
        `failed` with what either of them raises. `size`: as of `room_for`, if it is much.
        """
        try:
            async with self.room_for(size) if size else nullcontext():
                value = await self.take(steps)
            then(value)
        except Exception as error:
            failed(error)

    @asynccontextmanager
    async def room_for(self, size: int) -> AsyncIterator[None]:
        """Waits until a request that may use `size` bytes of memory can be processed besides those under way."""
        async with self._fewer_bytes:
            await self._fewer_bytes.wait_for(lambda: not self._bytes or self._bytes + size <= MOST_BYTES_AT_ONCE)
            self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size
            async with self._fewer_bytes:
                self._fewer_bytes.notify_all()
