"""Responses as a dispatch returns them: decoded and encoded again, parked, and changed once they are ready."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from odradek.broker.handlers.api_row import ApiRow
from odradek.broker.requests.request_context import CloseConnection, Part, PendingResponse
from odradek.protocol.compiler import encode, read
from odradek.protocol.headers import response_header_version
from odradek.protocol.schema import Message
from odradek.storage.file_slice import FileSlice

CORRELATION_POSITION = 4
BODY_POSITION = 8
_CORRELATION = struct.Struct(">i")

Answer = PendingResponse | list[Part] | None
"""As a dispatch returns it."""
Changed = Callable[[list[Part] | None], Answer]
"""Makes another answer of an encoded one; None: there is none. Raises CloseConnection."""


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


def parked(api_key: int, pending: PendingResponse, size: int) -> PendingResponse:
    """Returns what a dispatch returns for a request of `size` bytes that `settle` will settle."""
    pending.park(api_key, size, PendingResponse.result)
    return pending


def settle(pending: PendingResponse, make: Callable[[], Answer]) -> None:
    """Settles a parked request with what `make` returns or raises, at once or when it is ready."""
    if pending.settled:
        return
    try:
        answer = make()
    except CloseConnection as closing:
        pending.fail(closing)
        return
    if not isinstance(answer, PendingResponse):
        pending.complete(answer)
        return
    waiting = answer
    pending.when_abandoned(waiting.abandon)

    def ready(_request_bytes: int, _answer_bytes: int) -> None:
        if waiting.closing is not None:
            pending.fail(waiting.closing)
        else:
            pending.complete(waiting.parts or None)

    waiting.when_ready(ready)


def changed(answer: Answer, change: Changed, closing: Callable[[CloseConnection], None] | None = None) -> Answer:
    """Changes an answer when it is ready. `closing` is called if the connection ends instead, later. Raises
    CloseConnection.
    """
    if not isinstance(answer, PendingResponse):
        return change(answer)
    waiting = answer
    pending = PendingResponse(holds=waiting.holds)
    pending.when_abandoned(waiting.abandon)
    outer = parked(waiting.api_key, pending, waiting.size)

    def ready(_request_bytes: int, _answer_bytes: int) -> None:
        if waiting.closing is None:
            settle(pending, lambda: change(waiting.parts or None))
            return
        if closing is not None:
            closing(waiting.closing)
        pending.fail(waiting.closing)

    waiting.when_ready(ready)
    return outer


def _read(slice_: FileSlice) -> bytes:
    data = b""
    while len(data) < len(slice_):
        data += slice_.read(len(data), len(slice_) - len(data))
    return data
