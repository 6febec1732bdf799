"""A round: one callback of the event loop in which requests arrive. A large request ends one and begins the next.

Requests are handled between `enter` and `leave`. `leave` completes the operations that they released and writes all
responses, once per connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.requests.request_context import ConnectionInfo, Part, PendingResponse
from odradek.timer import Clock

Dispatch = Callable[[bytes, ConnectionInfo, int], "PendingResponse | list[Part] | None"]
"""Frame, connection, now_ms -> the encoded response, a parked one, or None for no response. Raises CloseConnection."""

SCRATCH_BYTES = 256 * 1024
"""Must hold a frame of LARGE_FRAME_BYTES with its length prefix."""


class Flushable:
    """Something with output to write at the end of a round: a connection."""

    __slots__ = ()

    def flush(self) -> None:
        """Writes the output."""
        raise NotImplementedError


class NetworkCounters:
    __slots__ = ("accepted", "bytes_in", "bytes_out", "closed", "expired", "refused")

    def __init__(self) -> None:
        self.accepted: int = 0
        self.closed: int = 0
        self.expired: int = 0
        """Closed after connections.max.idle.ms."""
        self.refused: int = 0
        """Closed because there were too many connections."""
        self.bytes_in: int = 0
        self.bytes_out: int = 0


class Rounds:
    """What the connections of a broker share in each round: the clock, the counters, the limits, the buffer that the
    event loop reads into, and the list of connections with output to write. `call_soon` is that of the event loop,
    from when the server binds its addresses.
    """

    __slots__ = (
        "_drain_completions",
        "_entered",
        "_flush_is_due",
        "_unflushed",
        "call_soon",
        "clock",
        "counters",
        "dispatch",
        "limits",
        "scratch",
    )

    call_soon: Callable[..., Any]

    def __init__(
        self, clock: Clock, dispatch: Dispatch, drain_completions: Callable[[], object], limits: ConnectionLimits
    ) -> None:
        """`drain_completions` completes the operations that the handled requests released. `limits` may be replaced."""
        self.clock = clock
        self.dispatch = dispatch
        """That of every new connection."""
        self.limits = limits
        self.counters = NetworkCounters()
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._drain_completions = drain_completions
        self._unflushed: list[Flushable] = []
        self._entered = False
        self._flush_is_due = False

    def enter(self) -> int:
        """Starts a round and returns the time. Call it before handling requests."""
        self._entered = True
        return self.clock.now_ms()

    def leave(self) -> None:
        """Ends a round: completes the operations that the requests released and writes all responses."""
        try:
            self._drain_completions()
        finally:
            self._entered = False
            self._flush()

    def to_be_flushed(self, connection: Flushable) -> None:
        """Flushes the connection at the end of the round, or soon if no round is under way."""
        self._unflushed.append(connection)
        if not self._entered and not self._flush_is_due:
            self._flush_is_due = True
            self.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._flush_is_due = False
        self._flush()

    def _flush(self) -> None:
        while self._unflushed:
            unflushed = self._unflushed
            self._unflushed = []
            for connection in unflushed:
                connection.flush()
