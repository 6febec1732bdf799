"""`/metrics` for Prometheus and `/health` for orchestrators, over HTTP on the broker's own loop.

    GET /metrics   200, text
    GET /health    200 while clients are served, 503 before and after, or when a partition's disk fails; JSON
    another path   404          another method   405          a request that is none   400

One request per connection, GET and HEAD, no body. Everything has a limit: the head's size and time, the time to take
the answer, the connections at once. The text is sent as it is made, the loop turning between the chunks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog

from odradek.broker.metrics_exposition import CONTENT_TYPE, Exposition

if TYPE_CHECKING:
    from odradek.broker.server import Broker

MAX_HEAD_BYTES = 16 * 1024
MAX_CONNECTIONS = 64
REQUEST_TIMEOUT_S = 30

log = structlog.get_logger("broker.metrics")


class MetricsServer:
    """Listens from `start` to `stop`. `port` is the bound one."""

    def __init__(self, broker: Broker, host: str, port: int) -> None:
        self.port = port
        self._host = host
        self._broker = broker
        self._exposition = Exposition(broker)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises OSError when the address cannot be had."""
        self._server = await asyncio.start_server(self._serve, self._host or None, self.port, limit=MAX_HEAD_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("metrics are served", host=self._host, port=self.port)

    async def stop(self) -> None:
        """Ends what is under way. No effect twice."""
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
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                if len(self._tasks) <= MAX_CONNECTIONS:
                    await self._answer(reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            head = b""
        method, path = request_line(head)
        if method is None:
            status, content_type, body = refused(HTTPStatus.BAD_REQUEST)
        elif method not in ("GET", "HEAD"):
            status, content_type, body = refused(HTTPStatus.METHOD_NOT_ALLOWED)
        elif path == "/metrics":
            status, content_type, body = HTTPStatus.OK, CONTENT_TYPE, self._metrics()
        elif path == "/health":
            status, content_type, body = self._health()
        else:
            status, content_type, body = refused(HTTPStatus.NOT_FOUND)
        allow = "Allow: GET, HEAD\r\n" if status == HTTPStatus.METHOD_NOT_ALLOWED else ""
        writer.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n{allow}"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
        )
        if method != "HEAD":
            async for chunk in body:
                writer.write(chunk)
                await writer.drain()
        await writer.drain()

    async def _metrics(self) -> AsyncIterator[bytes]:
        for chunk in self._exposition.chunks(is_serving=self._broker.is_serving):
            yield chunk
            await asyncio.sleep(0)

    def _health(self) -> tuple[HTTPStatus, str, AsyncIterator[bytes]]:
        broker = self._broker
        offline = sorted(map(str, broker.replica_manager.partitions.offline)) if broker.is_serving else []
        healthy = broker.is_serving and not offline
        status = "up" if healthy else "degraded" if broker.is_serving else "down"
        document: dict[str, object] = {"status": status, "broker_id": broker.broker_id}
        if broker.is_serving:
            document["cluster_id"] = broker.metadata.cluster_id
            document["offline_partitions"] = offline
        body = json.dumps(document).encode() + b"\n"
        return HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE, "application/json", one(body)


def request_line(head: bytes) -> tuple[str | None, str]:
    """Method and path, without the query; (None, "") for what is no HTTP request."""
    words = head.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return None, ""
    return words[0].decode("latin-1"), words[1].decode("latin-1").partition("?")[0]


def refused(status: HTTPStatus) -> tuple[HTTPStatus, str, AsyncIterator[bytes]]:
    return status, "text/plain; charset=utf-8", one(f"{status.phrase}. There are /metrics and /health.\n".encode())


async def one(body: bytes) -> AsyncIterator[bytes]:
    yield body
