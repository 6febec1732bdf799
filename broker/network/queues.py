"""Bounds for what clients have begun to send, so that nobody can use up what others need:

    clients that                                                    share
    have not logged in yet, on a listener with SASL or with TLS     odradek.max.queued.bytes.before.login
    have logged in: by SASL, or by a certificate                    queued.max.request.bytes
    need not log in                                                 queued.max.request.bytes, once more

A client that renews its login (KIP-368) has logged in. queued_bytes.py says what happens above each bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.queued_bytes import QueuedBytes, S
from odradek.broker.requests.request_context import ANONYMOUS, ConnectionInfo


class Queues(Generic[S]):
    def __init__(self, limits: Callable[[], ConnectionLimits], end: Callable[[S, int], None]) -> None:
        """`limits` returns those that hold now. `end` ends a connection, which holds this many bytes."""

        def most() -> int:
            return limits().max_queued_bytes

        self.before_login: QueuedBytes[S] = QueuedBytes(lambda: limits().max_queued_bytes_before_login, end)
        self.logged_in: QueuedBytes[S] = QueuedBytes(most, end)
        self.anonymous: QueuedBytes[S] = QueuedBytes(most, end)
        self._all = (self.before_login, self.logged_in, self.anonymous)

    def of(self, info: ConnectionInfo) -> QueuedBytes[S]:
        """Returns where the bytes count that a client sends now."""
        if not info.has_logged_in:
            return self.before_login
        return self.anonymous if info.principal == ANONYMOUS else self.logged_in

    @property
    def is_empty(self) -> bool:
        """Whether nobody holds anything, so that a check does nothing."""
        return all(queued.is_empty for queued in self._all)

    def release(self, sender: S) -> None:
        """The connection has ended."""
        for queued in self._all:
            queued.release(sender)

    def check(self) -> None:
        """See queued_bytes.py."""
        for queued in self._all:
            queued.check()
