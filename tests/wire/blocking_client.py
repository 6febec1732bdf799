"""Blocking clients over one socket: `RawClient` sends frames, which no library would send; `Client` sends requests."""

from __future__ import annotations

import itertools
import socket
import struct
from types import TracebackType
from typing import Any, Self

from odradek.protocol.schema import Message
from tests.wire.frames import API_VERSIONS_V0, framed, request_payload, response_of
from tests.wire.requests import VERSIONS, create_topics


class RawClient:
    """Sends and receives frames without their lengths: header and body."""

    def __init__(self, bootstrap: str, timeout: float = 10, receive_buffer: int | None = None) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect((host, int(port)))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, payload: bytes) -> None:
        self.socket.sendall(framed(payload))

    def receive(self) -> bytes:
        """Raises ConnectionError if the broker closed instead."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = bytearray(count)
        left = memoryview(data)
        while left:
            received = self.socket.recv_into(left)
            if not received:
                raise ConnectionError(f"closed after {count - len(left)} of {count} bytes")
            left = left[received:]
        return bytes(data)

    def call(self, payload: bytes) -> bytes:
        self.send(payload)
        return self.receive()

    def is_alive(self) -> bool:
        """Whether an ApiVersions request on this connection is still answered."""
        try:
            return self.call(API_VERSIONS_V0)[:4] == struct.pack(">i", 77)
        except OSError:
            return False


class Client:
    """Sends requests and receives their responses in turn, in the versions of requests.py unless others are named.

    `raw` is the connection below."""

    def __init__(self, bootstrap: str, client_id: str = "raw", timeout: float = 30) -> None:
        self.raw = RawClient(bootstrap, timeout)
        self.client_id = client_id
        self._numbers = itertools.count()
        self._sent: dict[int, tuple[Message, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.raw.close()

    def send(self, request: Message, version: int | None = None) -> None:
        asked = VERSIONS[type(request)] if version is None else version
        number = next(self._numbers)
        self._sent[number] = (request, asked)
        self.raw.send(request_payload(request, asked, correlation_id=number, client_id=self.client_id))

    def receive(self) -> Any:
        """The next response, to whichever request. Raises ConnectionError if the broker closed instead."""
        frame = self.raw.receive()
        return response_of(frame, *self._sent.pop(int.from_bytes(frame[:4], "big")))

    def create(self, topic: str, partitions: int = 1) -> None:
        assert self.ask(create_topics(topic, partitions=partitions)).topics[0].error_code == 0

    def ask(self, request: Message, version: int | None = None) -> Any:
        self.send(request, version)
        return self.receive()
