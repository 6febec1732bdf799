"""The control port: HTTP on loopback, one request for each connection, JSON both ways.

    (A) It listens on 127.0.0.1 alone.
    (B) Every request needs the header `Authorization: Bearer TOKEN`: 401 without it.
    (C) The Host must be 127.0.0.1 or localhost: 421 otherwise. A page whose name was made to point to 127.0.0.1 (DNS
        rebinding) has another one.
    (D) A request with an Origin comes from a page of a browser. Only pages of this port could send one, and there are
        none: 403 for any other.
    (E) A wait ends with the connection of its client.

Heads, bodies, connections and the time for each are limited.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

import structlog

from odradek.testing.control.http_message import (
    MAX_HEAD_BYTES,
    HttpRequest,
    Refused,
    read_document,
    read_head,
    response,
)
from odradek.testing.control.resources import Resources

T = TypeVar("T")

HOST = "127.0.0.1"
HOSTS = (HOST, "localhost")
MAX_CONNECTIONS = 64
REQUEST_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 30

log = structlog.get_logger("broker.testing.control")


class ControlServer:
    """Listens from `start` to `stop`."""

    def __init__(self, resources: Resources, port: int, token: str) -> None:
        self._resources = resources
        self._port = port
        self._token = token
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{HOST}:{self._port}"

    async def start(self) -> None:
        """Raises OSError if the port cannot be bound."""
        self._server = await asyncio.start_server(self._serve, HOST, self._port, limit=MAX_HEAD_BYTES)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Closes all connections."""
        if self._server is not None:
            self._server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            answer = response(*await self._answer(reader))
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                writer.write(answer)
                await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[HTTPStatus, object]:
        """Returns the status and the document. Raises EOFError."""
        try:
            request, document = await self._read(reader)
            return await _while_connected(reader, self._resources.answer(request, document))
        except Refused as refused:
            log.warning("control request refused", status=refused.status.value, reason=str(refused))
            return refused.status, {"error": str(refused)}

    async def _read(self, reader: asyncio.StreamReader) -> tuple[HttpRequest, dict[str, Any]]:
        """Raises Refused, EOFError."""
        if len(self._tasks) > MAX_CONNECTIONS:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_CONNECTIONS} connections are open: close some")
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = await read_head(reader)
                self._check(request)
                return request, await read_document(reader, request)
        except TimeoutError:
            why = f"the request was not complete within {REQUEST_TIMEOUT_S} s"
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, why) from None

    def _check(self, request: HttpRequest) -> None:
        """Raises Refused for cases B to D."""
        host, _, port = request.headers.get("host", "").lower().partition(":")
        if host not in HOSTS or port not in ("", str(self._port)):
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, f"the Host must be {self.address}")
        if request.headers.get("origin", f"http://{host}:{self._port}") != f"http://{host}:{self._port}":
            raise Refused(HTTPStatus.FORBIDDEN, "pages of other origins may not ask")
        sent = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(sent, f"Bearer {self._token}".encode()):
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "send the header 'Authorization: Bearer TOKEN', with the token that the broker has printed",
            )


async def _while_connected(reader: asyncio.StreamReader, answering: Coroutine[Any, Any, T]) -> T:
    """Returns an answer, unless the client disconnects before (E). Raises EOFError."""
    answer = asyncio.ensure_future(answering)
    more = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({answer, more}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done() and not more.result():
            raise EOFError("the client has disconnected")
        return await answer
    finally:
        answer.cancel()
        more.cancel()
        await asyncio.gather(answer, more, return_exceptions=True)
