"""Bounds the unanswered bytes that connections have sent together.

Source: Kafka's `queued.max.request.bytes` and `SimpleMemoryPool`: when the memory is used up, nothing more is read.

What counts: (a) the beginning of a frame, with the buffer for its rest; (b) complete frames that wait for their turn on
a connection; (c) a large request that is parked or processed in steps.

Above the limit, a connection that sends more of a frame waits: it is not read until memory is released, or until the
next check. Exceptions:

    (A) The connection whose frame began first is read: unfinished frames are completed one after the other.
    (B) Small frames are read.
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

from odradek.broker.network.shares import Share, Shares

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
