"""An HTTP request as it arrives: a head of limited size, and a body of known length."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus

MAX_HEAD_BYTES = 16 * 1024


class Refused(Exception):
    """A request that gets an error."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(slots=True)
class HttpRequest:
    """`path` is without the query. `fields`: the lines of the headers as they are, without the end of line."""

    method: str
    path: str
    query: str
    fields: list[bytes]
    body: bytes = b""

    def values(self, name: str) -> list[str]:
        """Returns the values of all headers with a name in lower case."""
        pairs = (line.partition(b":") for line in self.fields)
        return [value.strip().decode("latin-1") for found, _, value in pairs if found.strip().lower() == name.encode()]


async def read_head(reader: asyncio.StreamReader) -> HttpRequest:
    """Reads a request without its body. Raises Refused, EOFError."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MAX_HEAD_BYTES} bytes") from None
    first, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise Refused(HTTPStatus.BAD_REQUEST, "not an HTTP request")
    path, _, query = words[1].decode("latin-1").partition("?")
    return HttpRequest(words[0].decode("latin-1"), path, query, fields)


async def read_body(reader: asyncio.StreamReader, request: HttpRequest, most_bytes: int) -> bytes:
    """Reads the body. Raises Refused, EOFError."""
    if request.values("transfer-encoding"):
        raise Refused(HTTPStatus.LENGTH_REQUIRED, "send the body with a Content-Length, not in chunks")
    lengths = request.values("content-length") or ["0"]
    text = lengths[0]
    if len(lengths) > 1 or not (text.isascii() and text.isdigit()):
        raise Refused(HTTPStatus.BAD_REQUEST, f"Content-Length {text!r} is no number")
    if len(text) > len(str(most_bytes)) or int(text) > most_bytes:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {most_bytes} bytes")
    return await reader.readexactly(int(text))
