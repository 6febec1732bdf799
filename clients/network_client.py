"""A client connection to one broker: sends requests and returns their responses to the callers.

async with await NetworkClient.connect("127.0.0.1", 9092, client_id="admin") as client:
    response = await client.send(MetadataRequest(topics=None))

(A) The first exchange is ApiVersions: v3, and if the broker refuses that, the highest version it names (KIP-511), with
    the name of the software as client id: it has no other field for it. Every later request uses the highest version
    that both sides know and that names topics, or the version that the caller passes.
(B) Requests are written in the order of the calls and may all be in flight. Responses arrive in the same order, and
    each must carry the next expected correlation id. A wrong id, a frame above `max_response_bytes` or a response that
    cannot be decoded ends the connection, since nothing after it can be trusted. Long messages are encoded and decoded
    in steps; the order stays the same.
(C) A request that times out ends the connection, too: its response might arrive later and be mistaken for another's.
    The requests in flight behind it fail with the same error. Source: Kafka's
    `NetworkClient.handleTimedOutRequests`.
(D) `send_without_answer` writes a request that has no response (Produce with acks=0).
(E) `log_in` authenticates the connection, and does it again before the first request after the time that the login
    names. Requests wait meanwhile. If a later login fails, the connection ends.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from functools import cache
from types import TracebackType
from typing import Any, NamedTuple, Protocol, cast

from odradek import __version__
from odradek.broker.background.stepwise import in_steps, is_short
from odradek.broker.requests.endpoint import address_text
from odradek.broker.security.tls import explained
from odradek.clients.network_errors import (
    Disconnected,
    NetworkError,
    NodeUnreachable,
    RequestTimedOut,
    UnsupportedVersion,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode, encode_parts, read, reader_in_steps, writer_in_steps
from odradek.protocol.errors import ErrorCode, MalformedMessage
from odradek.protocol.framing import LONGEST_FRAME, BadFrame, FrameSplitter
from odradek.protocol.headers import RequestHeader, ResponseHeader, request_header_version, response_header_version
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.registry import codec_versions, request_class, response_class
from odradek.protocol.primitives import NO_LIMIT
from odradek.protocol.schema import Message, Versions

DEFAULT_TIMEOUT_MS = 30_000
FIRST_API_VERSIONS_VERSION = 3
LAST_WITH_NAMES = {
    ApiKey.PRODUCE: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.TXN_OFFSET_COMMIT: 5,
}
"""Later versions have topic ids only: a caller that knows ids passes the version."""
CLOSE_GRACE_S = 2
"""How long `close` waits for a broker that does not read."""
SOFTWARE_NAME = "odradek"
WITHOUT_TLS = "the TLS handshake got no answer: its listener may have no TLS"
LONG_RESPONSE_BYTES = 64 * 1024


Exchange = Callable[[Message, int], Awaitable[Any]]
"""Sends a request of a version, and returns its response."""
LogIn = Callable[[Exchange], Awaitable[float | None]]
"""Logs in, and returns after how many seconds the login must be renewed, None for never. Raises NetworkError."""


class _InFlight(NamedTuple):
    correlation_id: int
    api_key: int
    api_version: int
    future: asyncio.Future[Any]
    """The response, or the frame of a long one (`_Undecoded`)."""


class _Undecoded(NamedTuple):
    """A long response whose body begins at `position`."""

    frame: bytes
    position: int


class NetworkClient(asyncio.BufferedProtocol):
    """A client connection, created by `connect`; see the head of this file. `versions` are the broker's, by API key."""

    def __init__(self, name: str, client_id: str, software_name: str, timeout_ms: int, max_response_bytes: int) -> None:
        self.name = name
        self.versions: dict[int, Versions] = {}
        self._client_id = client_id
        self._software_name = software_name
        self._timeout_ms = timeout_ms
        self._frames = FrameSplitter(max_response_bytes)
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[_InFlight] = deque()
        self._next_correlation_id = 0
        self._failure: NetworkError | None = None
        self._closed = asyncio.get_running_loop().create_future()
        self._sending = asyncio.Lock()
        self._receiving = asyncio.Lock()
        self._log_in: LogIn | None = None
        self._renewed_at_s: float | None = None

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = SOFTWARE_NAME,
        software_name: str = SOFTWARE_NAME,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        max_response_bytes: int = LONGEST_FRAME,
        tls: ssl.SSLContext | None = None,
    ) -> NetworkClient:
        """Connects and fetches the broker's API versions (A). `timeout_ms` is also the default for requests. `tls` is
        that of the connection, None for a plain one. Raises NetworkError.
        """
        name = address_text(host, port)
        client = cls(name, client_id, software_name, timeout_ms, max_response_bytes)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await loop.create_connection(lambda: client, host, port, **_tls_options(tls, host))
        except TimeoutError as error:
            raise NodeUnreachable(f"{name} did not accept the connection in {timeout_ms} ms") from error
        except ssl.SSLError as error:
            raise NodeUnreachable(f"cannot connect to {name}: TLS failed: {explained(error)}") from error
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise NodeUnreachable(f"cannot connect to {name}: {reason or WITHOUT_TLS}") from error
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
        return self._transport is not None and self._failure is None and not self._transport.is_closing()

    def version_for(self, api_key: int) -> int:
        """The highest version of the API that both sides know and that names topics. Raises UnsupportedVersion."""
        ours, theirs = codec_versions(api_key), self.versions.get(api_key)
        if theirs is None:
            raise UnsupportedVersion(f"{self.name} does not serve {ApiKey(api_key).name}")
        highest = min(LAST_WITH_NAMES.get(ApiKey(api_key), ours.highest), ours.highest, theirs.highest)
        if highest < max(ours.lowest, theirs.lowest):
            raise UnsupportedVersion(f"{self.name} serves {ApiKey(api_key).name} in versions {theirs} only")
        return highest

    async def send(self, request: Message, *, version: int | None = None, timeout_ms: int | None = None) -> Any:
        """Sends a request and returns its response. Raises NetworkError. Cancelling keeps the connection open."""
        api_key = api_key_of(request)
        api_version = self.version_for(api_key) if version is None else version
        async with self._sending:
            if self._renewed_at_s is not None and asyncio.get_running_loop().time() >= self._renewed_at_s:
                await self._renew()
            future = await self._begin(request, api_version)
        return await self._end(future, api_key, api_version, self._timeout_ms if timeout_ms is None else timeout_ms)

    async def _begin(self, request: Message, api_version: int) -> asyncio.Future[Any]:
        """Writes a request. Its response arrives in the future."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        body = await _encoded(request, api_version)
        api_key = api_key_of(request)
        correlation_id = self._write(api_key, api_version, body)
        self._in_flight.append(_InFlight(correlation_id, api_key, api_version, future))
        return future

    async def _end(self, future: asyncio.Future[Any], api_key: int, api_version: int, limit_ms: int) -> Any:
        """Waits for a response."""
        timer = asyncio.get_running_loop().call_later(limit_ms / 1000, self._time_out, api_key, limit_ms)
        try:
            answer = await future
        finally:
            timer.cancel()
        async with self._receiving:
            return await self._decoded(answer, api_key, api_version) if isinstance(answer, _Undecoded) else answer

    def send_without_answer(self, request: Message, *, version: int | None = None) -> None:
        """Sends a request that has no response (D)."""
        api_key = api_key_of(request)
        api_version = self.version_for(api_key) if version is None else version
        body: list[Any] = []
        encode_parts(request, api_version, body)
        self._write(api_key, api_version, body)

    async def log_in(self, log_in: LogIn) -> None:
        """Authenticates the connection (E). Raises NetworkError."""
        self._log_in = log_in
        async with self._sending:
            await self._renew()

    async def _renew(self) -> None:
        """Logs in. Nothing else is written meanwhile. Raises NetworkError, which ends the connection."""
        assert self._log_in is not None
        self._open_transport()
        try:
            after_s = await self._log_in(self._exchange)
        except NetworkError as error:
            self._fail(error)
            raise
        except BaseException:  # the caller was cancelled: the other side waits for the rest
            self._fail(Disconnected(f"the login to {self.name} was interrupted"))
            raise
        self._renewed_at_s = None if after_s is None else asyncio.get_running_loop().time() + after_s

    async def _exchange(self, request: Message, version: int) -> Any:
        future = await self._begin(request, version)
        return await self._end(future, api_key_of(request), version, self._timeout_ms)

    def abort(self, reason: str) -> None:
        """Ends the connection at once. Requests in flight fail with Disconnected."""
        self._fail(Disconnected(reason))

    async def close(self) -> None:
        """Closes the connection once everything is written. Requests in flight fail with Disconnected."""
        if self._transport is None:
            return
        self._transport.close()
        self._fail(Disconnected(f"the connection to {self.name} was closed"), abort=False)
        await asyncio.wait([self._closed], timeout=CLOSE_GRACE_S)
        self._transport.abort()
        await self._closed

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BufferedProtocol."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from asyncio's

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        try:
            for frame in self._frames.filled(nbytes):
                self._answer(frame)
        except (BadFrame, MalformedMessage) as error:
            self._fail(self._invalid(error))

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.BufferedProtocol."""
        reason = "" if error is None else f": {explained(error) if isinstance(error, ssl.SSLError) else error}"
        self._fail(Disconnected(f"{self.name} closed the connection{reason}"))
        if not self._closed.done():
            self._closed.set_result(None)

    # Internal

    async def _negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name=self._software_name, client_software_version=__version__)
        response = await self.send(request, version=FIRST_API_VERSIONS_VERSION)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            own = next((entry for entry in response.api_keys if entry.api_key == ApiKey.API_VERSIONS), None)
            version = min(own.max_version if own else 0, FIRST_API_VERSIONS_VERSION)
            response = await self.send(request, version=version)
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode.of(response.error_code)
            raise UnsupportedVersion(f"{self.name} does not report its API versions: {code.name}")
        self.versions = {entry.api_key: Versions(entry.min_version, entry.max_version) for entry in response.api_keys}

    def _write(self, api_key: int, api_version: int, body: list[Any]) -> int:
        transport = self._open_transport()
        self._next_correlation_id = correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        has_no_software = api_key == ApiKey.API_VERSIONS and api_version < FIRST_API_VERSIONS_VERSION
        header = RequestHeader(
            request_api_key=api_key,
            request_api_version=api_version,
            correlation_id=correlation_id,
            client_id=self._software_name if has_no_software else self._client_id,
        )
        parts: list[Any] = [b""]
        size = encode_parts(header, request_header_version(api_key, api_version), parts) + sum(map(len, body))
        parts[0] = size.to_bytes(4, "big")
        transport.writelines(parts + body)
        return correlation_id

    def _open_transport(self) -> asyncio.Transport:
        """Raises NetworkError if the connection has ended."""
        if self._transport is None or self._failure is not None:
            raise self._failure or Disconnected(f"there is no connection to {self.name}")
        if self._transport.is_closing():  # the other side has ended it; `connection_lost` comes next
            raise Disconnected(f"{self.name} closed the connection")
        return self._transport

    async def _decoded(self, answer: _Undecoded, api_key: int, api_version: int) -> Any:
        """Decodes a long response in steps."""
        reading = _reader_in_steps(api_key, api_version)
        try:
            response, _ = await in_steps(reading(answer.frame, answer.position, NO_LIMIT))
        except MalformedMessage as error:
            self._fail(self._invalid(error))
            raise self._invalid(error) from error
        return response

    def _invalid(self, error: Exception) -> Disconnected:
        return Disconnected(f"{self.name} sent an invalid response: {error}")

    def _answer(self, frame: bytes) -> None:
        """Case (B)."""
        if not self._in_flight:
            raise MalformedMessage("unexpected response: no request is in flight")
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
        """Ends the connection with the first failure; later failures have no effect."""
        if self._failure is None:
            self._failure = failure
            if self._transport is not None and abort:
                self._transport.abort()
        while self._in_flight:
            future = self._in_flight.popleft().future
            if not future.done():
                future.set_exception(self._failure)


class Connect(Protocol):
    """`NetworkClient.connect`; a test may pass something that refuses some addresses."""

    async def __call__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = ...,
        software_name: str = ...,
        timeout_ms: int = ...,
        tls: ssl.SSLContext | None = ...,
    ) -> NetworkClient: ...


def _tls_options(tls: ssl.SSLContext | None, host: str) -> dict[str, Any]:
    return {} if tls is None else {"ssl": tls, "server_hostname": host}


def api_key_of(request: Message) -> int:
    """Returns the API key of a request. Raises TypeError for another message."""
    api_key = request.__schema__.api_key
    if api_key is None or request.__schema__.kind != "request":
        raise TypeError(f"{type(request).__name__} is not a request")
    return api_key


def _read_response(asked: _InFlight, frame: bytes) -> Any:
    """Decodes the response to `asked`, or only its header if it is long. Raises MalformedMessage if the frame is
    something else.
    """
    header, position = read(ResponseHeader, response_header_version(asked.api_key, asked.api_version), frame)
    if header.correlation_id != asked.correlation_id:
        raise MalformedMessage(f"correlation id {header.correlation_id} instead of {asked.correlation_id}")
    if asked.api_key == ApiKey.API_VERSIONS and _is_refusal(frame, position):
        return decode(ApiVersionsResponse, 0, frame, position)
    if len(frame) > LONG_RESPONSE_BYTES:
        return _Undecoded(frame, position)
    return decode(response_class(asked.api_key), asked.api_version, frame, position)


async def _encoded(request: Message, api_version: int) -> list[Any]:
    """Encodes a request, in steps if it is long."""
    body: list[Any] = []
    if is_short(request):
        encode_parts(request, api_version, body)
    else:
        await in_steps(_writer_in_steps(api_key_of(request), api_version)(request, body))
    return body


@cache
def _writer_in_steps(api_key: int, version: int) -> Any:
    return writer_in_steps(request_class(api_key), version)


@cache
def _reader_in_steps(api_key: int, version: int) -> Any:
    return reader_in_steps(response_class(api_key), version)


def _is_refusal(frame: bytes, position: int) -> bool:
    """Whether the broker refused the version of ApiVersions. That response has version 0, whatever was requested."""
    return frame[position : position + 2] == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
