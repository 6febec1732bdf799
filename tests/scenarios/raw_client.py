"""A minimal client that sends frames over a blocking socket, for requests that no library sends."""

from __future__ import annotations

import socket
import struct
from types import TracebackType

from odradek.protocol.compiler import encode
from odradek.protocol.headers import RequestHeader, request_header_version
from odradek.protocol.schema import Message

API_VERSIONS_V0 = struct.pack(">hhih", 18, 0, 77, -1)


class RawClient:
    def __init__(self, bootstrap: str, timeout: float = 10, receive_buffer: int | None = None) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def send(self, payload: bytes) -> None:
        """Sends one frame: the length and ``payload`` (header and body)."""
        self.socket.sendall(struct.pack(">i", len(payload)) + payload)

    def receive(self) -> bytes:
        """Returns one frame without its length. Raises ConnectionError if the broker closed instead."""
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


def request_payload(request: Message, version: int, *, correlation_id: int = 1, client_id: str = "raw") -> bytes:
    """Header and body of ``request`` (an instance of a request class of ``protocol.messages``)."""
    api_key = request.__schema__.api_key
    assert api_key is not None
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return encode(header, request_header_version(api_key, version)) + encode(request, version)
