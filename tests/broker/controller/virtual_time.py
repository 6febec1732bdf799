"""Runs coroutines, and tests that are coroutines, on an event loop whose time jumps to the next timer when nothing else
is left to do.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing is left to do, and the coroutine has not ended")
        self.now += max(0.0, timeout)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run_in_virtual_time(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the coroutine's result."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(coroutine)


def in_virtual_time(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """Makes a test of a coroutine."""

    @wraps(test)
    def run() -> None:
        run_in_virtual_time(test())

    return run
