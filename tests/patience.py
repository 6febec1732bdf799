"""Polls for a condition that sends no notification, for a minute at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable

PATIENCE_S = 60
PAUSE_S = 0.01


async def until(condition: Callable[[], object] | Callable[[], Awaitable[object]]) -> None:
    """Waits until the condition holds. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = condition()
            if await found if isawaitable(found) else found:
                return
            await asyncio.sleep(PAUSE_S)


def block_until(condition: Callable[[], object]) -> None:
    """As `until`, for a test without an event loop. Raises TimeoutError."""
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError
        time.sleep(PAUSE_S)
