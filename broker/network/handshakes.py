"""What the TLS connections of a broker share: the buffer that the event loop reads into, and the handshakes under way.

A handshake takes 0.3 to 0.5 ms of the event loop, which anybody who can connect can ask for. So they take turns:

    (A) All steps of handshakes run in turns of the loop of their own, TURN_MS each. There, too, addresses take turns
        (fair_line.py).
    (B) From one address only so many may be under way (odradek.max.handshakes.per.ip). Further connections are closed.
    (C) A handshake that has not ended after LONGEST_MS ends with its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.fair_line import FairLine
from odradek.broker.requests.request_context import ConnectionInfo
from odradek.timer import Clock

if TYPE_CHECKING:
    from odradek.broker.network.connection import Connection

TURN_MS = 3
LONGEST_MS = 10_000
SCRATCH_BYTES = 64 * 1024


class Server(Protocol):
    """The part of the socket server that TLS connections use."""

    @property
    def limits(self) -> ConnectionLimits: ...

    def refuse(self, connection: Connection, event: str, **details: Any) -> None: ...

    def warn(self, event: str, info: ConnectionInfo, **details: Any) -> None: ...

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...


class HandshakingTransport(Protocol):
    """TLS of one connection."""

    @property
    def connection(self) -> Connection: ...

    def shake_hands(self) -> None:
        """Takes the next step of the handshake, if it is still under way."""


class _Pending:
    __slots__ = ("give_up_ms", "host")

    def __init__(self, host: str, give_up_ms: int) -> None:
        self.host = host
        self.give_up_ms = give_up_ms


class Handshakes:
    def __init__(self, server: Server, clock: Clock) -> None:
        self.server = server
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        """What is read from a socket is here until `buffer_updated` returns."""
        self.completed = 0
        self.failed = 0
        self._clock = clock
        self._pending: dict[HandshakingTransport, _Pending] = {}
        """The oldest first."""
        self._by_address: dict[str, int] = {}
        self._ready: FairLine[HandshakingTransport] = FairLine()
        self._is_due = False

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._pending)

    def begin(self, transport: HandshakingTransport, host: str) -> bool:
        """Returns False if too many handshakes with this address are under way (B)."""
        already = self._by_address.get(host, 0)
        if already >= self.server.limits.max_handshakes_per_ip:
            return False
        self._by_address[host] = already + 1
        self._pending[transport] = _Pending(host, self._clock.now_ms() + LONGEST_MS)
        return True

    def end(self, transport: HandshakingTransport) -> None:
        """The handshake is complete or has failed. Further calls have no effect."""
        pending = self._pending.pop(transport, None)
        if pending is None:
            return
        left = self._by_address[pending.host] - 1
        if left:
            self._by_address[pending.host] = left
        else:
            del self._by_address[pending.host]

    def step_soon(self, transport: HandshakingTransport, host: str) -> None:
        """Calls the transport's `shake_hands` when it is its turn (A)."""
        self._ready.add(host, transport)
        if not self._is_due:
            self._is_due = True
            self.server.call_soon(self._turn)

    def overdue(self) -> list[HandshakingTransport]:
        """Those to be ended now (C)."""
        now_ms = self._clock.now_ms()
        found: list[HandshakingTransport] = []
        for transport, pending in self._pending.items():
            if pending.give_up_ms > now_ms:
                break
            found.append(transport)
        return found

    def _turn(self) -> None:
        self._is_due = False
        begun_ms = self._clock.now_ms()
        try:
            while self._ready and self._clock.now_ms() - begun_ms < TURN_MS:
                self._ready.take().shake_hands()
        finally:  # one that fails must not stop the others
            if self._ready and not self._is_due:
                self._is_due = True
                self.server.call_soon(self._turn)
