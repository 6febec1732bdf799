"""The control port: HTTP on loopback, one request for each connection, JSON both ways.

(A) It listens on 127.0.0.1 alone.
(B) Every request needs the header `Authorization: Bearer TOKEN`: 401 without it.
(C) The Host must be 127.0.0.1 or localhost: 421 otherwise. A page whose name was made to point to 127.0.0.1 (DNS
    rebinding) has another one.
(D) A request with an Origin comes from a page of a browser. Only pages of this port could send one, and there are
    none: 403 for any other.
(E) A wait ends with the connection of its client.
"""

from __future__ import annotations

import hmac
import json
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import structlog

from odradek.broker.http.request import HttpRequest, Refused
from odradek.broker.http.server import HttpServer, Response
from odradek.testing.control.resources import Resources, encoded

HOST = "127.0.0.1"
HOSTS = (HOST, "localhost")
MAX_BODY_BYTES = 1 << 20
SINGLE = ("host", "origin", "authorization", "content-length")
"""Headers that decide who may ask, and where the body ends."""

log = structlog.get_logger("broker.testing.control")


class ControlServer:
    """Listens from `start` to `stop`: its server and the server's routes."""

    waits = True
    most_body_bytes = MAX_BODY_BYTES

    def __init__(self, resources: Resources, port: int, token: str) -> None:
        self._resources = resources
        self._token = token
        self._server = HttpServer(self, HOST, port)

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{HOST}:{self._server.port}"

    async def start(self) -> None:
        """Raises OSError if the port cannot be bound."""
        await self._server.start()

    async def stop(self) -> None:
        """Closes all connections."""
        await self._server.stop()

    def admit(self, request: HttpRequest) -> None:
        """Raises Refused for cases B to D."""
        _query(request)
        headers = _headers(request)
        host, _, port = headers.get("host", "").lower().partition(":")
        if host not in HOSTS or port not in ("", str(self._server.port)):
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, f"the Host must be {self.address}")
        own = f"http://{host}:{self._server.port}"
        if headers.get("origin", own) != own:
            raise Refused(HTTPStatus.FORBIDDEN, "pages of other origins may not ask")
        sent = headers.get("authorization", "").encode()
        if not hmac.compare_digest(sent, f"Bearer {self._token}".encode()):
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "send the header 'Authorization: Bearer TOKEN', with the token that the broker has printed",
            )

    async def respond(self, request: HttpRequest) -> Response:
        """Raises Refused."""
        document = _document(request.body)
        return _json(*await self._resources.response(request.method, request.path, _query(request), document))

    def refusal(self, refused: Refused) -> Response:
        """Returns the reason as JSON."""
        log.warning("control request refused", status=refused.status.value, reason=str(refused))
        return _json(refused.status, {"error": str(refused)})


def _query(request: HttpRequest) -> dict[str, str]:
    pairs = parse_qsl(request.query, keep_blank_values=True)
    query = dict(pairs)
    if len(query) < len(pairs):
        raise Refused(HTTPStatus.BAD_REQUEST, "an argument stands twice in the query")
    return query


def _headers(request: HttpRequest) -> dict[str, str]:
    """Returns the headers by names in lower case."""
    headers: dict[str, str] = {}
    for line in request.fields:
        name, colon, value = line.partition(b":")
        key = name.decode("latin-1").lower()
        if not colon or key != key.strip():
            raise Refused(HTTPStatus.BAD_REQUEST, "a header line has no name")
        if key in headers and key in SINGLE:
            raise Refused(HTTPStatus.BAD_REQUEST, f"more than one header {key}")
        headers[key] = value.strip().decode("latin-1")
    return headers


def _document(body: bytes) -> dict[str, Any]:
    """Parses a body, a JSON object; without a body an empty one."""
    try:
        document = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Refused(HTTPStatus.BAD_REQUEST, "the body is not a JSON object")
    return document


def _json(status: HTTPStatus, document: object) -> Response:
    """Bytes are JSON already."""
    body = (document if isinstance(document, bytes) else encoded(document)) + b"\n"
    return Response(status, "application/json", body, {"Content-Length": str(len(body))})
