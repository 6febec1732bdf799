"""One client's connection through the proxy: what it sends goes on to its broker, and the responses come back.

(A) A frame is in the recording before it goes on; each piece of a long frame is. What cannot be recorded does not go
    on: the connection ends.
(B) A frame goes on in pieces, as fast as the other side takes them: nothing more is read meanwhile. Frames that must
    be whole before they go on (addresses to replace, secrets to leave out) share a room of limited size. A connection
    ends if a side of it neither sends nor takes a piece of such a frame for SLOW_S, while others wait for room.
(C) Responses are recorded as the broker sent them. Clients get them with the addresses of the proxy.
(D) A request whose response would have addresses in a version that cannot be decoded ends the connection. Clients
    ask for ApiVersions before they know any version: in one that cannot be decoded, it goes on as UNKNOWN_VERSION, so
    that the broker refuses it with its own range (KIP-511), and the client asks again in a version that both know.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import structlog

from odradek.clients.recording.addresses import (
    Address,
    addresses_in,
    is_unreadable,
    limit_versions,
    may_have_addresses,
    replace_addresses,
)
from odradek.clients.recording.conversation import Asked, Conversation
from odradek.clients.recording.decoding import decoded_response, is_decodable
from odradek.clients.recording.recording_file import MORE, REDACTED, Kind
from odradek.clients.recording.room import Room
from odradek.clients.recording.secrets import has_secrets, request_without_secrets, response_without_secrets
from odradek.clients.recording.streams import LONGEST_RESPONSE, UNANSWERED, Stream
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.framing import LENGTH_BYTES, BadFrame

T = TypeVar("T")

SLOW_S = 30.0
SENT_BYTES = 256 * 1024
UNKNOWN_VERSION = (0x7FFF).to_bytes(2, "big")
"""A version of ApiVersions that no broker has."""

log = structlog.get_logger("broker.recording")
Ports = Callable[[Iterable[Address], str], Awaitable[Mapping[Address, int]]]
"""From the addresses of brokers to the ports of the proxy that lead to them, at one of its own addresses."""


class CannotRecord(Exception):
    """The recording cannot be written."""


class Recorder(Protocol):
    """Records what passes. Raises CannotRecord."""

    def entry(self, kind: Kind, connection: int, data: bytes, flags: int = 0) -> None:
        """Records one piece."""

    def frame(self, kind: Kind, connection: int, data: bytes, flags: int = 0) -> None:
        """Records a whole frame."""


class Ended(Exception):
    """The connection must end, for this reason."""


class Relay:
    """`number` is the connection's in the recording."""

    def __init__(
        self,
        number: int,
        client: Stream,
        broker: Stream,
        recorder: Recorder,
        ports: Ports,
        room: Room,
        slow_s: float = SLOW_S,
    ) -> None:
        self._number = number
        self._client = client
        self._broker = broker
        self._recorder = recorder
        self._ports = ports
        self._room = room
        self._slow_s = slow_s
        self._conversation = Conversation()
        self._has_asked = self._has_responses = False

    async def run(self) -> str:
        """Returns when the connection has ended: who ended it, or why. Raises CannotRecord."""
        requests = asyncio.create_task(self._requests(), name=f"requests of {self._client.name}")
        responses = asyncio.create_task(self._responses(), name=f"responses to {self._client.name}")
        both = {requests, responses}
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        try:
            for task in done:
                task.result()
        except (Ended, BadFrame) as error:
            log.warning("connection ended by the proxy", client=self._client.name, reason=str(error))
            return str(error)
        except (OSError, ssl.SSLError) as error:
            log.info("connection lost", client=self._client.name, reason=str(error))
            return "broker" if requests in done else "client"
        if requests in done:
            return "client"
        if self._has_asked and not self._has_responses:
            log.warning("connection ended", broker=self._broker.name, client=self._client.name, reason=UNANSWERED)
        return "broker"

    async def _requests(self) -> None:
        client = self._client
        while (length := await client.length()) is not None:
            pieces = client.pieces(length)
            first = await anext(pieces, None)
            if first is None:
                return
            asked = self._conversation.asked(first)
            self._has_asked = True
            if asked is None:
                raise Ended(f"a request of {length} bytes is too short")
            if is_unreadable(asked):
                raise Ended(f"{asked.api_name} {asked.version} is newer than what the proxy can read")
            if not has_secrets(asked, is_request=True):
                sent = first
                if asked.api_key == ApiKey.API_VERSIONS and not is_decodable(asked):
                    sent = first[:2] + UNKNOWN_VERSION + first[4:]
                if not await self._pass_on(Kind.REQUEST, self._broker, length, first, pieces, sent):
                    return
                continue
            async with self._room.hold(length):
                data = await self._whole(self._client, length, first, pieces)
                if data is None:
                    return
                self._record(Kind.REQUEST, data, request_without_secrets(asked, data))
                await self._send(self._broker, data)

    async def _responses(self) -> None:
        broker = self._broker
        while (length := await broker.length(LONGEST_RESPONSE)) is not None:
            pieces = broker.pieces(length)
            first = await anext(pieces, None)
            if first is None:
                return
            asked = self._conversation.answered(first)
            self._has_responses = True
            if asked is None or not _is_held(asked):
                if not await self._pass_on(Kind.RESPONSE, self._client, length, first, pieces, first):
                    return
                continue
            async with self._room.hold(length):
                data = await self._whole(broker, length, first, pieces)
                if data is None:
                    return
                hidden = response_without_secrets(asked, data) if has_secrets(asked, is_request=False) else None
                self._record(Kind.RESPONSE, data, hidden)
                await self._send(self._client, await self._for_client(asked, data))

    def _record(self, kind: Kind, data: bytes, hidden: bytes | None) -> None:
        if hidden is None:
            self._recorder.frame(kind, self._number, data)
        else:
            self._recorder.frame(kind, self._number, hidden, REDACTED)

    async def _pass_on(
        self, kind: Kind, to: Stream, length: int, first: bytes, pieces: AsyncIterator[bytes], sent: bytes
    ) -> bool:
        """Records and sends a frame piece by piece; `sent` goes on instead of the first one. Returns whether the frame
        was whole.
        """
        left = length - len(first)
        self._recorder.entry(kind, self._number, first, MORE if left else 0)
        to.writer.write(length.to_bytes(LENGTH_BYTES, "big") + sent)
        await to.writer.drain()
        async for piece in pieces:
            left -= len(piece)
            self._recorder.entry(kind, self._number, piece, MORE if left else 0)
            to.writer.write(piece)
            await to.writer.drain()
        return not left

    async def _for_client(self, asked: Asked, data: bytes) -> bytes:
        """Returns the response with the addresses of the proxy (C)."""
        if not may_have_addresses(asked) and asked.api_key != ApiKey.API_VERSIONS:
            return data
        decoded = decoded_response(asked, data)
        if decoded is None:
            raise Ended(f"the response to {asked.api_name} {asked.version} cannot be decoded")
        if asked.api_key == ApiKey.API_VERSIONS:
            limit_versions(decoded.message)
            return decoded.with_message(decoded.message)
        found = addresses_in(decoded.message)
        if not found:
            return data
        host: str = self._client.writer.get_extra_info("sockname")[0]
        replace_addresses(decoded.message, await self._ports(found, host), host)
        return decoded.with_message(decoded.message)

    async def _whole(self, stream: Stream, length: int, first: bytes, pieces: AsyncIterator[bytes]) -> bytes | None:
        """Returns a frame whose first piece has come (B). None: the connection has ended before the others."""
        data = bytearray(first)
        while len(data) < length:
            piece = await self._in_time(_next(pieces), f"{stream.name} sends nothing")
            if not piece:
                return None
            data += piece
        return bytes(data)

    async def _send(self, stream: Stream, data: bytes) -> None:
        """Sends a frame (B)."""
        stream.writer.write(len(data).to_bytes(LENGTH_BYTES, "big"))
        view = memoryview(data)
        for start in range(0, len(data), SENT_BYTES):
            stream.writer.write(bytes(view[start : start + SENT_BYTES]))
            await self._in_time(stream.writer.drain(), f"{stream.name} reads nothing")

    async def _in_time(self, doing: Coroutine[Any, Any, T], idle: str) -> T:
        """Raises Ended if it takes SLOW_S while others wait for room (B)."""
        task = asyncio.ensure_future(doing)
        try:
            while not (await asyncio.wait({task}, timeout=self._slow_s))[0]:
                if self._room.is_short:
                    raise Ended(f"{idle} for {self._slow_s:g} s while others wait for memory")
            return task.result()
        finally:
            task.cancel()


async def _next(pieces: AsyncIterator[bytes]) -> bytes:
    return await anext(pieces, b"")


def _is_held(asked: Asked) -> bool:
    return may_have_addresses(asked) or asked.api_key == ApiKey.API_VERSIONS or has_secrets(asked, is_request=False)
