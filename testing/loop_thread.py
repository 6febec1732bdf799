"""Something that lives in an asynchronous context, in a thread of its own with an event loop, for blocking callers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from odradek.testing.process_directories import PROCESS_DIRECTORIES

T = TypeVar("T")
R = TypeVar("R")

LOOK_S = 1.0
"""A caller that waits looks so often whether the thread is still there."""
NOT_STARTED = "was not started: use it in a `with` statement, or start it first"


class LoopThread(Generic[T]):
    """`opened()` is entered in the thread when it starts. `loop_factory`: uvloop's by default, if installed. What
    cannot be done before the start, after the end, or from the thread itself raises RuntimeError.
    """

    def __init__(
        self,
        opened: Callable[[], AbstractAsyncContextManager[T]],
        *,
        name: str,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self._opened = opened
        self._loop_factory = loop_factory or _fastest_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started: Future[T] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_requested: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._directories = contextlib.ExitStack()
        """What makes sure that a signal removes the directories of this thread."""

    @property
    def inside(self) -> T:
        """What lives in the thread."""
        if self._thread.ident is None:
            raise RuntimeError(f"{self._thread.name} {NOT_STARTED}")
        return self._started.result()

    def start(self) -> None:
        """Returns when the context has been entered. Raises what that raises."""
        if self._thread.ident is not None:
            raise RuntimeError(f"{self._thread.name} was started before: make a new one")
        self._directories.enter_context(PROCESS_DIRECTORIES.expected())
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self._directories.close()
            raise

    def stop(self) -> None:
        """Returns when the context has been left and the thread has ended. Raises what leaving it has raised. May be
        called again, and before the start.
        """
        if self._thread.ident is None:
            return
        loop, event = self._loop, self._stop_requested
        if loop is not None and event is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # The loop may have been closed already.
                loop.call_soon_threadsafe(event.set)
        self._thread.join()
        self._directories.close()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine on the thread's loop and returns its result."""
        self.expect_to_run(coroutine)
        assert self._loop is not None
        try:
            called = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop was closed just now
            self.expect_to_run(coroutine)
            raise
        while not wait([called], LOOK_S).done:
            if not self._thread.is_alive() and not called.done():
                self.expect_to_run(coroutine)
        return called.result()

    def expect_to_run(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Closes the coroutine and raises RuntimeError if `call` could not run it."""
        why_not = self._why_not()
        if why_not:
            coroutine.close()
            raise RuntimeError(f"{self._thread.name} {why_not}")

    def _why_not(self) -> str:
        if self._thread is threading.current_thread():
            return "is called from its own thread, which would wait for itself: do not call it in functions of faults"
        if self._loop is None:
            return NOT_STARTED
        return "" if self._thread.is_alive() else "has ended: what it had can be read, and nothing can be done to it"

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(self._live())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            else:
                self._failure = error

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop_requested = asyncio.Event()
        async with self._opened() as inside:
            self._started.set_result(inside)
            await self._stop_requested.wait()


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
