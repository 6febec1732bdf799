"""One connection to one broker, from the client's side: requests out, responses back to whoever asked.

async with await NetworkClient.connect("127.0.0.1", 9092, client_id="admin") as client:
    response = await client.send(MetadataRequest(topics=None))

(A) The first exchange is ApiVersions: v3, and if the broker refuses that, the highest version it names (KIP-511).
    From then on every request goes out in the highest version that both sides know, or in the one that the caller
    names.
(B) Requests are written as they come and may all be in flight; responses come in the same order, and each must
    bear the correlation id whose turn it is. Anything else, a frame above `max_response_bytes` or a response that
    does not decode ends the connection, since nothing after it can be trusted.
(C) A request that is not answered in its time ends the connection, too: its answer might come later and stand in
    another's way. Those in flight behind it fail with the same error. Source: Kafka's
    `NetworkClient.handleTimedOutRequests`.
(D) A request without an answer (Produce with acks=0) is written by `send_without_answer`.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, NamedTuple, cast

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode, encode_parts, read
from odradek.protocol.errors import ErrorCode, MalformedMessage
from odradek.protocol.framing import LONGEST_FRAME, BadFrame, FrameSplitter
from odradek.protocol.headers import RequestHeader, ResponseHeader, request_header_version, response_header_version
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.registry import codec_versions, response_class
from odradek.protocol.schema import Message, Versions

DEFAULT_TIMEOUT_MS = 30_000
FIRST_API_VERSIONS_VERSION = 3
CLOSE_GRACE_S = 2
"""How long `close` waits for a broker that does not read."""
SOFTWARE_NAME = "odradek"
SOFTWARE_VERSION = "0.1.0"


class NetworkError(Exception):
    """A request could not be made, or its answer did not come. The message names the broker."""


class NodeUnreachable(NetworkError):
    """No connection could be made."""


class Disconnected(NetworkError):
    """The connection ended before the answer came."""


class RequestTimedOut(NetworkError):
    """The answer did not come in time."""


class UnsupportedVersion(NetworkError):
    """The broker does not serve the API, or in no version that we know."""


Connect = Callable[[str, int], Awaitable["NetworkClient"]]
"""connect(host, port), as `NetworkClient.connect`."""


class _InFlight(NamedTuple):
    correlation_id: int
    api_key: int
    api_version: int
    future: asyncio.Future[Any]


class NetworkClient(asyncio.Protocol):
    """See the file's head. Made by `connect`. `versions` are the broker's, by API key."""

    def __init__(self, name: str, client_id: str, timeout_ms: int, max_response_bytes: int) -> None:
        self.name = name
        self.versions: dict[int, Versions] = {}
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._frames = FrameSplitter(max_response_bytes)
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[_InFlight] = deque()
        self._next_correlation_id = 0
        self._failure: NetworkError | None = None
        self._closed = asyncio.get_running_loop().create_future()

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = SOFTWARE_NAME,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        max_response_bytes: int = LONGEST_FRAME,
    ) -> NetworkClient:
        """Connects and learns the broker's versions (A). Raises NetworkError. `timeout_ms` is also every request's
        default.
        """
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        client = cls(name, client_id, timeout_ms, max_response_bytes)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await loop.create_connection(lambda: client, host, port)
        except TimeoutError as error:
            raise NodeUnreachable(f"{name} did not take the connection in {timeout_ms} ms") from error
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise NodeUnreachable(f"cannot connect to {name}: {reason}") from error
        try:
            await client._negotiate()
        except BaseException:
            await client.close()
            raise
        return client

    async def __aenter__(self) -> NetworkClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def is_connected(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and self._failure is None

    def version_for(self, api_key: int) -> int:
        """The highest version of the API that both sides know. Raises UnsupportedVersion."""
        ours, theirs = codec_versions(api_key), self.versions.get(api_key)
        if theirs is None:
            raise UnsupportedVersion(f"{self.name} does not serve {ApiKey(api_key).name}")
        highest = min(ours.highest, theirs.highest)
        if highest < max(ours.lowest, theirs.lowest):
            raise UnsupportedVersion(f"{self.name} serves {ApiKey(api_key).name} in versions {theirs} only")
        return highest

    async def send(self, request: Message, *, version: int | None = None, timeout_ms: int | None = None) -> Any:
        """Sends a request and returns its response. Raises NetworkError; cancelling leaves the connection as it is."""
        api_key = _api_key(request)
        api_version = self.version_for(api_key) if version is None else version
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        correlation_id = self._write(request, api_key, api_version)
        self._in_flight.append(_InFlight(correlation_id, api_key, api_version, future))
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        timer = asyncio.get_running_loop().call_later(limit_ms / 1000, self._time_out, api_key, limit_ms)
        try:
            return await future
        finally:
            timer.cancel()

    def send_without_answer(self, request: Message, *, version: int | None = None) -> None:
        """Sends a request that the broker does not answer (D)."""
        api_key = _api_key(request)
        self._write(request, api_key, self.version_for(api_key) if version is None else version)

    async def close(self) -> None:
        """Ends the connection when what was sent is on its way; whoever waits for an answer gets Disconnected."""
        if self._transport is None:
            return
        self._transport.close()
        self._fail(Disconnected(f"the connection to {self.name} was closed"), abort=False)
        await asyncio.wait([self._closed], timeout=CLOSE_GRACE_S)
        self._transport.abort()
        await self._closed

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by name

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            for frame in self._frames.feed(data):
                self._answer(frame)
        except (BadFrame, MalformedMessage) as error:
            self._fail(Disconnected(f"{self.name} sent what is no answer: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""
        reason = f": {error}" if error is not None else ""
        self._fail(Disconnected(f"{self.name} closed the connection{reason}"))
        if not self._closed.done():
            self._closed.set_result(None)

    # Within

    async def _negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        response = await self.send(request, version=FIRST_API_VERSIONS_VERSION)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            own = next((entry for entry in response.api_keys if entry.api_key == ApiKey.API_VERSIONS), None)
            response = await self.send(request, version=min(own.max_version if own else 0, FIRST_API_VERSIONS_VERSION))
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode.of(response.error_code)
            raise UnsupportedVersion(f"{self.name} does not tell its versions: {code.name}")
        self.versions = {entry.api_key: Versions(entry.min_version, entry.max_version) for entry in response.api_keys}

    def _write(self, request: Message, api_key: int, api_version: int) -> int:
        if self._transport is None or self._failure is not None:
            raise self._failure or Disconnected(f"there is no connection to {self.name}")
        self._next_correlation_id = correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(
            request_api_key=api_key,
            request_api_version=api_version,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        parts: list[Any] = [b""]
        size = encode_parts(header, request_header_version(api_key, api_version), parts)
        size += encode_parts(request, api_version, parts)
        parts[0] = size.to_bytes(4, "big")
        self._transport.writelines(parts)
        return correlation_id

    def _answer(self, frame: bytes) -> None:
        """Case (B)."""
        if not self._in_flight:
            raise MalformedMessage("an answer that nobody asked for")
        asked = self._in_flight.popleft()
        try:
            response = _read_response(asked, frame)
        except MalformedMessage:
            self._in_flight.appendleft(asked)
            raise
        if not asked.future.done():
            asked.future.set_result(response)

    def _time_out(self, api_key: int, limit_ms: int) -> None:
        self._fail(RequestTimedOut(f"{self.name} did not answer {ApiKey(api_key).name} in {limit_ms} ms"))

    def _fail(self, failure: NetworkError, *, abort: bool = True) -> None:
        """Ends the connection once; later failures change nothing."""
        if self._failure is None:
            self._failure = failure
            if self._transport is not None and abort:
                self._transport.abort()
        while self._in_flight:
            future = self._in_flight.popleft().future
            if not future.done():
                future.set_exception(self._failure)


def _api_key(request: Message) -> int:
    api_key = request.__schema__.api_key
    if api_key is None or request.__schema__.kind != "request":
        raise TypeError(f"{type(request).__name__} is no request")
    return api_key


def _read_response(asked: _InFlight, frame: bytes) -> Any:
    """Raises MalformedMessage if it is not the answer to `asked`."""
    header, position = read(ResponseHeader, response_header_version(asked.api_key, asked.api_version), frame)
    if header.correlation_id != asked.correlation_id:
        raise MalformedMessage(f"answer {header.correlation_id} instead of {asked.correlation_id}")
    if asked.api_key == ApiKey.API_VERSIONS and _is_refusal(frame, position):
        return decode(ApiVersionsResponse, 0, frame, position)
    return decode(response_class(asked.api_key), asked.api_version, frame, position)


def _is_refusal(frame: bytes, position: int) -> bool:
    """The answer to an ApiVersions of unknown version stands in version 0, whatever was asked."""
    return frame[position : position + 2] == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
