"""Runs a coroutine that often ends without waiting, and that must not be canceled with its caller.

A task takes two turns of the event loop, also for a coroutine that never waits. `uncanceled` begins the coroutine at
once, and makes a task only of what is left when it waits. (Python 3.12 has eager tasks.)
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def uncanceled(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the coroutine's result. It runs to its end even if the caller is canceled."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    return await asyncio.shield(_rest(coroutine, waits_for))


@types.coroutine
def _rest(coroutine: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Goes on with a coroutine that has come as far as to wait."""
    try:
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:
                waits_for = coroutine.throw(error)
            else:
                waits_for = coroutine.send(sent)
    except StopIteration as end:
        result: T = end.value
        return result
