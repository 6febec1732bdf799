"""What a handler is told about a request, and how it answers one later.

A handler is a plain function `handle(request, context)`. It

  (a) returns a response: it is encoded at once and answered when its turn on the connection comes;
  (b) returns a `PendingResponse`: the request is parked. Whoever parked it completes it, once;
  (c) returns None: the request has no answer (Produce with acks=0);
  (d) raises `ProtocolError`: the dispatcher answers with the API's own error response;
  (e) raises `CloseConnection`: nothing is answered and the connection ends (as Kafka does for a failed acks=0 produce);
  (f) is a generator, where there may be very much to do: it yields between steps (broker/steps.py) and returns one of
      the others in the end. What fits one step is answered at once; the rest is done in turns, whoever is still there.
  (g) is an `async def`: it runs as a task of the broker's background, with (a), (c), (d) and (e) as its endings. It is
      not cancelled when the client goes away, so that a half-done change of metadata always ends.

A parked request does not stop later ones of its connection from being handled; only answers wait for their turn. Where
that would be wrong, the pending response says what it holds back.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.broker.network.endpoint import Endpoint
    from odradek.broker.server import Broker

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


class Holds(IntEnum):
    """Which later requests of the same connection wait until a parked one has been answered."""

    NOTHING = 0
    SAME_API = 1
    """Later requests of the same API: a parked fetch of a session holds the session's next fetch back (KIP-227)."""
    EVERYTHING = 2


class PendingResponse:
    """The answer to a parked request: settled once, by its owner (complete, fail) or the connection's end (abandon)."""

    __slots__ = ("_abandoned", "_failure", "_on_abandoned", "_on_settled", "_response", "_settled", "holds", "is_long")

    def __init__(self, *, holds: Holds = Holds.NOTHING, is_long: bool = False) -> None:
        """`is_long`: there is much to write in the answer."""
        self.holds = holds
        self.is_long = is_long
        self._settled = False
        self._abandoned = False
        self._response: Any = None
        self._failure: BaseException | None = None
        self._on_settled: Callable[[], None] | None = None
        self._on_abandoned: Callable[[], object] | None = None

    @property
    def settled(self) -> bool:
        return self._settled

    def complete(self, response: Any) -> bool:
        """Answers with this response; None answers nothing. False, and no effect, when it was settled before."""
        return self._settle(response, None)

    def fail(self, failure: BaseException) -> bool:
        """As if the handler had raised it: cases (d) and (e); anything else is answered with UNKNOWN_SERVER_ERROR."""
        return self._settle(None, failure)

    def when_abandoned(self, callback: Callable[[], object]) -> None:
        """Called if the connection ends first (at once if it has): take the operation out of its purgatory here."""
        if self._abandoned:
            callback()
        elif not self._settled:
            self._on_abandoned = callback

    def follow(self, other: PendingResponse) -> None:
        """Ends as the other one does."""

        def settled() -> None:
            self._settle(other._response, other._failure)

        self.when_abandoned(other.abandon)
        other.when_settled(settled)

    # --- the dispatcher's and the connection's side -------------------------------------------------------------

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Called when an answer or a failure is there (at once if it is), never after abandon()."""
        if not self._settled:
            self._on_settled = callback
        elif not self._abandoned:
            callback()

    def result(self) -> Any:
        """The response; raises the failure."""
        if self._failure is not None:
            raise self._failure
        return self._response

    def abandon(self) -> None:
        """Nobody waits for the answer any more."""
        if self._settled:
            return
        self._settled = self._abandoned = True
        self._on_settled = None
        callback, self._on_abandoned = self._on_abandoned, None
        if callback is not None:
            callback()

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
        return True


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
    """One request: its header, when it came, and the connection and broker it came to."""

    __slots__ = ("api_key", "api_version", "broker", "client_id", "connection", "correlation_id", "received_ms")

    def __init__(
        self,
        broker: Broker,
        connection: ConnectionInfo,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        received_ms: int,
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.received_ms = received_ms
        """Monotonic, of broker.clock."""

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
