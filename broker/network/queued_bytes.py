"""What connections have sent and have had no answer for, bounded for all of them together.

Source: Kafka's `queued.max.request.bytes` and `SimpleMemoryPool`: when the memory is used up, no more is read.

What counts. (a) The beginning of a frame, with the buffer that waits for its rest. (b) Whole frames that wait for their
turn on a connection. (c) A large request that is parked or worked at in steps.

Above the limit a connection that sends more of a frame is not read, except the one whose frame began first: frames that
come on are finished one after the other. The others go on when memory is released, and at every look.

A look, twice a second, ends connections while there is still too much: those that are in the middle of a frame and have
sent nothing since the last look; above twice the limit any, the one that began first before the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar


class Sender(Protocol):
    """A connection."""

    @property
    def is_awaited(self) -> bool:
        """Whether the rest of a frame is missing and would be read."""

    def read_on(self) -> None:
        """There may be memory for what comes next."""


S = TypeVar("S", bound=Sender)


class QueuedBytes(Generic[S]):
    def __init__(self, limit: Callable[[], int]) -> None:
        """`limit` in bytes; it may change."""
        self.total = 0
        self._limit = limit
        self._held: dict[S, int] = {}
        """By connection, the one that began first before the others."""
        self._waiting: dict[S, None] = {}
        self._active: set[S] = set()
        """Those that have sent something since the last look."""

    @property
    def is_too_much(self) -> bool:
        return self.total > self._limit()

    def hold(self, sender: S, size: int) -> bool:
        """From now on `sender` holds `size` bytes. False: it must wait for `read_on`."""
        self.total += size - self._held.get(sender, 0)
        self._held[sender] = size
        self._active.add(sender)
        if not self.is_too_much or next(iter(self._held)) is sender:
            return True
        self._waiting[sender] = None
        return False

    def release(self, sender: S) -> None:
        """It holds nothing; what it holds next begins later than all others."""
        self.total -= self._held.pop(sender, 0)
        self._waiting.pop(sender, None)
        self._active.discard(sender)
        if self._waiting:
            if not self.is_too_much:
                self._let_all_go_on()
            elif (first := next(iter(self._held))) in self._waiting:
                del self._waiting[first]
                self._let_go_on(first)

    def overdue(self) -> Iterator[tuple[S, int]]:
        """A look: the connections to be ended, each with the bytes that it holds. Lets the others go on."""
        for sender in self._in_order_of_their_end() if self.is_too_much else ():
            if not self.is_too_much:
                break
            yield sender, self._held[sender]
            self.release(sender)
        self._active.clear()
        self._let_all_go_on()

    def _in_order_of_their_end(self) -> list[S]:
        silent = {
            sender: size for sender, size in self._held.items() if sender not in self._active and sender.is_awaited
        }
        if self.total - sum(silent.values()) <= 2 * self._limit():
            return list(silent)
        return [*silent, *(sender for sender in self._held if sender not in silent)]

    def _let_all_go_on(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for sender in waiting:
            self._let_go_on(sender)

    def _let_go_on(self, sender: S) -> None:
        """It has until the look after the next one to send something."""
        self._active.add(sender)
        sender.read_on()
