"""A metadata store in a process of its own, for brokers in others: a SharedStore behind a socket on loopback.

    python -m tests.cluster.store_server SESSION_TIMEOUT_MS     prints `ready HOST:PORT`

It holds everything in memory. A session ends when its process has sent nothing for the session time-out (it is stopped
or its loop is blocked), or when it has been without a connection for that long (it was killed). An event is sent again
over the next connection unless its arrival was confirmed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from odradek.broker.metadata_store.interface import WatchEvent
from odradek.broker.metadata_store.shared.connection import Answer, Call, Connection, Event, Request, WatchSet
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from tests.cluster.store_wire import Frames, packed_result, unpacked_request


class RemoteWatch(WatchSet):
    """A watch of a broker process, by the number that it has there."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        super().__init__(_called_elsewhere)
        self.number = number


def _called_elsewhere(_event: WatchEvent) -> None:
    raise AssertionError("the watch is called in the broker's process")


class Accepted:
    """A connection of a broker process: what the store sees as the session's side."""

    def __init__(self, store: SharedStore) -> None:
        self.context: Context = copy_context()
        self.loop = asyncio.get_running_loop()
        self.frames = Frames(self._arrived, self._ended)
        self._store = store
        self._connection: Connection = store.new_connection(self, "")
        self._unseen: deque[Event] = deque()
        """Events that may be lost if the connection breaks now."""
        self._silence: asyncio.TimerHandle | None = None
        self.over = asyncio.Event()
        self._heard()

    def receive(self, message: Answer | Event) -> None:
        """Sends a message of the store."""
        if isinstance(message, Answer):
            message.call.answered(message.result)
            return
        watch, event = message.watch, message.event
        assert isinstance(watch, RemoteWatch)
        self._unseen.append(message)
        self.frames.send([0, "event", watch.number, event.change.value, event.path])

    def disconnected(self, _connection: Connection) -> None:
        """The store has ended the connection."""
        self.frames.abort()

    def _arrived(self, message: list[Any]) -> None:
        self._heard()
        number, kind, *fields = message
        if kind == "ping":
            self.frames.send([0, "pong"])
            return
        if kind == "seen":
            self._unseen.popleft()
            return
        request = unpacked_request(kind, fields, lambda watch: RemoteWatch(watch) if watch else None)
        self._connection.up.send(Call(request, partial(self._answer, number, request)))

    def _answer(self, number: int, request: Request, result: Any) -> None:
        self.frames.send([number, *packed_result(request, result)])

    def _heard(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
        seconds = self._store.session_timeout_ms / 1000
        self._silence = asyncio.get_running_loop().call_later(seconds, self._silent)

    def _silent(self) -> None:
        self._store.expire_session(self._connection.session_id)
        self.frames.abort()

    def _ended(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
        down = self._connection.down
        for message in [*self._unseen, *down.close()]:
            down.send(message)
        self._store.break_connection(self._connection)
        self.over.set()


@contextlib.asynccontextmanager
async def serving(store: SharedStore) -> AsyncIterator[str]:
    """Serves the store on loopback; yields HOST:PORT."""
    accepted: list[Accepted] = []

    def accept() -> Frames:
        accepted.append(Accepted(store))
        return accepted[-1].frames

    async with await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    for connection in accepted:
        connection.frames.abort()
        await connection.over.wait()


async def main(session_timeout_ms: int) -> None:
    async with serving(SharedStore(session_timeout_ms=session_timeout_ms)) as address:
        print(f"ready {address}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
