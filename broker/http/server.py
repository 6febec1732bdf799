"""Serves HTTP on its loop: one request for each connection, which its routes answer.

(A) There are limits for the size of a request, the time until it is complete, the time to read the response, and
    the number of connections.
(B) A connection beyond the limit ends the oldest one without a request, or else the oldest one, so that idle
    clients cannot keep others out.
(C) Some routes wait for events. A wait ends with the connection of its client, and not for other connections: those
    beyond the limit get 503.
(D) A response in chunks is sent as it is generated; the event loop runs other tasks between the chunks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from odradek.broker.http.request import MAX_HEAD_BYTES, HttpRequest, Refused, read_body, read_head

T = TypeVar("T")

MAX_CONNECTIONS = 64
REQUEST_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 30
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Response(NamedTuple):
    """`headers` come in addition to the server's own."""

    status: HTTPStatus
    content_type: str
    body: bytes | AsyncIterator[bytes]
    headers: Mapping[str, str] = NO_HEADERS


class Routes(Protocol):
    """What a port serves. `waits`: see (C). `most_body_bytes`: 0 if bodies are not read."""

    waits: bool
    most_body_bytes: int

    def admit(self, request: HttpRequest) -> None:
        """Decides by the head alone whether the client may ask. Raises Refused."""

    async def respond(self, request: HttpRequest) -> Response:
        """Raises Refused."""

    def refusal(self, refused: Refused) -> Response | None:
        """Returns the response to a refused request, None to end its connection without one."""


class HttpServer:
    """Listens from `start` to `stop`. `port` is the bound port."""

    def __init__(self, routes: Routes, host: str, port: int) -> None:
        """`host` "" means all interfaces."""
        self.port = port
        self._routes = routes
        self._host = host
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.Task[None], None] = {}
        self._asked: dict[asyncio.Task[None], None] = {}
        """The connections' tasks, oldest first: `_silent` before the request has arrived, `_asked` afterwards."""

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The listening addresses as (host, port)."""
        return [] if self._server is None else [socket.getsockname()[:2] for socket in self._server.sockets]

    async def start(self) -> None:
        """Starts listening. Raises OSError if the address cannot be bound."""
        self._server = await asyncio.start_server(self._serve, self._host or None, self.port, limit=MAX_HEAD_BYTES)
        self.port = self.addresses[0][1]

    async def stop(self) -> None:
        """Stops listening and closes all connections. Further calls do nothing."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._silent[task] = None
        try:
            await self._exchange(task, reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._silent.pop(task, None)
            self._asked.pop(task, None)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _exchange(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Raises EOFError if the connection ends without a response, and TimeoutError."""
        until = asyncio.get_running_loop().time() + REQUEST_TIMEOUT_S
        sends_body = True
        try:
            self._make_room()
            request = await _in_time(until, read_head(reader))
            self._asked[task] = self._silent.pop(task)
            sends_body = request.method != "HEAD"
            self._routes.admit(request)
            if self._routes.most_body_bytes:
                request.body = await _in_time(until, read_body(reader, request, self._routes.most_body_bytes))
            response = await self._response(reader, request)
        except Refused as refused:
            found = self._routes.refusal(refused)
            if found is None:
                raise EOFError(str(refused)) from None
            response = found
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await _send(response, writer, sends_body=sends_body)

    def _make_room(self) -> None:
        """Enforces MAX_CONNECTIONS (B). The new connection's task is the last one in `_silent`. Raises Refused (C)."""
        if len(self._silent) + len(self._asked) <= MAX_CONNECTIONS:
            return
        connections = self._silent if len(self._silent) > 1 else self._asked
        if connections is self._asked and self._routes.waits:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_CONNECTIONS} connections are open: close some")
        oldest = next(iter(connections))
        del connections[oldest]
        oldest.cancel()

    async def _response(self, reader: asyncio.StreamReader, request: HttpRequest) -> Response:
        if self._routes.waits:
            return await _while_connected(reader, self._routes.respond(request))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await self._routes.respond(request)


async def _in_time(until: float, reading: Coroutine[Any, Any, T]) -> T:
    """Raises Refused if a part of a request does not arrive in time."""
    try:
        async with asyncio.timeout_at(until):
            return await reading
    except TimeoutError:
        why = f"the request was not complete within {REQUEST_TIMEOUT_S} s"
        raise Refused(HTTPStatus.REQUEST_TIMEOUT, why) from None


async def _while_connected(reader: asyncio.StreamReader, responding: Coroutine[Any, Any, T]) -> T:
    """Returns a response, unless the client disconnects before (C). Raises EOFError."""
    response = asyncio.ensure_future(responding)
    more = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({response, more}, return_when=asyncio.FIRST_COMPLETED)
        if not response.done() and not more.result():
            raise EOFError("the client has disconnected")
        return await response
    finally:
        response.cancel()
        more.cancel()
        await asyncio.gather(response, more, return_exceptions=True)


async def _send(response: Response, writer: asyncio.StreamWriter, *, sends_body: bool) -> None:
    status, content_type, body, headers = response
    more = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    writer.write(
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n{more}"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
    )
    if sends_body and isinstance(body, bytes):
        writer.write(body)
    elif sends_body and not isinstance(body, bytes):
        async for chunk in body:
            writer.write(chunk)
            await writer.drain()
    await writer.drain()
