"""Connections to brokers as streams of frames, and reading a frame in pieces."""

from __future__ import annotations

import asyncio
import os
import random
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from odradek.broker.security.sasl.client import ClientCredentials
from odradek.broker.security.sasl.scram import new_nonce
from odradek.broker.security.tls import explained
from odradek.clients.logins import log_in
from odradek.clients.network_errors import Disconnected, NodeUnreachable
from odradek.clients.recording.addresses import text_of
from odradek.clients.recording.recording_file import PIECE_BYTES
from odradek.protocol.compiler import decode, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.framing import LENGTH_BYTES, LONGEST_FRAME, BadFrame, frame, frame_length
from odradek.protocol.headers import RequestHeader, request_header_version, response_header_version
from odradek.protocol.messages.registry import response_class
from odradek.protocol.schema import Message

CLIENT_ID = "odradek-recording"
CONNECT_TIMEOUT_S = 10
CLOSE_GRACE_S = 2
UNANSWERED = "it has answered nothing, its listener may have TLS or logins"
LONGEST_RESPONSE = 0x14000000 - 1
"""Brokers limit requests, but not responses. The first bytes of a TLS record would be a longer frame."""


class Stream(NamedTuple):
    """A connection."""

    name: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def length(self, longest: int = LONGEST_FRAME) -> int | None:
        """Reads the length of the next frame. None: the connection has ended. Raises BadFrame."""
        try:
            head = await self.reader.readexactly(LENGTH_BYTES)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            return None
        return frame_length(head, longest=longest)

    async def pieces(self, length: int) -> AsyncIterator[bytes]:
        """Reads the frame after its length. The last piece is missing if the connection ends before."""
        left = length
        while True:
            try:
                piece = await self.reader.readexactly(min(left, PIECE_BYTES))
            except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                return
            left -= len(piece)
            yield piece
            if not left:
                return

    async def frame(self) -> bytes | None:
        """Reads a response. None: the connection has ended. Raises BadFrame."""
        length = await self.length(LONGEST_RESPONSE)
        if length is None:
            return None
        data = b"".join([piece async for piece in self.pieces(length)])
        return data if len(data) == length else None

    async def send(self, data: bytes) -> None:
        """Writes a frame. Raises ConnectionError."""
        self.writer.write(frame(data))
        await self.writer.drain()

    async def finish(self) -> None:
        """Sends what is written, for a moment, and closes."""
        self.writer.close()
        try:
            async with asyncio.timeout(CLOSE_GRACE_S):
                await self.writer.wait_closed()
        except (OSError, TimeoutError):
            self.abort()

    def abort(self) -> None:
        self.writer.transport.abort()


class Dial(NamedTuple):
    """How to connect to brokers: with TLS, and with a login, if there are any. `new_nonce` is for the login."""

    tls: ssl.SSLContext | None = None
    login: ClientCredentials | None = None
    new_nonce: Callable[[], bytes] = bytes

    @classmethod
    def secured(cls, tls: ssl.SSLContext | None, login: ClientCredentials | None, source: random.Random) -> Dial:
        """`source` draws the nonces of logins."""
        return cls(tls, login, lambda: new_nonce(source))

    async def connect(self, host: str, port: int) -> Stream:
        """Returns a connection that has logged in. Raises NetworkError."""
        name = text_of((host, port))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                named = None if self.tls is None else host
                reader, writer = await asyncio.open_connection(
                    host, port, limit=PIECE_BYTES, ssl=self.tls, server_hostname=named
                )
        except TimeoutError as error:
            raise NodeUnreachable(f"{name} did not accept the connection in {CONNECT_TIMEOUT_S} s") from error
        except ssl.SSLError as error:
            raise NodeUnreachable(f"cannot connect to {name}: TLS failed: {explained(error)}") from error
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise NodeUnreachable(f"cannot connect to {name}: {reason}") from error
        stream = Stream(name, reader, writer)
        if self.login is not None:
            await self._log_in(stream, self.login)
        return stream

    async def _log_in(self, stream: Stream, login: ClientCredentials) -> None:
        async def exchange(request: Message, version: int) -> Any:
            return await asked(stream, request, version)

        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await log_in(exchange, stream.name, login, self.new_nonce())
        except TimeoutError as error:
            stream.abort()
            raise NodeUnreachable(f"{stream.name} did not answer a login in {CONNECT_TIMEOUT_S} s") from error
        except BaseException:
            stream.abort()
            raise


async def asked(stream: Stream, request: Message, version: int) -> Any:
    """Sends a request while nothing else is under way, and returns its response. Raises Disconnected."""
    api_key = type(request).__schema__.api_key
    assert api_key is not None
    header = RequestHeader(request_api_key=api_key, request_api_version=version, client_id=CLIENT_ID)
    try:
        await stream.send(encode(header, request_header_version(api_key, version)) + encode(request, version))
        data = await stream.frame()
    except (BadFrame, ConnectionError) as error:
        raise Disconnected(f"the connection to {stream.name} failed: {error}") from error
    if data is None:
        raise Disconnected(f"{stream.name} closed the connection: {UNANSWERED}")
    start = LENGTH_BYTES + response_header_version(api_key, version)
    try:
        return decode(response_class(api_key), version, data, start)
    except MalformedMessage as error:
        raise Disconnected(f"{stream.name} does not answer as a broker: {error}") from error
