"""A session with the shared metadata store, as a broker sees it: a MetadataStore over a connection that can break.

    state       calls                       until
    ----------  --------------------------  ------------------------------------------------------------------------
    closed      StoreUnavailable            `open`
    connected   sent, answered in order     the connection breaks: all open calls raise ConnectionLost; SUSPENDED
    suspended   ConnectionLost              a new connection continues the session: CONNECTED; or the store has ended
                                            the session: LOST, then a new session begins: `session_epoch` grows,
                                            CONNECTED

The session connects again by itself whenever it can. Only the store ends a session. A session that is cut off hears of
its end when it is connected again. `close` notifies the listeners of LOST, too.

Listeners, watches and callbacks of calls run in the context, and on the event loop, in which `open` was called (see
`connection.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any

import structlog

from odradek.broker.metadata_store.interface import (
    ConnectionLost,
    Entry,
    MetadataStore,
    MetadataStoreError,
    Operation,
    Outcome,
    SessionState,
    StoreUnavailable,
    Watch,
    listed,
)
from odradek.broker.metadata_store.shared.connection import (
    Attach,
    Call,
    Connection,
    EndSession,
    Event,
    Link,
    Multi,
    ReadChildren,
    ReadEntries,
    ReadEntry,
    Request,
    Response,
    WatchSet,
)

log = structlog.get_logger("controller.store")


class SharedSession(MetadataStore):
    """Made by `SharedStore.session`. `open` waits for a connection for at most `timeout_ms`."""

    is_shared = True
    loop: asyncio.AbstractEventLoop

    def __init__(self, link: Link, timeout_ms: int) -> None:
        super().__init__()
        self.context: Context = copy_context()
        self._link = link
        self._timeout_ms = timeout_ms
        self._connection: Connection | None = None
        self.is_open = False
        self._is_connected = False
        self._unanswered: dict[asyncio.Future[Any], None] = {}
        self._settled = asyncio.Event()
        """Set while the session is connected or closed. `connected` waits for it."""

    async def open(self) -> None:
        """See MetadataStore. Has no effect if the session is open."""
        self.context = copy_context()
        self.loop = asyncio.get_running_loop()
        self.is_open = True
        self._settled = asyncio.Event()
        self.connect()
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await self.connected()
        except TimeoutError as error:
            self._end("not open")
            raise StoreUnavailable("", f"no connection to the metadata store in {self._timeout_ms} ms") from error

    async def close(self) -> None:
        """See MetadataStore. If the store cannot be reached, it ends the session at its time-out."""
        if not self.is_open:
            return
        ended = self._send(EndSession()) if self._is_connected else None
        self.is_open = False
        try:
            if ended is not None:
                await ended
        finally:
            self._end("closed")

    async def connected(self) -> None:
        """See MetadataStore."""
        while not self._is_connected:
            self._check_open()
            await self._settled.wait()

    # Calls

    async def get(self, path: str, watch: Watch | None = None) -> Entry:
        """See MetadataStore."""
        watch_set = None if watch is None else WatchSet(watch)
        entry: Entry = await self._read(ReadEntry(path, watch_set, must_exist=True), watch_set)
        return entry

    async def exists(self, path: str, watch: Watch | None = None) -> Entry | None:
        """See MetadataStore."""
        watch_set = None if watch is None else WatchSet(watch)
        entry: Entry | None = await self._read(ReadEntry(path, watch_set, must_exist=False), watch_set)
        return entry

    async def entries(self, paths: Sequence[str]) -> list[Entry | None]:
        """See MetadataStore."""
        entries: list[Entry | None] = await self._read(ReadEntries(tuple(paths)), None)
        return entries

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See MetadataStore."""
        watch_set = None if watch is None else WatchSet(watch)
        names: list[str] = await self._read(ReadChildren(path, watch_set), watch_set)
        return names

    async def pipeline(self, groups: Sequence[Iterable[Operation]]) -> list[Outcome]:
        """See MetadataStore."""
        responses = [self._send(Multi(operations)) for operations in await listed(groups)]
        return [await response for response in responses]

    async def _read(self, request: Request, watch_set: WatchSet | None) -> Any:
        """Raises the response if it is an error; the watch is then never called."""
        result: Any = None
        try:
            result = await self._send(request)
            if isinstance(result, MetadataStoreError):
                raise result
        except BaseException:
            if watch_set is not None:
                watch_set.call = None
            raise
        return result

    def _send(self, request: Request) -> asyncio.Future[Any]:
        """Returns a future whose result is the response, which may be an error. The caller may drop the future."""
        loop = asyncio.get_running_loop()
        response: asyncio.Future[Any] = loop.create_future()
        connection = self._connection
        if not self.is_open:
            response.set_result(StoreUnavailable("", "the metadata store is unavailable: the session is not open"))
        elif not self._is_connected or connection is None:
            self._link.attempt(self.session_id, request)
            loop.call_soon(self._respond, response, _connection_lost())
        else:
            self._unanswered[response] = None
            if connection.is_broken:
                self._link.attempt(self.session_id, request)
            else:
                connection.up.send(Call(request, partial(self._respond, response)))
        return response

    def _respond(self, response: asyncio.Future[Any], result: Any) -> None:
        self._unanswered.pop(response, None)
        if not response.done():
            response.set_result(result)

    def _check_open(self) -> None:
        if not self.is_open:
            raise StoreUnavailable("", "the metadata store is unavailable: the session is not open")

    # The connection

    def connect(self) -> None:
        """Connects if the session is open, has no connection, and its way to the store is not cut."""
        if self.is_open and self._connection is None:
            self._connection = self._link.connect()
            if self._connection is not None:
                self._attach(self._connection)

    def receive(self, message: Response | Event) -> None:
        """Takes a message from the store."""
        if isinstance(message, Response):
            message.call.answered(message.result)
        elif message.watch.call is not None:
            try:
                message.watch.call(message.event)
            except Exception:
                log.exception("watch failed", path=message.event.path)

    def disconnected(self, connection: Connection) -> None:
        """The connection has broken."""
        if connection is not self._connection:
            return
        self._connection = None
        was_connected, self._is_connected = self._is_connected, False
        for response in list(self._unanswered):
            self._respond(response, _connection_lost())
        if was_connected:
            self._settled.clear()
            self._notify(SessionState.SUSPENDED)
        self.connect()

    def _attach(self, connection: Connection) -> None:
        connection.up.send(Call(Attach(self.session_id), partial(self._attached, connection)))

    def _attached(self, connection: Connection, session_id: int) -> None:
        if connection is not self._connection:
            return
        if session_id == 0:
            self.session_id = 0
            self._notify(SessionState.LOST)
            self._attach(connection)
            return
        if session_id != self.session_id:
            self.session_id = session_id
            self.session_epoch += 1
        self._is_connected = True
        self._notify(SessionState.CONNECTED)
        self._settled.set()

    def _end(self, reason: str) -> None:
        """Forgets the session; the store has ended it or will."""
        self.is_open = self._is_connected = False
        connection, self._connection = self._connection, None
        if connection is not None:
            self._link.let_go(connection)
        had_session, self.session_id = self.session_id != 0, 0
        for response in list(self._unanswered):
            self._respond(response, StoreUnavailable("", f"the metadata store is unavailable: {reason}"))
        self._settled.set()
        if had_session:
            self._notify(SessionState.LOST)


def _connection_lost() -> ConnectionLost:
    return ConnectionLost("", "the connection to the metadata store is lost")
