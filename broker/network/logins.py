"""The connections whose clients have not logged in yet: strangers, who must not take what users need.

    (A) A login ends with its connection if it takes longer than odradek.login.timeout.ms, from the accept on.
    (B) If there may be no more connections, strangers make room for a new one: the address that has most of them ends
        its oldest.

A stranger is a client in a TLS handshake, and a client that must log in by SASL and has not. Listeners without either
have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from odradek.broker.network.shares import Shares
from odradek.broker.requests.request_context import ConnectionInfo


class Connecting(Protocol):
    """A connection."""

    info: ConnectionInfo


C = TypeVar("C", bound=Connecting)


class Logins(Generic[C]):
    def __init__(self, timeout_ms: Callable[[], int]) -> None:
        """`timeout_ms` may change; for each connection the one counts that holds when it begins."""
        self._timeout_ms = timeout_ms
        self._strangers: Shares[C] = Shares()
        """Some may have logged in since the last look."""
        self._until_ms: dict[C, int] = {}
        """The oldest first."""

    def __len__(self) -> int:
        return len(self._until_ms)

    def begin(self, connection: C, now_ms: int) -> None:
        """A client has connected."""
        if not connection.info.has_logged_in:
            self._strangers.use(connection, connection.info.client_host, 1)
            self._until_ms[connection] = now_ms + self._timeout_ms()

    def end(self, connection: C) -> None:
        """The connection has ended, or its client has logged in."""
        self._strangers.remove(connection)
        self._until_ms.pop(connection, None)

    def overdue(self, now_ms: int) -> list[C]:
        """Those to be ended now (A). Forgets them, and those that have logged in."""
        for connection in [each for each in self._until_ms if each.info.has_logged_in]:
            self.end(connection)
        found = [connection for connection, until_ms in self._until_ms.items() if until_ms <= now_ms]
        for connection in found:
            self.end(connection)
        return found

    def give_way(self) -> C | None:
        """Returns the one to be ended for another connection (B), and forgets it. None if there is no stranger."""
        for oldest in self._strangers.drained():
            self.end(oldest)
            if not oldest.info.has_logged_in:
                return oldest
        return None
