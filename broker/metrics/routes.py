"""What the metrics port serves: `/metrics` for Prometheus, `/health` for orchestrators and the pages of the console.

    GET /metrics   200, text
    GET /health    200 while clients are served, 503 before and after, or when a partition's disk fails; JSON
    GET a page     as console/console.py says, if the console is enabled
    other path     404        other method   405        not an HTTP request   400        foreign Host   421

A browser on the broker's machine can connect to local ports on behalf of any web page. If evil.example resolves to
127.0.0.1 (DNS rebinding), its page could read the responses as its own. Such a request has evil.example as its Host, so
only these Hosts are answered:

    A   an IP address, which DNS cannot redirect, or no Host at all, which no browser sends
    B   a name without a dot: localhost, a container or a service; the public DNS has no such host names
    C   the name that the server listens on, and those in odradek.metrics.allowed.hosts; `*` there allows every name
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from http import HTTPStatus

import structlog

from odradek.broker.http.request import HttpRequest, Refused
from odradek.broker.http.server import HttpServer, Response
from odradek.broker.metrics.exposition import CONTENT_TYPE, Exposition
from odradek.broker.metrics.sources import BrokerStatus

WHAT_THERE_IS = "The paths are /metrics, /health and, for the console, / and /api/overview."
FOREIGN_HOST = "The Host must be an IP address, a name without a dot, or listed in odradek.metrics.allowed.hosts."

Pages = Callable[[str, str], Awaitable[Response | None]]
"""Takes the path and the query of a GET. Returns None if it has no such path."""

log = structlog.get_logger("broker.metrics")


class MetricsRoutes:
    """`pages` answers all other paths."""

    waits = False
    most_body_bytes = 0

    def __init__(
        self,
        status: Callable[[], BrokerStatus],
        exposition: Exposition,
        pages: Pages | None = None,
        allowed_hosts: Iterable[str] = (),
    ) -> None:
        self._status = status
        self._exposition = exposition
        self._pages = pages
        self._allowed_hosts = frozenset(name.lower() for name in allowed_hosts)

    def admit(self, request: HttpRequest) -> None:
        """Raises Refused if the Host is a foreign one, or for another method."""
        if not self._is_host_allowed(request):
            log.warning("metrics request for foreign host refused", method=request.method, path=request.path)
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, FOREIGN_HOST)
        if request.method not in ("GET", "HEAD"):
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, WHAT_THERE_IS)

    async def respond(self, request: HttpRequest) -> Response:
        """Raises Refused if there is no such path."""
        if request.path == "/metrics":
            return Response(HTTPStatus.OK, CONTENT_TYPE, self._metrics())
        if request.path == "/health":
            return self._health()
        page = None if self._pages is None else await self._pages(request.path, request.query)
        if page is None:
            raise Refused(HTTPStatus.NOT_FOUND, WHAT_THERE_IS)
        return page

    def refusal(self, refused: Refused) -> Response | None:
        """A client that sends nothing gets nothing, and one whose head is too long may not speak HTTP at all."""
        status, hint = refused.status, str(refused)
        if status == HTTPStatus.REQUEST_TIMEOUT:
            return None
        if status in (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE):
            status, hint = HTTPStatus.BAD_REQUEST, WHAT_THERE_IS
        headers = {"Allow": "GET, HEAD"} if status == HTTPStatus.METHOD_NOT_ALLOWED else {}
        return Response(status, "text/plain; charset=utf-8", f"{status.phrase}. {hint}\n".encode(), headers)

    async def _metrics(self) -> AsyncIterator[bytes]:
        for chunk in self._exposition.chunks(self._status()):
            yield chunk
            await asyncio.sleep(0)

    def _health(self) -> Response:
        status = self._status()
        document: dict[str, object] = {"status": "down", "broker_id": status.broker_id}
        healthy = False
        if status.sources is not None:
            offline = sorted(map(str, status.sources.replica_manager.partitions.offline))
            healthy = not offline
            document["status"] = "up" if healthy else "degraded"
            document["cluster_id"] = status.sources.metadata.cluster_id
            document["offline_partitions"] = offline
        code = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(code, "application/json", json.dumps(document).encode() + b"\n")

    def _is_host_allowed(self, request: HttpRequest) -> bool:
        """Whether every Host header is allowed."""
        names = self._allowed_hosts
        return "*" in names or all(_is_local(host) or host in names for host in map(_name, request.values("host")))


async def serve_metrics(routes: MetricsRoutes, host: str, port: int) -> HttpServer:
    """Returns the server once it listens. `host` "" means all interfaces. Raises OSError."""
    server = HttpServer(routes, host, port)
    await server.start()
    log.info("metrics server started", host=host, port=server.port)
    return server


def _name(host: str) -> str:
    """Returns the value of a Host header without the port, in lower case."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def _is_local(name: str) -> bool:
    """(A) and (B)"""
    if "." not in name and ":" not in name:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
