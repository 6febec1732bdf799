"""A connection between a session and the shared metadata store: what is sent over it, and how it travels.

Each direction is a `Pipe`: messages arrive in the order in which they were sent, each after a delay. Callbacks run in
the context (`contextvars`) of the side that receives, and on its event loop: a simulation that drops or holds back the
callbacks of a node, by its context or its loop, does not disturb the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from odradek.broker.metadata_store.interface import Operation, Watch, WatchEvent

M = TypeVar("M")


class WatchSet:
    """A watch on its way. `call` becomes None when the read that sets the watch has failed for its caller."""

    __slots__ = ("call",)

    def __init__(self, call: Watch) -> None:
        self.call: Watch | None = call


class Attach(NamedTuple):
    """Continues the session, or begins one if the id is 0. Answered by the session's id, 0 if the session has ended."""

    session_id: int


class EndSession(NamedTuple):
    """Ends the session."""


class ReadEntry(NamedTuple):
    """Answered by the entry, or None. With `must_exist`, a missing entry is NoEntry, and no watch is set."""

    path: str
    watch: WatchSet | None
    must_exist: bool


class ReadEntries(NamedTuple):
    """Answered by a list of entries or None."""

    paths: Sequence[str]


class ReadChildren(NamedTuple):
    """Answered by the names of the children."""

    path: str
    watch: WatchSet | None


class Multi(NamedTuple):
    """One `multi`; answered by its results."""

    operations: Sequence[Operation]


Request = Attach | EndSession | ReadEntry | ReadEntries | ReadChildren | Multi


class Call(NamedTuple):
    """A request and what to do with its response, which may be a MetadataStoreError."""

    request: Request
    answered: Callable[[Any], None]


class Response(NamedTuple):
    """The response to a call."""

    call: Call
    result: Any


class Event(NamedTuple):
    """The first change that a watch was waiting for."""

    watch: WatchSet
    event: WatchEvent


class Pipe(Generic[M]):
    """One direction. `delay` returns the seconds that the next message takes. The receiver has `context` and `loop`."""

    def __init__(
        self,
        receive: Callable[[M], None],
        delay: Callable[[], float],
        context: Context,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._receive = receive
        self._delay = delay
        self._context = context
        self._loop = loop
        self._messages: deque[tuple[float, M]] = deque()
        self._next: asyncio.Handle | None = None

    def send(self, message: M) -> None:
        """Sends `message`: it arrives after those sent before, at the earliest in the loop's next turn."""
        due = self._loop.time() + self._delay()
        if self._messages:
            due = max(due, self._messages[-1][0])
        self._messages.append((due, message))
        self._wait_for_next()

    def close(self) -> list[M]:
        """Delivers nothing more. Returns the messages that have not arrived."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        lost = [message for _, message in self._messages]
        self._messages.clear()
        return lost

    def _wait_for_next(self) -> None:
        if self._next is not None or not self._messages:
            return
        loop, due = self._loop, self._messages[0][0]
        if due <= loop.time():
            self._next = loop.call_soon(self._arrive, context=self._context)
        else:
            self._next = loop.call_at(due, self._arrive, context=self._context)

    def _arrive(self) -> None:
        self._next = None
        now = self._messages[0][0]
        while self._messages and self._messages[0][0] <= now:
            self._receive(self._messages.popleft()[1])
        self._wait_for_next()


class ClientSide(Protocol):
    """What a connection calls at the session's side."""

    context: Context
    loop: asyncio.AbstractEventLoop

    def receive(self, message: Response | Event) -> None: ...
    def disconnected(self, connection: Connection) -> None: ...


class Connection:
    """`up` carries calls to the store, `down` responses and events back. `session_id` is 0 until the store has attached
    a session.
    """

    def __init__(
        self,
        client: ClientSide,
        arrived: Callable[[Connection, Call], None],
        delay: Callable[[], float],
        store_context: Context,
        store_loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.client = client
        self.session_id = 0
        self.is_broken = False
        self.up: Pipe[Call] = Pipe(lambda call: arrived(self, call), delay, store_context, store_loop)
        self.down: Pipe[Response | Event] = Pipe(client.receive, delay, client.context, client.loop)


class Link(Protocol):
    """A session's way to the store."""

    def connect(self) -> Connection | None:
        """Returns a new connection, or None while the way is cut."""

    def let_go(self, connection: Connection) -> None:
        """Breaks a connection that the session does not use any more."""

    def attempt(self, session_id: int, request: Request) -> None:
        """A call over a way that is cut. It may reach the store; its response is lost."""
