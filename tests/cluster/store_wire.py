"""What a broker process and the store process (`store_server.py`) send each other: frames of a length in four bytes and
a JSON array. Bytes are texts with a character for each byte.

    to the store        [number, KIND, field...]    a request of `connection.py`; a watch is a number too
                        [0, "ping"]
                        [0, "seen"]                     for each event
    to the broker       [number, result]            the answer: what kind of result depends on the request
                        [number, "error", NAME, path, reason, index]
                        [0, "pong"]
                        [0, "event", watch, change, path]
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

from odradek.broker.metadata_store import interface as metadata_store
from odradek.broker.metadata_store.interface import (
    Check,
    Create,
    Delete,
    Entry,
    MetadataStoreError,
    Operation,
    Set,
)
from odradek.broker.metadata_store.shared.connection import (
    Attach,
    EndSession,
    Multi,
    ReadChildren,
    ReadEntries,
    ReadEntry,
    Request,
    WatchSet,
)

LENGTH_BYTES = 4
OPERATIONS: dict[str, type[Operation]] = {kind.__name__: kind for kind in (Create, Set, Delete, Check)}


class Frames(asyncio.Protocol):
    """One end of a connection: calls `arrived` with each message, and `ended` once when it is over."""

    def __init__(self, arrived: Callable[[list[Any]], None], ended: Callable[[], None]) -> None:
        self._arrived = arrived
        self._ended = ended
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._transport = None
        self._ended()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        received = self._received
        received += data
        while len(received) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(received[:LENGTH_BYTES], "big")
            if len(received) < end:
                break
            message = json.loads(received[LENGTH_BYTES:end])
            del received[:end]
            self._arrived(message)

    def send(self, message: list[Any]) -> None:
        """Has no effect once the connection is over."""
        if self._transport is not None:
            payload = json.dumps(message, separators=(",", ":")).encode()
            self._transport.write(len(payload).to_bytes(LENGTH_BYTES, "big") + payload)

    def abort(self) -> None:
        """Ends the connection; `ended` is called soon."""
        if self._transport is not None:
            self._transport.abort()


def packed_request(request: Request, number_of: Callable[[WatchSet | None], int]) -> list[Any]:
    """Returns the request's kind and fields. `number_of` numbers a watch; 0 stands for none."""
    kind = type(request).__name__
    if isinstance(request, Multi):
        return [kind, [_packed_operation(operation) for operation in request.operations]]
    if isinstance(request, ReadEntry):
        return [kind, request.path, number_of(request.watch), request.must_exist]
    if isinstance(request, ReadChildren):
        return [kind, request.path, number_of(request.watch)]
    return [kind, *request]


def unpacked_request(kind: str, fields: list[Any], watch: Callable[[int], WatchSet | None]) -> Request:
    """The reverse of `packed_request`."""
    if kind == "Multi":
        return Multi([_unpacked_operation(operation) for operation in fields[0]])
    if kind == "ReadEntry":
        return ReadEntry(fields[0], watch(fields[1]), fields[2])
    if kind == "ReadChildren":
        return ReadChildren(fields[0], watch(fields[1]))
    if kind == "ReadEntries":
        return ReadEntries(fields[0])
    return Attach(fields[0]) if kind == "Attach" else EndSession()


def _packed_operation(operation: Operation) -> list[Any]:
    fields = list(operation)
    if isinstance(operation, (Create, Set)):
        fields[1] = _text(operation.data)
    return [type(operation).__name__, *fields]


def _unpacked_operation(packed: list[Any]) -> Operation:
    kind, *fields = packed
    if kind in ("Create", "Set"):
        fields[1] = _bytes(fields[1])
    return OPERATIONS[kind](*fields)


def packed_result(request: Request, result: Any) -> list[Any]:
    """Returns the rest of an answer's message."""
    if isinstance(result, MetadataStoreError):
        return ["error", type(result).__name__, result.path, result.reason, result.index]
    if isinstance(request, ReadEntry):
        return [_packed_entry(result)]
    if isinstance(request, ReadEntries):
        return [[_packed_entry(entry) for entry in result]]
    return [result]


def unpacked_result(request: Request, packed: list[Any]) -> Any:
    """The reverse of `packed_result`."""
    if packed[0] == "error" and len(packed) > 1:
        _, name, path, reason, index = packed
        error: MetadataStoreError = getattr(metadata_store, name)(path, reason)
        error.index = index
        return error
    if isinstance(request, ReadEntry):
        return _unpacked_entry(packed[0])
    if isinstance(request, ReadEntries):
        return [_unpacked_entry(entry) for entry in packed[0]]
    return packed[0]


def _packed_entry(entry: Entry | None) -> list[Any] | None:
    return None if entry is None else [_text(entry.data), *entry[1:]]


def _unpacked_entry(packed: list[Any] | None) -> Entry | None:
    return None if packed is None else Entry(_bytes(packed[0]), *packed[1:])


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")
