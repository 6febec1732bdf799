"""Serves `/metrics` for Prometheus, `/health` for orchestrators and the pages of the console, by HTTP on its loop.

    GET /metrics   200, text
    GET /health    200 while clients are served, 503 before and after, or when a partition's disk fails; JSON
    GET a page     as console/console.py says, if the console is enabled
    other path     404        other method   405        not an HTTP request   400        foreign Host   421

One request per connection, GET and HEAD, no body. There are limits for the size of the request head, the time until it
arrives, the time to read the response, and the number of connections. A connection beyond the limit closes the oldest
one without a request, or else the oldest one, so that idle clients cannot keep others out. The text is sent as it is
generated; the event loop runs other tasks between the chunks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from http import HTTPStatus

import structlog

from odradek.broker.metrics.exposition import CONTENT_TYPE, Exposition
from odradek.broker.metrics.http_request import is_host_allowed, query_of, request_line
from odradek.broker.metrics.pages import Page, Pages, no_pages
from odradek.broker.metrics.sources import BrokerStatus

MAX_HEAD_BYTES = 16 * 1024
MAX_CONNECTIONS = 64
HEAD_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 30

WHAT_THERE_IS = "The paths are /metrics, /health and, for the console, / and /api/overview."
FOREIGN_HOST = "The Host must be an IP address, a name without a dot, or listed in odradek.metrics.allowed.hosts."

log = structlog.get_logger("broker.metrics")


class MetricsServer:
    """Listens from `start` to `stop`. `port` is the bound port."""

    def __init__(
        self,
        status: Callable[[], BrokerStatus],
        exposition: Exposition,
        host: str,
        port: int,
        allowed_hosts: Iterable[str] = (),
        pages: Pages = no_pages,
    ) -> None:
        """`host` "" means all interfaces. `allowed_hosts`: see http_request.py, C. `pages` answers all other paths."""
        self.port = port
        self._host = host
        self._allowed_hosts = frozenset(name.lower() for name in (host, *allowed_hosts))
        self._status = status
        self._exposition = exposition
        self._pages = pages
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
        log.info("metrics server started", host=self._host, port=self.port)

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
        self._make_room()
        try:
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                head = await self._head(reader)
            self._asked[task] = self._silent.pop(task)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._answer(head, writer)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._silent.pop(task, None)
            self._asked.pop(task, None)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)

    def _make_room(self) -> None:
        """Enforces MAX_CONNECTIONS. The new connection's task is the last one in `_silent`."""
        if len(self._silent) + len(self._asked) > MAX_CONNECTIONS:
            connections = self._silent if len(self._silent) > 1 else self._asked
            oldest = next(iter(connections))
            del connections[oldest]
            oldest.cancel()

    async def _head(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return b""

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        method, path = request_line(head)
        page: Page | None = None
        if method is None:
            status, content_type, body = refused(HTTPStatus.BAD_REQUEST)
        elif not is_host_allowed(head, self._allowed_hosts):
            log.warning("metrics request for foreign host refused", method=method, path=path)
            status, content_type, body = refused(HTTPStatus.MISDIRECTED_REQUEST, FOREIGN_HOST)
        elif method not in ("GET", "HEAD"):
            status, content_type, body = refused(HTTPStatus.METHOD_NOT_ALLOWED)
        elif path == "/metrics":
            status, content_type, body = HTTPStatus.OK, CONTENT_TYPE, self._metrics()
        elif path == "/health":
            status, content_type, body = self._health()
        elif (page := await self._pages(path, query_of(head))) is not None:
            status, content_type, body = page.status, page.content_type, one(page.body)
        else:
            status, content_type, body = refused(HTTPStatus.NOT_FOUND)
        allow = "Allow: GET, HEAD\r\n" if status == HTTPStatus.METHOD_NOT_ALLOWED else ""
        more = "".join(f"{name}: {text}\r\n" for name, text in page.headers.items()) if page is not None else ""
        writer.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n{allow}{more}"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
        )
        if method != "HEAD":
            async for chunk in body:
                writer.write(chunk)
                await writer.drain()
        await writer.drain()

    async def _metrics(self) -> AsyncIterator[bytes]:
        for chunk in self._exposition.chunks(self._status()):
            yield chunk
            await asyncio.sleep(0)

    def _health(self) -> tuple[HTTPStatus, str, AsyncIterator[bytes]]:
        status = self._status()
        document: dict[str, object] = {"status": "down", "broker_id": status.broker_id}
        healthy = False
        if status.sources is not None:
            offline = sorted(map(str, status.sources.replica_manager.partitions.offline))
            healthy = not offline
            document["status"] = "up" if healthy else "degraded"
            document["cluster_id"] = status.sources.metadata.cluster_id
            document["offline_partitions"] = offline
        body = json.dumps(document).encode() + b"\n"
        return HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE, "application/json", one(body)


def refused(status: HTTPStatus, hint: str = WHAT_THERE_IS) -> tuple[HTTPStatus, str, AsyncIterator[bytes]]:
    return status, "text/plain; charset=utf-8", one(f"{status.phrase}. {hint}\n".encode())


async def one(body: bytes) -> AsyncIterator[bytes]:
    yield body
