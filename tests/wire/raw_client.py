"""A client on the event loop that sends frames as they are, for what no library would send: before and after a login,
and requests whose responses a test takes one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import AsyncIterator
from typing import Any

from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from odradek.protocol.schema import Message
from tests.patience import PATIENCE_S
from tests.wire.frames import framed, request_payload, response_of

SILENCE_S = 0.05
"""The broker has enough turns in it to send a response."""


class RawClient:
    """Reads frame by frame. `last_size`: the length of the last one, with its own length."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.last_size = 0
        self._numbers = itertools.count()
        self._sent: dict[int, tuple[Message, int]] = {}

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def send_request(self, request: Message, version: int, client_id: str = "test") -> None:
        number = next(self._numbers)
        self._sent[number] = (request, version)
        self.send(framed(request_payload(request, version, correlation_id=number, client_id=client_id)))

    async def frame(self) -> bytes | None:
        """The next frame without its length, None if the connection has ended."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                length = int.from_bytes(await self.reader.readexactly(4), "big")
                frame = await self.reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
        self.last_size = 4 + length
        return frame

    async def response(self) -> Any:
        """The next response to whichever request of `send_request`, None if the connection has ended."""
        frame = await self.frame()
        return None if frame is None else response_of(frame, *self._sent.pop(int.from_bytes(frame[:4], "big")))

    async def call(self, request: Message, version: int, client_id: str = "test") -> Any:
        """The response to a request, None if the connection has ended."""
        self.send(framed(request_payload(request, version, client_id=client_id)))
        frame = await self.frame()
        return None if frame is None else response_of(frame, request, version)

    async def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return await self.call(SaslHandshakeRequest(mechanism=mechanism), version)

    async def token(self, token: bytes, version: int = 2) -> Any:
        return await self.call(SaslAuthenticateRequest(auth_bytes=token), version)

    async def is_silent(self) -> bool:
        """Whether nothing has come although the broker had time for it."""
        await asyncio.sleep(SILENCE_S)
        return not self.reader._buffer  # type: ignore[attr-defined]

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()


async def connected(port: int, address: str = "127.0.0.1", **security: Any) -> RawClient:
    """A client, at this address of this machine, that is connected to a port of it. `security`: of asyncio."""
    return RawClient(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0), **security))


@contextlib.asynccontextmanager
async def raw_client(port: int, address: str = "127.0.0.1", **security: Any) -> AsyncIterator[RawClient]:
    """Yields such a client, and closes it."""
    client = await connected(port, address, **security)
    try:
        yield client
    finally:
        await client.close()
