"""One connection of a simulated client: requests out, responses in, in order. The bytes are made by `Exchange`, which
knows no network.

With a `Login`, the connection logs in before its first request, and again before the session ends. Other requests wait
meanwhile. If the login fails, the connection ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple, cast

from odradek.clients.network_errors import LoginRefused
from odradek.protocol.compiler import decode, encode_parts, read
from odradek.protocol.framing import FrameSplitter, frame
from odradek.protocol.headers import RequestHeader, ResponseHeader, request_header_version, response_header_version
from odradek.protocol.messages.registry import response_class
from odradek.protocol.schema import Message
from tests.simulation.client.login import Login
from tests.simulation.client.requests import VERSIONS, version_of

LOGIN_TIMEOUT_S = 3.0


class NotSent(Exception):
    """The broker could not be reached: the request has had no effect."""


class Unanswered(Exception):
    """The request was sent, and no answer came: it may have had its effect."""


class Expected(NamedTuple):
    """A request that was sent."""

    correlation_id: int
    api_key: int
    version: int
    answered: asyncio.Future[Any]


class Exchange:
    """The bytes of one connection."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._frames = FrameSplitter()
        self._sent = 0

    def request(self, message: Message, version: int | None = None) -> tuple[int, int, int, bytes]:
        """Returns correlation id, API key, version and the frame to send."""
        api_key = cast(int, message.__schema__.api_key)
        version = version_of(message) if version is None else version
        self._sent += 1
        header = RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=self._sent,
            client_id=self._client_id,
        )
        parts: list[Any] = []
        encode_parts(header, request_header_version(api_key, version), parts)
        encode_parts(message, version, parts)
        return self._sent, api_key, version, frame(*parts)

    def feed(self, data: bytes, expected: deque[Expected]) -> list[tuple[Expected, Any]]:
        """Returns the responses that `data` completes, each with its request, which leaves `expected`."""
        found = []
        for whole in self._frames.feed(data):
            asked = expected.popleft()
            header_version = response_header_version(asked.api_key, asked.version)
            header, position = read(ResponseHeader, header_version, whole)
            assert header.correlation_id == asked.correlation_id, "responses come in the order of the requests"
            found.append((asked, decode(response_class(asked.api_key), asked.version, whole, position)))
        return found


class Wire(asyncio.Protocol):
    """A connection to one broker."""

    def __init__(self, server: str, client_id: str, login: Login | None = None) -> None:
        self._exchange = Exchange(client_id)
        self._login = login
        self._server = server
        self._renewed_at_s: float | None = None
        self._sending = asyncio.Lock()
        self._expected: deque[Expected] = deque()
        self._transport: asyncio.Transport | None = None
        self._is_lost = False

    @classmethod
    async def connect(cls, host: str, port: int, client_id: str, timeout_s: float, login: Login | None = None) -> Wire:
        """Raises NotSent."""
        wire = cls(f"{host}:{port}", client_id, login)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().create_connection(lambda: wire, host, port)
        except OSError as error:  # TimeoutError too
            raise NotSent(str(error) or "no connection in time") from error
        if login is not None:
            await wire.log_in(login)
        return wire

    @property
    def is_usable(self) -> bool:
        """Whether requests can be sent."""
        return not self._is_lost

    async def ask(self, request: Message, timeout_s: float, version: int | None = None) -> Any:
        """Sends a request, in another `version` than usual if it is given, and returns the response. Raises NotSent and
        Unanswered; without an answer in time the
        connection ends."""
        if self._login is None:
            return await self._answered(self._send(request, version), timeout_s)
        async with self._sending:
            if self._renewed_at_s is not None and asyncio.get_running_loop().time() >= self._renewed_at_s:
                await self.log_in(self._login, is_renewal=True)
            sent = self._send(request, version)
        return await self._answered(sent, timeout_s)

    async def exchange(self, request: Message, version: int) -> Any:
        """Asks at once, whether the connection has logged in or not. Raises NotSent and Unanswered."""
        assert version == VERSIONS[type(request)]
        return await self._answered(self._send(request), LOGIN_TIMEOUT_S)

    async def log_in(self, login: Login, *, is_renewal: bool = False) -> None:
        """Raises NotSent."""
        try:
            after_s = await login.log_in(self.exchange, self._server, is_renewal=is_renewal)
        except (LoginRefused, Unanswered) as error:
            self._end(str(error))
            raise NotSent(f"not logged in: {error}") from error
        except BaseException:
            self._end("the login was interrupted")
            raise
        self._renewed_at_s = None if after_s is None else asyncio.get_running_loop().time() + after_s

    def _send(self, request: Message, version: int | None = None) -> asyncio.Future[Any]:
        """Raises NotSent."""
        if self._is_lost or self._transport is None:
            raise NotSent("the connection is lost")
        correlation_id, api_key, sent_version, data = self._exchange.request(request, version)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._expected.append(Expected(correlation_id, api_key, sent_version, answered))
        self._transport.write(data)
        return answered

    async def _answered(self, answered: asyncio.Future[Any], timeout_s: float) -> Any:
        timer = asyncio.get_running_loop().call_later(timeout_s, self._end, "no answer in time")
        try:
            return await answered
        finally:
            timer.cancel()

    def end(self) -> None:
        """Ends the connection at once."""
        self._end("closed by the client")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        for asked, response in self._exchange.feed(data, self._expected):
            if not asked.answered.done():
                asked.answered.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._end(str(exc) if exc is not None else "closed by the broker")

    def _end(self, reason: str) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        if self._transport is not None:
            self._transport.abort()
        while self._expected:
            answered = self._expected.popleft().answered
            if not answered.done():
                answered.set_exception(Unanswered(reason))
