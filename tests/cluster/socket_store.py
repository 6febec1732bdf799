"""A session with the store of another process (`store_server.py`): a SharedSession whose connection is a socket.

While there is no connection, it tries to connect every RETRY_S. A connection over which nothing has come for two thirds
of the session time-out is given up, so that a broker knows before the store does that its session is in danger. Both
are ZooKeeper's rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

from odradek.broker.metadata_store.interface import Change, WatchEvent
from odradek.broker.metadata_store.shared.connection import Answer, Call, Connection, Event, Pipe, Request, WatchSet
from odradek.broker.metadata_store.shared.session import SharedSession
from tests.cluster.store_wire import Frames, packed_request, unpacked_result

RETRY_S = 0.05
PINGS = 6
"""How many pings are sent in a session time-out."""


class SocketStore(SharedSession):
    """A session with the store at HOST:PORT."""

    def __init__(self, address: str, session_timeout_ms: int) -> None:
        self._way = SocketWay(address, session_timeout_ms)
        super().__init__(self._way, session_timeout_ms)
        self._way.session = self

    def cut(self) -> None:
        """Breaks the connection, if there is one. The session connects again."""
        if isinstance(self._connection, SocketConnection):
            self._connection.frames.abort()

    async def open(self) -> None:
        """See MetadataStore."""
        try:
            await super().open()
        except BaseException:
            await self._way.stop()
            raise

    async def close(self) -> None:
        """See MetadataStore."""
        await super().close()
        await self._way.stop()


class SocketWay:
    """The Link of a session: connects in the background, and then lets the session take the connection."""

    session: SharedSession

    def __init__(self, address: str, session_timeout_ms: int) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._timeout_s = session_timeout_ms / 1000
        self._connecting: asyncio.Task[None] | None = None
        self._made: SocketConnection | None = None
        self._let_go: list[SocketConnection] = []
        self._watches: dict[int, WatchSet] = {}
        self._watch_numbers = count(1)

    def connect(self) -> Connection | None:
        """See Link."""
        made, self._made = self._made, None
        if made is None and self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        return made

    def let_go(self, connection: Connection) -> None:
        """See Link."""
        assert isinstance(connection, SocketConnection)
        connection.frames.abort()
        self._let_go.append(connection)

    def attempt(self, session_id: int, request: Request) -> None:
        """See Link. Nothing reaches the store without a connection."""

    async def stop(self) -> None:
        """Ends the attempts to connect. Returns when no socket is open."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
            self._connecting = None
        while self._let_go:
            await self._let_go.pop().over.wait()

    def number_of(self, watch: WatchSet | None) -> int:
        """Returns the number by which the store will name the watch."""
        if watch is None:
            return 0
        number = next(self._watch_numbers)
        self._watches[number] = watch
        return number

    def take_watch(self, number: int) -> WatchSet | None:
        """Returns the watch of this number; None if it was called already, and the store does not know that."""
        return self._watches.pop(number, None)

    async def _connect(self) -> None:
        connection = SocketConnection(self, self._timeout_s)
        while True:
            try:
                await asyncio.get_running_loop().create_connection(
                    lambda: connection.frames, self._host, int(self._port)
                )
                break
            except OSError:
                await asyncio.sleep(RETRY_S)
        connection.begin()
        self._connecting, self._made = None, connection
        self.session.connect()


class SocketConnection(Connection):
    """The session's end of a socket."""

    def __init__(self, way: SocketWay, timeout_s: float) -> None:
        self.client = way.session
        self.session_id = 0
        self.is_broken = False
        self.frames = Frames(self._arrived, self._ended)
        self.up = SocketPipe(self._send)
        self._way = way
        self._session = way.session
        self._timeout_s = timeout_s
        self._numbers = count(1)
        self._calls: dict[int, Call] = {}
        self._heard_at = 0.0
        self._next_ping: asyncio.TimerHandle | None = None
        self.over = asyncio.Event()

    def begin(self) -> None:
        """Begins to ping."""
        self._heard_at = asyncio.get_running_loop().time()
        self._ping()

    def _send(self, call: Call) -> None:
        number = next(self._numbers)
        self._calls[number] = call
        self.frames.send([number, *packed_request(call.request, self._way.number_of)])

    def _arrived(self, message: list[Any]) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        number, *packed = message
        if number:
            call = self._calls.pop(number)
            self._session.receive(Answer(call, unpacked_result(call.request, packed)))
        elif packed[0] == "event":
            _, number, change, path = packed
            self.frames.send([0, "seen"])
            if (watch := self._way.take_watch(number)) is not None:
                self._session.receive(Event(watch, WatchEvent(Change(change), path)))

    def _ping(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._heard_at > self._timeout_s * 2 / 3:
            self.frames.abort()
            return
        self.frames.send([0, "ping"])
        self._next_ping = loop.call_later(self._timeout_s / PINGS, self._ping)

    def _ended(self) -> None:
        self.is_broken = True
        if self._next_ping is not None:
            self._next_ping.cancel()
        self.over.set()
        self._session.disconnected(self)


class SocketPipe(Pipe[Call]):
    """Sends calls at once."""

    def __init__(self, send: Callable[[Call], None]) -> None:
        self._send = send

    def send(self, message: Call) -> None:
        """See Pipe."""
        self._send(message)

    def close(self) -> list[Call]:
        """See Pipe."""
        return []
