"""Calls of the kit's coroutine functions, and those that nobody awaited: `broker.advance(5)` without `await` does
nothing, and would say nothing.

    (A) A coroutine that was not begun when its broker stops was never awaited: the test fails with NeverAwaited, which
        names the call and its line. One that a task has, or that was closed, is none of these.
    (B) A test that fails anyway keeps its failure, which gets the same as a note (failures.py).
    (C) Coroutines are kept until they have begun, so that none is collected, with Python's warning, before.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, NamedTuple, TypeVar

KIT = __name__.rpartition(".")[0]
LEAST_KEPT = 16
TURNS_UNTIL_BEGUN = 3
"""A call from another thread passes through so many callbacks before its task begins."""

C = TypeVar("C", bound=type)


class NeverAwaited(AssertionError):
    """A coroutine function of the kit was called, and what it returned was never awaited."""


class Call(NamedTuple):
    """A coroutine, what was called for it, and where."""

    coroutine: Coroutine[Any, Any, Any]
    what: str
    file: str
    line: int

    @property
    def has_begun(self) -> bool:
        return inspect.getcoroutinestate(self.coroutine) != inspect.CORO_CREATED


class Calls:
    """Of one broker or cluster. Calls are noted from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[Call] = []
        self._most_kept = LEAST_KEPT

    def note(self, coroutine: Coroutine[Any, Any, Any], what: str, caller: FrameType) -> None:
        """A coroutine was made."""
        with self._lock:
            if len(self._kept) >= self._most_kept:
                self._kept = [call for call in self._kept if not call.has_begun]
                self._most_kept = 2 * len(self._kept) + LEAST_KEPT
            self._kept.append(Call(coroutine, what, caller.f_code.co_filename, caller.f_lineno))

    async def check(self) -> None:
        """Raises NeverAwaited for calls whose coroutine nobody has begun, and closes them (A)."""
        for _ in range(TURNS_UNTIL_BEGUN):
            if all(call.has_begun for call in self._kept):
                break
            await asyncio.sleep(0)
        if found := self.notes():
            raise NeverAwaited("\n".join(found))

    def notes(self) -> list[str]:
        """Returns what `check` would say, and closes those coroutines."""
        with self._lock:
            waiting, self._kept = [call for call in self._kept if not call.has_begun], []
        in_tasks = {id(task.get_coro()) for task in _tasks()} if waiting else set()
        found = [call for call in waiting if id(call.coroutine) not in in_tasks]
        for call in found:
            call.coroutine.close()
        return [
            f"{call.what}() was called and never awaited, so it did nothing: {call.file}:{call.line}" for call in found
        ]


def noted(kind: C) -> C:
    """Notes the calls of all public coroutine functions of a class, also those that it inherits. Its objects have
    `calls`.
    """
    for name, function in inspect.getmembers(kind, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            setattr(kind, name, _noted(function, f"{kind.__name__}.{name}"))
    return kind


def _noted(function: Callable[..., Coroutine[Any, Any, Any]], what: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        coroutine = function(self, *args, **kwargs)
        self.calls.note(coroutine, what, _caller())
        return coroutine

    return call


def _caller() -> FrameType:
    """Returns the nearest frame outside the kit; the nearest one at all if there is none."""
    nearest = frame = sys._getframe(2)
    while str(frame.f_globals.get("__name__", "")).startswith(KIT):
        if frame.f_back is None:
            return nearest
        frame = frame.f_back
    return frame


def _tasks() -> set[asyncio.Task[Any]]:
    try:
        return asyncio.all_tasks()
    except RuntimeError:  # no loop runs in this thread
        return set()
