"""A round: one callback of the event loop in which requests arrive. A large request ends one and begins the next.

Requests are handled between `enter` and `leave`. `leave` completes the operations that they released and writes all
responses, once per connection.

In one turn of the event loop, all connections together take ALL_MS, or up to twice that, as no callback comes exactly
between two turns. The others wait, as do those that have used up a turn of their own: in a line in which addresses take
turns. The line has LINE_MS of each turn, so that it neither stops what has just arrived nor is stopped by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.fair_line import FairLine
from odradek.broker.requests.request_context import ConnectionInfo, Part, PendingResponse
from odradek.timer import Clock

Dispatch = Callable[[bytes, ConnectionInfo, int], "PendingResponse | list[Part] | None"]
"""Frame, connection, now_ms -> the encoded response, a parked one, or None for no response. Raises CloseConnection."""

ALL_MS = 30
LINE_MS = 10
PAUSE_MS = 1
"""The event loop was idle, or did something else, if no round was under way for longer."""
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
    event loop reads into, the list of connections with output to write, and the line of those that wait for a turn.
    `call_soon` is that of the event loop, from when the server binds its addresses.
    """

    __slots__ = (
        "_drain_completions",
        "_entered",
        "_flush_is_due",
        "_left_ms",
        "_line",
        "_turn_began_ms",
        "_turn_is_due",
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
        self._line: FairLine[Callable[[], object]] = FairLine()
        self._turn_began_ms = 0
        self._left_ms = 0
        self._turn_is_due = False

    def enter(self) -> int:
        """Starts a round and returns the time. Call it before handling requests."""
        self._entered = True
        now_ms = self.clock.now_ms()
        if now_ms - self._left_ms > PAUSE_MS:
            self._turn_began_ms = now_ms
        return now_ms

    def is_late(self, now_ms: int) -> bool:
        """Whether the connections have used up their time of this turn. A connection with more to handle calls `wait`.

        The event loop does not tell when a turn ends. Only a callback does, which costs a turn: not before LINE_MS.
        """
        took_ms = now_ms - self._turn_began_ms
        if took_ms >= LINE_MS:
            self._end_turn_soon()
        return took_ms >= ALL_MS

    def wait(self, host: str, callback: Callable[[], object]) -> None:
        """Calls back in a later turn, when it is the turn of this address."""
        self._line.add(host, callback)
        self._end_turn_soon()

    def _end_turn_soon(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_is_due = False
        self._turn_began_ms = self.clock.now_ms()
        try:
            for _ in range(len(self._line)):
                self._line.take()()
                if self.clock.now_ms() - self._turn_began_ms >= LINE_MS:
                    break
        finally:  # one that fails must not stop the others
            if self._line:
                self._end_turn_soon()

    def leave(self) -> None:
        """Ends a round: completes the operations that the requests released and writes all responses."""
        try:
            self._drain_completions()
        finally:
            self._entered = False
            self._flush()
            self._left_ms = self.clock.now_ms()

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
