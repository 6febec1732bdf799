"""Something that lives in an asynchronous context, in a thread of its own with an event loop, for blocking callers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class LoopThread(Generic[T]):
    """`opened()` is entered in the thread when it starts. `loop_factory`: uvloop's by default, if installed."""

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

    @property
    def inside(self) -> T:
        """What lives in the thread."""
        return self._started.result()

    def start(self) -> None:
        """Returns when the context has been entered. Raises what that raises."""
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        """Returns when the context has been left and the thread has ended. Raises what leaving it has raised. May be
        called again.
        """
        loop, event = self._loop, self._stop_requested
        if loop is not None and event is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # The loop may have been closed already.
                loop.call_soon_threadsafe(event.set)
        self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine on the thread's loop and returns its result."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

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
