"""What a handler is told about a request, and how it answers one later.

A handler is a plain function `handle(request, context)`. It

  (a) returns a response: it is encoded at once and answered when its turn on the connection comes;
  (b) returns a `PendingResponse`: the request is parked. Whoever parked it completes it, once;
  (c) returns None: the request has no answer (Produce with acks=0);
  (d) raises `ProtocolError`: the dispatcher answers with the API's own error response;
  (e) raises `CloseConnection`: nothing is answered and the connection ends (as Kafka does for a failed acks=0 produce);
  (f) is a generator, where there may be very much to do: it yields between steps (background/stepwise.py) and returns
      one of the others in the end. What fits one step is answered at once; the rest is done in turns, whoever is still
      there.
  (g) is an `async def`: it runs as a task of the broker's background, with (a), (c), (d) and (e) as its endings. It is
      not cancelled when the client goes away, so that a half-done change of metadata always ends.

A parked request does not stop later ones of its connection from being handled; only answers wait for their turn. Where
that would be wrong, the pending response says what it holds back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.broker.requests.pending_response import Holds, PendingResponse

__all__ = [
    "ANONYMOUS",
    "CloseConnection",
    "ConnectionInfo",
    "Holds",
    "PendingResponse",
    "RequestContext",
    "undecodable",
]

if TYPE_CHECKING:
    from odradek.broker.requests.endpoint import Endpoint

ANONYMOUS = "User:ANONYMOUS"


class CloseConnection(Exception):
    """The connection ends without an answer. The reason (a short phrase) and the details go into one log line."""

    def __init__(self, reason: str, **details: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.details = details


def undecodable(api_key: int, api_version: int, error: Exception) -> CloseConnection:
    """A request that is none."""
    return CloseConnection("a request does not decode", api_key=api_key, api_version=api_version, error=str(error))


class ConnectionInfo:
    """What all requests of one connection share. `principal` changes when the client authenticates."""

    __slots__ = ("client_host", "client_port", "client_software", "listener", "number", "principal", "throttle_ms")

    def __init__(self, listener: Endpoint, client_host: str = "", client_port: int = 0, number: int = 0) -> None:
        self.listener = listener
        self.client_host = client_host
        self.client_port = client_port
        self.number = number
        """Counts the broker's connections from its start."""
        self.principal = ANONYMOUS
        self.client_software: tuple[str, str] | None = None
        """Name and version as ApiVersions v3 and above tell them (KIP-511)."""
        self.throttle_ms = 0

    @property
    def connection_id(self) -> str:
        """LOCAL-REMOTE-NUMBER, as Kafka writes it."""
        listener = self.listener
        return f"{listener.host}:{listener.port}-{self.client_host}:{self.client_port}-{self.number}"


class RequestContext:
    """One request: its header, when it came, and the connection that it came on."""

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
        """By the broker's clock, which is monotonic."""

    def throttle(self, throttle_ms: int) -> None:
        """The answer goes out at once; then the connection is muted that long (KIP-219)."""
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
