"""The parts of `Background` that the rest of the broker uses; tests may pass something else. And `uncanceled`, which
makes a task only of what waits.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

from odradek.broker.background.turns import Turns

T = TypeVar("T")
Soon = Callable[[Callable[[], None]], object]
"""soon(call): calls `call` in the next iteration of the event loop."""


class Spawn(Protocol):
    """`Background.spawn`: starts a task that the background owns, and returns it."""

    def __call__(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]: ...


class Threads(Protocol):
    """Runs functions in threads and tasks on the loop."""

    def run_in_thread(self, function: Callable[..., Any], /, *args: Any) -> Awaitable[Any]: ...

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> Any: ...


class ThreadsAndTurns(Threads, Protocol):
    """`Threads`, and turns for long work on the loop."""

    turns: Turns


async def uncanceled(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that often ends without waiting. It runs to its end even if the caller is
    canceled. A task takes two turns of the event loop, also for a coroutine that never waits: this one begins at once,
    and what is left when it waits becomes a task. (Python 3.12 has eager tasks.)
    """
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
