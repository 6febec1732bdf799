"""Bounds the unanswered bytes that all connections together have sent.

Source: Kafka's `queued.max.request.bytes` and `SimpleMemoryPool`: when the memory is used up, nothing more is read.

What counts: (a) the beginning of a frame, with the buffer for its rest; (b) complete frames that wait for their turn on
a connection; (c) a large request that is parked or processed in steps.

Above the limit, a connection that sends more of a frame is not read, except the one whose frame began first: unfinished
frames are completed one after the other. The others resume when memory is released, and at every check.

A check (`overdue`), twice a second, ends connections while the total is above the limit: first those that are in the
middle of a frame and have sent nothing since the last check; above twice the limit then any, the oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar


class Sender(Protocol):
    """A connection."""

    @property
    def is_awaited(self) -> bool:
        """Whether the rest of a frame is missing and the connection is read."""

    def read_on(self) -> None:
        """Resumes reading: memory may be available."""


S = TypeVar("S", bound=Sender)


class QueuedBytes(Generic[S]):
    def __init__(self, limit: Callable[[], int]) -> None:
        """`limit` returns bytes; its value may change."""
        self.total = 0
        self._limit = limit
        self._held: dict[S, int] = {}
        """Bytes by connection, in the order in which their frames began."""
        self._waiting: dict[S, None] = {}
        self._active: set[S] = set()
        """The connections that have sent something since the last check."""

    @property
    def is_empty(self) -> bool:
        """Whether nobody holds anything, so that a check does nothing."""
        return not self._held and not self._waiting

    @property
    def is_too_much(self) -> bool:
        return self.total > self._limit()

    def hold(self, sender: S, size: int) -> bool:
        """Records that `sender` now holds `size` bytes. Returns False if it must wait for `read_on`."""
        self.total += size - self._held.get(sender, 0)
        self._held[sender] = size
        self._active.add(sender)
        if not self.is_too_much or next(iter(self._held)) is sender:
            return True
        self._waiting[sender] = None
        return False

    def release(self, sender: S) -> None:
        """Records that `sender` holds nothing. Whatever it holds next is the newest."""
        self.total -= self._held.pop(sender, 0)
        self._waiting.pop(sender, None)
        self._active.discard(sender)
        if self._waiting:
            if not self.is_too_much:
                self._resume_all()
            elif (first := next(iter(self._held))) in self._waiting:
                del self._waiting[first]
                self._resume(first)

    def overdue(self) -> Iterator[tuple[S, int]]:
        """Yields the connections to end, each with the bytes that it holds, then lets the others resume."""
        for sender in self._in_ending_order() if self.is_too_much else ():
            if not self.is_too_much:
                break
            yield sender, self._held[sender]
            self.release(sender)
        self._active.clear()
        self._resume_all()

    def _in_ending_order(self) -> list[S]:
        silent = {
            sender: size for sender, size in self._held.items() if sender not in self._active and sender.is_awaited
        }
        if self.total - sum(silent.values()) <= 2 * self._limit():
            return list(silent)
        return [*silent, *(sender for sender in self._held if sender not in silent)]

    def _resume_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for sender in waiting:
            self._resume(sender)

    def _resume(self, sender: S) -> None:
        """Resumes a connection, which then has until the check after the next one to send something."""
        self._active.add(sender)
        sender.read_on()
