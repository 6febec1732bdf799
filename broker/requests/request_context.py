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

from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.broker.requests.pending_response import Holds, PendingResponse

__all__ = [
    "ANONYMOUS",
    "CloseConnection",
    "ConnectionInfo",
    "FrameBounds",
    "Holds",
    "PendingResponse",
    "RequestContext",
    "undecodable",
]

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.broker.requests.endpoint import Endpoint
    from odradek.broker.security.sasl.authentication import Authentication

ANONYMOUS = "User:ANONYMOUS"


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
        self.client_host = client_host
        self.client_port = client_port
        self.number = number
        """The sequence number of the connection since the broker started."""
        self.principal = ANONYMOUS
        self.client_software: tuple[str, str] | None = None
        """Name and version as sent in ApiVersions v3 and above (KIP-511)."""
        self.shakes_hands = False
        """Whether a TLS handshake is under way."""
        self.throttle_ms = 0

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
    def connection_id(self) -> str:
        return self.connection.connection_id
