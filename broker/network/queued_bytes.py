"""Bounds the unanswered bytes that connections have sent together, so that nobody can use up what others need:

    clients that                                                    share
    have not logged in yet, on a listener with SASL or with TLS     odradek.max.queued.bytes.before.login
    have logged in: by SASL, or by a certificate                    queued.max.request.bytes
    need not log in                                                 queued.max.request.bytes, once more

A client that renews its login (KIP-368) has logged in.

Source: Kafka's `queued.max.request.bytes` and `SimpleMemoryPool`: when the memory is used up, nothing more is read.

What counts: (a) the beginning of a frame, with the buffer for its rest; (b) complete frames that wait for their turn on
a connection; (c) a large request that is parked or processed in steps.

Above the limit, a connection that sends more of a frame waits: it is not read until memory is released, or until the
next check. Exceptions:

    (A) The connection whose frame began first is read: unfinished frames are completed one after the other.
    (B) Small frames are read, and complete ones are handled.
    (C) An address that holds less than a quarter of what the greediest address holds is read.

Above twice the limit, connections end at once: those of the greediest address, its oldest unfinished frame first.

A check, twice a second, ends connections while the total is above the limit: those that are in the middle of a frame,
are read, and hold no more than at the last check; of the greediest address first, and there the oldest. Those of C
stay.

So an address that fills the memory with frames that it does not finish delays no other. Its own large frames wait for
each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.shares import Share, Shares
from odradek.broker.requests.request_context import ANONYMOUS, ConnectionInfo

MODEST_PART = 4
"""See C."""
MOST_TIMES_LIMIT = 2


class Sender(Protocol):
    """A connection."""

    @property
    def client_host(self) -> str:
        """The address of the client."""

    @property
    def is_awaited(self) -> bool:
        """Whether the rest of a frame is missing and the connection is read."""

    def read_on(self) -> None:
        """Resumes reading: memory may be available."""


S = TypeVar("S", bound=Sender)


class QueuedBytes(Generic[S]):
    """One of the three bounds."""

    def __init__(self, limit: Callable[[], int], end: Callable[[S, int], None]) -> None:
        """`limit` returns bytes; its value may change. `end` ends a connection, which holds this many bytes."""
        self._limit = limit
        self._end = end
        self._held: Shares[S] = Shares()
        self._waiting: dict[S, None] = {}
        self._active: set[S] = set()
        """The connections that hold more than at the last check, or were resumed by it."""

    @property
    def total(self) -> int:
        return self._held.total

    @property
    def is_empty(self) -> bool:
        """Whether nobody holds anything, so that a check does nothing."""
        return not self._held and not self._waiting

    @property
    def is_too_much(self) -> bool:
        return self._held.total > self._limit()

    def hold(self, sender: S, size: int, *, is_small: bool = False) -> bool:
        """Records that `sender` now holds `size` bytes, of a small frame (B) or not. Returns False if it must wait for
        `read_on`, or has been ended.
        """
        held = self._held
        if held.use(sender, sender.client_host, size) > 0:
            self._active.add(sender)
        if held.total <= self._limit():
            return True
        while held.total > MOST_TIMES_LIMIT * self._limit():
            self._end_now(self._next_of(held.greediest))
        if sender not in held:
            return False
        if is_small or self._may_go_on(sender):
            return True
        self._waiting[sender] = None
        return False

    def release(self, sender: S) -> None:
        """Records that `sender` holds nothing. Whatever it holds next is the newest."""
        self._forget(sender)
        if self._waiting:
            if not self.is_too_much:
                self._resume_all()
            elif (first := self._held.first) in self._waiting:
                del self._waiting[first]
                self._resume(first)

    def check(self) -> None:
        """Ends connections that keep others from being served, then lets the others resume."""
        if self.is_too_much:
            self._end_silent()
        self._active.clear()
        self._resume_all()

    def _may_go_on(self, sender: S) -> bool:
        """Whether A or C holds."""
        return self._held.first is sender or self._is_modest(sender)

    def _is_modest(self, sender: S) -> bool:
        """Whether C holds."""
        return MODEST_PART * self._held.of(sender).total < self._held.greediest.total

    def _next_of(self, share: Share[S]) -> S:
        """Returns the connection of an address that ends next. Complete requests end only if there is nothing else."""
        sizes = share.sizes
        return next((sender for sender in sizes if sender in self._waiting or sender.is_awaited), next(iter(sizes)))

    def _end_silent(self) -> None:
        silent: Shares[S] = Shares()
        for sender in self._held:
            if sender not in self._active and sender.is_awaited and not self._is_modest(sender):
                silent.use(sender, sender.client_host, self._held.size_of(sender))
        for sender in silent.drained():
            if not self.is_too_much:
                break
            self._end_now(sender)

    def _end_now(self, sender: S) -> None:
        size = self._held.size_of(sender)
        self._forget(sender)
        self._end(sender, size)

    def _forget(self, sender: S) -> None:
        self._held.remove(sender)
        self._waiting.pop(sender, None)
        self._active.discard(sender)

    def _resume_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for sender in waiting:
            self._resume(sender)

    def _resume(self, sender: S) -> None:
        """Resumes a connection, which then has until the check after the next one to send something."""
        self._active.add(sender)
        sender.read_on()


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
        """Ends connections above the bounds, see above. Call it twice a second."""
        for queued in self._all:
            queued.check()
