"""Polls for a condition that sends no notification, for two minutes at most.

A wait that gives up says for what: the condition's source and its last value.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable

PATIENCE_S = 120
PAUSE_S = 0.01
TURNS = 10_000


async def until(condition: Callable[[], object] | Callable[[], Awaitable[object]]) -> None:
    """Waits until the condition holds. Raises TimeoutError."""
    found: object = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                value = condition()
                found = await value if isawaitable(value) else value
                if found:
                    return
                await asyncio.sleep(PAUSE_S)
    except TimeoutError as error:
        raise TimeoutError(_gave_up(condition, found)) from error


async def soon(condition: Callable[[], object]) -> None:
    """As `until`, but looks in each turn of the event loop: for what may last for a few turns only."""
    for _ in range(TURNS):
        if condition():
            return
        await asyncio.sleep(0)
    raise TimeoutError(_gave_up(condition, False, f"in {TURNS} turns"))


def block_until(condition: Callable[[], object]) -> None:
    """As `until`, for a test without an event loop. Raises TimeoutError."""
    give_up = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > give_up:
            raise TimeoutError(_gave_up(condition, found))
        time.sleep(PAUSE_S)


async def within(condition: Callable[[], object], pauses: int) -> bool:
    """Whether the condition holds after some pauses of the running loop. Timers of the same loop that are due earlier
    come earlier, however busy the machine is.
    """
    for _ in range(pauses):
        if condition():
            return True
        await asyncio.sleep(PAUSE_S)
    return bool(condition())


def _gave_up(condition: Callable[[], object], found: object, when: str = "") -> str:
    try:
        source = " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        source = repr(condition)
    return f"not {when or f'within {PATIENCE_S} s'}: {source}; the last value was {found!r}"
