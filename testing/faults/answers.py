"""Encoded responses of a broker: decoded, and encoded again."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from odradek.broker.handlers.api_row import ApiRow
from odradek.broker.requests.request_context import CloseConnection, Part
from odradek.protocol.compiler import encode, read
from odradek.protocol.headers import response_header_version
from odradek.protocol.schema import Message
from odradek.storage.file_slice import FileSlice

CORRELATION_POSITION = 4
BODY_POSITION = 8
_CORRELATION = struct.Struct(">i")


def as_bytes(parts: Iterable[Part]) -> bytes:
    """Returns an encoded response as one piece. Raises CloseConnection if a slice of a file cannot be read."""
    try:
        return b"".join(_read(part) if isinstance(part, FileSlice) else bytes(part) for part in parts)
    except (OSError, EOFError) as error:
        raise CloseConnection("response not read from file", error=str(error)) from error


def decoded_response(row: ApiRow, version: int, answer: bytes) -> Any:
    """Returns the decoded response of an encoded one with its length."""
    return read(row.response_class, version, answer, BODY_POSITION + response_header_version(row.key, version))[0]


def encoded_response(row: ApiRow, version: int, correlation_id: int, response: Message) -> bytes:
    """Returns the encoded response with its length. Raises UnwritableMessage."""
    tags = b"\0" * response_header_version(row.key, version)
    body = _CORRELATION.pack(correlation_id) + tags + encode(response, version)
    return len(body).to_bytes(4, "big") + body


def settled(row: ApiRow, version: int, response: Message) -> Any:
    """Returns a response as a client would decode it, with lists in place of what is made when it is encoded."""
    return read(row.response_class, version, encode(response, version))[0]


def _read(slice_: FileSlice) -> bytes:
    data = b""
    while len(data) < len(slice_):
        data += slice_.read(len(data), len(slice_) - len(data))
    return data
