"""What a handler knows about a request, and the ways in which it can respond.

A handler is a function `handle(request, context)`. It ends in one of five ways. It

  (a) returns a response, which is encoded at once and sent when its turn on the connection comes;
  (b) returns a `PendingResponse`: the request is parked. Whatever parked it must complete it, once;
  (c) returns None: the request has no response (Produce with acks=0);
  (d) raises `ProtocolError`: the dispatcher sends the API's own error response;
  (e) raises `CloseConnection`: the connection ends without a response (as in Kafka for a failed acks=0 produce), or
      with one if the exception has it (a failed login).

It is a plain function, unless its work may be long or has to wait. Then it is

  (f) a generator, if the work may be long: it yields between steps (background/stepwise.py). If one step is enough, the
      response is sent at once. Otherwise the steps run in turns, to the end even if the client disconnects.
  (g) an `async def`: it runs as a task of the broker's background and does not end with (b). It is not cancelled when
      the client disconnects, so that a metadata change is never left half done.

What (f) and (g) cost a small request is in docs/decisions/twins.md.

A parked request does not keep later requests of its connection from being handled; only their responses wait. Where
later requests must wait as well, `PendingResponse.holds` says which.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from mypy_extensions import mypyc_attr

from odradek.broker.requests.endpoint import Endpoint, java_host
from odradek.storage.file_slice import SLICE_BYTES, FileSlice
from odradek.storage.files import Buffer

if TYPE_CHECKING:
    from odradek.broker.security.sasl.authentication import Authentication

ANONYMOUS = "User:ANONYMOUS"

Part = Buffer | FileSlice
"""A piece of an encoded response."""
JOIN_PART_BYTES = 1024
"""Parts with a smaller average size are joined, however many: the kernel accepts a million parts at most."""


def size_of(parts: list[Part]) -> int:
    """Returns the size of the parts in bytes."""
    size = 0
    for part in parts:
        size += len(part)
    return size


def in_memory(parts: list[Part], size: int) -> list[Buffer] | None:
    """Returns the same parts, of `size` bytes together, or None if some are slices of files."""
    if size >= SLICE_BYTES and any(isinstance(part, FileSlice) for part in parts):
        return None
    return cast("list[Buffer]", parts)


@mypyc_attr(native_class=False)
class CloseConnection(Exception):
    """Ends the connection. The reason (a short phrase) and the details are logged in one line."""

    def __init__(self, reason: str, **details: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.details = details
        self.response: Any = None
        """The response that is sent before the end, or None."""
        self.answer: list[Any] = []
        """The encoded response; the dispatcher sets it."""
        self.delay_ms = 0
        """How long the response, and the end, wait at least."""

    def after(self, response: Any, delay_ms: int) -> CloseConnection:
        """Sets a response (None: there is none) and a delay. Returns the exception."""
        self.response = response
        self.delay_ms = delay_ms
        return self


def undecodable(api_key: int, api_version: int, error: Exception) -> CloseConnection:
    """Returns the exception for bytes that cannot be decoded as a request."""
    return CloseConnection("request does not decode", api_key=api_key, api_version=api_version, error=str(error))


class Holds(IntEnum):
    """Which later requests of the same connection wait until a parked request has been answered."""

    NOTHING = 0
    SAME_API = 1
    """Later requests of the same API: a parked fetch of a session holds the session's next fetch back (KIP-227)."""
    EVERYTHING = 2


class PendingResponse:
    """The response to a parked request (b), and its place among the responses of its connection.

    It is settled once: by its owner (`complete`, `fail`) or by the connection (`abandon`). Once its response is encoded
    too, it is `ready` to be sent: at once, or, if it `is_long`, after some steps.
    """

    __slots__ = (
        "_abandoned",
        "_failure",
        "_finish",
        "_on_abandoned",
        "_on_ready",
        "_on_settled",
        "_response",
        "_settled",
        "api_key",
        "closing",
        "holds",
        "is_long",
        "parts",
        "ready",
        "size",
    )

    def __init__(self, *, holds: Holds = Holds.NOTHING, is_long: bool = False) -> None:
        """`is_long`: the response is large and must be encoded in steps."""
        self.holds = holds
        self.is_long = is_long
        self._settled = False
        self._abandoned = False
        self._response: Any = None
        self._failure: BaseException | None = None
        self._on_settled: Callable[[], None] | None = None
        self._on_abandoned: Callable[[], object] | None = None
        self.api_key = 0
        self.size = 0
        """The size of the request in bytes; once the connection has been told that it is ready, of the response."""
        self.ready = False
        self.parts: list[Part] | None = None
        """The encoded response once `ready`; None if there is none."""
        self.closing: CloseConnection | None = None
        """If set once `ready`, the connection ends instead."""
        self._finish: Callable[[PendingResponse], list[Part] | None] | None = None
        self._on_ready: Callable[[int, int], None] | None = None

    # --- for the owner ------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        return self._settled

    def complete(self, response: Any) -> bool:
        """Sets the response; None sends none. Returns False, without any effect, if already settled."""
        return self._settle(response, None)

    def fail(self, failure: BaseException) -> bool:
        """Fails as if the handler had raised: cases (d) and (e); any other exception becomes UNKNOWN_SERVER_ERROR."""
        return self._settle(None, failure)

    def when_abandoned(self, callback: Callable[[], object]) -> None:
        """Calls `callback`, which must leave the purgatory, if the connection ends first (at once if it has)."""
        if self._abandoned:
            callback()
        elif not self._settled:
            self._on_abandoned = callback

    def follow(self, other: PendingResponse) -> None:
        """Settles with the response or failure of `other`."""

        def settled() -> None:
            self._settle(other._response, other._failure)

        self.when_abandoned(other.abandon)
        other.when_settled(settled)

    # --- for the dispatcher -------------------------------------------------------------------------------------

    def park(
        self, api_key: int, size: int, finish: Callable[[PendingResponse], list[Part] | None] | None = None
    ) -> None:
        """The request, of `size` bytes, waits. `finish` returns the encoded response once this is settled, or raises
        CloseConnection; without it, the caller calls `encoded` in the end.
        """
        self.api_key = api_key
        self.size = size
        self._finish = finish
        if self._settled and not self._abandoned:
            self._encode()

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Calls `callback` when a response or failure is set (at once if it is), never after abandon()."""
        if not self._settled:
            self._on_settled = callback
        elif not self._abandoned:
            callback()

    def result(self) -> Any:
        """Returns the response, or raises the failure."""
        if self._failure is not None:
            raise self._failure
        return self._response

    def encoded(self, parts: list[Part] | None, closing: CloseConnection | None = None) -> None:
        """The response is ready to be sent, or the connection ends instead."""
        self._settled = True
        self._on_abandoned = None
        self.parts = parts
        self.closing = closing
        self.ready = True
        if self._on_ready is not None:
            self._tell()

    # --- for the connection -------------------------------------------------------------------------------------

    def when_ready(self, callback: Callable[[int, int], None]) -> None:
        """Calls callback(request bytes, response bytes) when the response is ready, at once if it already is."""
        self._on_ready = callback
        if self.ready:
            self._tell()

    def holds_back(self, api_key: int) -> bool:
        """Whether a later request of this API must wait for this one."""
        holds = self.holds
        if holds == Holds.NOTHING or self.ready:
            return False
        return holds == Holds.EVERYTHING or api_key == self.api_key

    def abandon(self) -> None:
        """Settles without a response: the connection has ended."""
        self._on_ready = None
        if self._settled:
            return
        self._settled = self._abandoned = True
        self._on_settled = None
        callback, self._on_abandoned = self._on_abandoned, None
        if callback is not None:
            callback()

    # --- from one to the other ----------------------------------------------------------------------------------

    def _settle(self, response: Any, failure: BaseException | None) -> bool:
        if self._settled:
            return False
        self._settled = True
        self._response = response
        self._failure = failure
        self._on_abandoned = None
        callback, self._on_settled = self._on_settled, None
        if callback is not None:
            callback()
        self._encode()
        return True

    def _encode(self) -> None:
        finish = self._finish
        if finish is None:
            return
        parts: list[Part] | None = None
        closing: CloseConnection | None = None
        try:
            parts = finish(self)
        except CloseConnection as end:
            closing = end
        self.encoded(parts, closing)

    def _tell(self) -> None:
        callback = self._on_ready
        assert callback is not None
        request_bytes = self.size
        self.size = 0 if self.parts is None else size_of(self.parts)
        callback(request_bytes, self.size)


class FrameBounds(NamedTuple):
    """How many bytes a frame may have."""

    shortest: int
    longest: int


class ConnectionInfo:
    """What all requests of a connection share. `principal` and `dispatch` change when the client authenticates."""

    __slots__ = (
        "authentication",
        "client_host",
        "client_port",
        "client_software",
        "dispatch",
        "frame_bounds",
        "java_host",
        "listener",
        "number",
        "principal",
        "shakes_hands",
        "throttle_ms",
    )

    dispatch: Callable[[bytes, ConnectionInfo, int], Any]
    """Handles a request as `Dispatch` says (network/rounds.py). The server sets it when it accepts the connection."""

    def __init__(self, listener: Endpoint, client_host: str = "", client_port: int = 0, number: int = 0) -> None:
        self.listener = listener
        self.frame_bounds: FrameBounds | None = None
        """None for those of the broker's limits."""
        self.authentication: Authentication | None = None
        """The login that is under way, None before and after it and on listeners without SASL."""
        self.comes_from(client_host, client_port)
        self.number = number
        """The sequence number of the connection since the broker started."""
        self.principal = ANONYMOUS
        self.client_software: tuple[str, str] | None = None
        """Name and version as sent in ApiVersions v3 and above (KIP-511)."""
        self.shakes_hands = False
        """Whether a TLS handshake is under way."""
        self.throttle_ms = 0

    def comes_from(self, client_host: str, client_port: int) -> None:
        """`java_host` is the address as Java writes it: ACLs and the members of groups have it so."""
        self.client_host = client_host
        self.client_port = client_port
        self.java_host = java_host(client_host)

    @property
    def has_logged_in(self) -> bool:
        """Whether the client has done all that its listener asks, which may be nothing. It stays so while the client
        renews its login."""
        login = self.authentication
        return not self.shakes_hands and (login is None or login.before is not None)

    @property
    def connection_id(self) -> str:
        """LOCAL-REMOTE-NUMBER, in Kafka's format."""
        listener = self.listener
        return f"{listener.host}:{listener.port}-{self.client_host}:{self.client_port}-{self.number}"


class RequestContext:
    """A request's header, its time of arrival, and its connection."""

    __slots__ = ("api_key", "api_version", "client_id", "connection", "correlation_id", "received_ms")

    def __init__(
        self,
        connection: ConnectionInfo,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        received_ms: int,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.received_ms = received_ms
        """The time of arrival by the broker's monotonic clock."""

    def throttle(self, throttle_ms: int) -> None:
        """Mutes the connection for `throttle_ms` after the response has been sent, which happens at once (KIP-219)."""
        self.connection.throttle_ms = throttle_ms

    @property
    def listener(self) -> Endpoint:
        """name, host, port, advertised_host, advertised_port, security_protocol."""
        return self.connection.listener

    @property
    def principal(self) -> str:
        return self.connection.principal

    @property
    def client_host(self) -> str:
        return self.connection.client_host

    @property
    def java_host(self) -> str:
        """See `ConnectionInfo.comes_from`."""
        return self.connection.java_host

    @property
    def connection_id(self) -> str:
        return self.connection.connection_id
