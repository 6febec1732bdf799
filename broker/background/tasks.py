"""The parts of `Background` that the rest of the broker uses; tests may pass something else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from odradek.broker.background.turns import Turns

T = TypeVar("T")


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
