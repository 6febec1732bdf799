"""The parts of HTTP that the control port needs: a head with distinct headers, and a body of known length."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from odradek.broker.metrics.http_request import query_of, request_line

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 1 << 20
SINGLE = ("host", "origin", "authorization", "content-length")
"""Headers that decide who may ask, and where the body ends."""


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """By names in lower case."""


async def read_head(reader: asyncio.StreamReader) -> HttpRequest:
    """Reads the head of a request. Raises Refused, EOFError."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MAX_HEAD_BYTES} bytes") from None
    method, path = request_line(head)
    if method is None:
        raise Refused(HTTPStatus.BAD_REQUEST, "not an HTTP request")
    pairs = parse_qsl(query_of(head), keep_blank_values=True)
    query = dict(pairs)
    if len(query) < len(pairs):
        raise Refused(HTTPStatus.BAD_REQUEST, "an argument stands twice in the query")
    return HttpRequest(method, path, query, _headers(head))


async def read_document(reader: asyncio.StreamReader, request: HttpRequest) -> dict[str, Any]:
    """Reads the body, a JSON object; without a body an empty one. Raises Refused, EOFError."""
    if "transfer-encoding" in request.headers:
        raise Refused(HTTPStatus.LENGTH_REQUIRED, "send the body with a Content-Length, not in chunks")
    text = request.headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise Refused(HTTPStatus.BAD_REQUEST, f"Content-Length {text!r} is no number")
    if len(text) > len(str(MAX_BODY_BYTES)) or int(text) > MAX_BODY_BYTES:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {MAX_BODY_BYTES} bytes")
    body = await reader.readexactly(int(text))
    try:
        document = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Refused(HTTPStatus.BAD_REQUEST, "the body is not a JSON object")
    return document


def encoded(document: object) -> bytes:
    """Returns JSON."""
    return json.dumps(document, default=str).encode()


def response(status: HTTPStatus, document: object) -> bytes:
    """Returns a whole response with a JSON body; bytes are JSON already."""
    body = (document if isinstance(document, bytes) else encoded(document)) + b"\n"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _headers(head: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in head.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        key = name.decode("latin-1").lower()
        if line and (not colon or key != key.strip()):
            raise Refused(HTTPStatus.BAD_REQUEST, "a header line has no name")
        if key in headers and key in SINGLE:
            raise Refused(HTTPStatus.BAD_REQUEST, f"more than one header {key}")
        headers[key] = value.strip().decode("latin-1")
    return headers
