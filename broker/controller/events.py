"""The controller's events, one after the other: each sees what all earlier ones have decided, stored and sent.

An event is a coroutine function, and is queued in one of three ways:

    put         by a watch, a timer or a response. No caller waits for its end; an exception is passed to `failed`.
    put_once    the same, but only if no event of this name is queued. An event reads the current state when it runs, so
                one run is enough for all changes that were announced before.
    ask         by a request. The caller gets the event's result. The event runs to its end even if the caller is
                canceled.

Source: Kafka's `ControllerEventManager`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from odradek.broker.background.tasks import Spawn
from odradek.protocol.errors import ErrorCode, ProtocolError

STOP_PATIENCE_S = 2.0
"""How long `stop` waits for the event in progress. One that waits for the metadata store may wait for ever."""

T = TypeVar("T")

Work = Callable[[], Awaitable[Any]]


class Events:
    """`failed` is called with the name and the exception of an event that nobody waits for."""

    def __init__(self, spawn: Spawn, failed: Callable[[str, Exception], None]) -> None:
        self._spawn = spawn
        self._failed = failed
        self._queue: deque[tuple[str, Work, asyncio.Future[Any] | None]] = deque()
        self._announced: set[str] = set()
        self._filled = asyncio.Event()
        self._postponed: dict[str, asyncio.TimerHandle] = {}
        self._running: asyncio.Task[None] | None = None
        self._is_stopping = False

    def start(self) -> None:
        """Starts running events."""
        self._running = self._spawn(self._run(), "controller")

    async def stop(self) -> None:
        """Waits for the event in progress for STOP_PATIENCE_S, and then cancels it. Those that wait are dropped. The
        askers of all of these get NOT_CONTROLLER.
        """
        self._is_stopping = True
        for handle in self._postponed.values():
            handle.cancel()
        self._filled.set()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=STOP_PATIENCE_S)
            self._running.cancel()
            await asyncio.wait([self._running])
        for _, _, answer in self._queue:
            if answer is not None and not answer.done():
                answer.set_exception(stopped())
        self._queue.clear()

    def put(self, name: str, work: Work) -> None:
        """Queues an event."""
        self._add(name, work, None)

    def put_once(self, name: str, work: Work, delay_s: float = 0) -> None:
        """Queues an event after a delay, unless one of this name waits already, because it would do the same."""
        if delay_s <= 0:
            if name not in self._announced:
                self._announced.add(name)
                self._add(name, work, None)
        elif name not in self._postponed:

            def due() -> None:
                del self._postponed[name]
                self.put_once(name, work)

            self._postponed[name] = asyncio.get_running_loop().call_later(delay_s, due)

    async def ask(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Queues an event, and returns or raises what it returns or raises."""
        if self._is_stopping:
            raise stopped()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._add(name, work, answer)
        return await answer

    def _add(self, name: str, work: Work, answer: asyncio.Future[Any] | None) -> None:
        if self._is_stopping:
            return
        self._queue.append((name, work, answer))
        self._filled.set()

    async def _run(self) -> None:
        while not self._is_stopping:
            if not self._queue:
                self._filled.clear()
                await self._filled.wait()
                continue
            name, work, answer = self._queue.popleft()
            self._announced.discard(name)
            try:
                result = await work()
            except asyncio.CancelledError:
                if answer is not None and not answer.done():
                    answer.set_exception(stopped())
                raise
            except Exception as error:
                if answer is None or answer.done():
                    self._failed(name, error)
                else:
                    answer.set_exception(error)
            else:
                if answer is not None and not answer.done():
                    answer.set_result(result)


def stopped() -> ProtocolError:
    """The error for those who ask a controller that stops."""
    return ProtocolError(ErrorCode.NOT_CONTROLLER, "The controller stops")
