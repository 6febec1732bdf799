"""Turns on the event loop for long work: one step of one piece of work in each turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from odradek.broker.background.stepwise import Steps

T = TypeVar("T")

MOST_BYTES_AT_ONCE = 512 << 20
"""The memory that long requests may take together. A single request may take more."""


class Turns:
    """Takes the steps of all long work, one of them each turn of the loop, however many have some to do."""

    def __init__(self) -> None:
        self._one_step = asyncio.Lock()
        self._fewer_bytes = asyncio.Condition()
        self._bytes = 0

    async def take(self, steps: Steps[T]) -> T:
        """Does the steps and returns their value. Raises what they raise."""
        while True:
            async with self._one_step:
                try:
                    next(steps)
                except StopIteration as end:
                    value: T = end.value
                    return value
                await asyncio.sleep(0)

    @asynccontextmanager
    async def room_for(self, size: int) -> AsyncIterator[None]:
        """Waits until a request that may take `size` bytes of memory can be worked at beside those that already are."""
        async with self._fewer_bytes:
            await self._fewer_bytes.wait_for(lambda: not self._bytes or self._bytes + size <= MOST_BYTES_AT_ONCE)
            self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size
            async with self._fewer_bytes:
                self._fewer_bytes.notify_all()
