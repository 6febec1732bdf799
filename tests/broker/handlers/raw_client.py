"""A client that sends frames as they are, for tests of what comes before and after a login."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode, encode
from odradek.protocol.headers import RequestHeader, request_header_version, response_header_version
from odradek.protocol.messages.registry import response_class
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from odradek.protocol.schema import Message
from tests.patience import PATIENCE_S


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def request_bytes(request: Message, version: int, correlation_id: int = 7) -> bytes:
    """A request as a frame, with its length."""
    api_key = request.__schema__.api_key
    assert api_key is not None
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id="test"
    )
    return framed(encode(header, request_header_version(ApiKey(api_key), version)) + encode(request, version))


class RawClient:
    """Reads frame by frame; None is the end of the connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> bytes | None:
        """The next frame without its length, None if the connection has ended."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                length = int.from_bytes(await self.reader.readexactly(4), "big")
                return await self.reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return None

    async def call(self, request: Message, version: int) -> Any:
        """The response to a request, None if the connection has ended."""
        self.send(request_bytes(request, version))
        frame = await self.frame()
        return None if frame is None else response_of(frame, request, version)

    async def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return await self.call(SaslHandshakeRequest(mechanism=mechanism), version)

    async def token(self, token: bytes, version: int = 2) -> Any:
        return await self.call(SaslAuthenticateRequest(auth_bytes=token), version)


def response_of(frame: bytes, request: Message, version: int) -> Any:
    """Decodes the response to a request."""
    api_key = ApiKey(request.__schema__.api_key or 0)
    start = 4 + (response_header_version(api_key, version) > 0)
    return decode(response_class(api_key), version, frame, start)


@contextlib.asynccontextmanager
async def raw_client(port: int, address: str = "127.0.0.1", **security: Any) -> AsyncIterator[RawClient]:
    """Yields a client, at this address of this machine, that is connected to a port of it. `security`: of asyncio."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0), **security)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
