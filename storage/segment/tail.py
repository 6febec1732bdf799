"""The most recently appended batches in memory, so that consumers at the end of a log are served without file reads.

An active segment has a `Tail` that references its most recent batches. A tail always ends where its segment ends: every
operation that truncates, seals or closes the segment drops its tail (LogSegment.drop_tail). All tails together hold at
most `Tails.max_bytes`; the log with the oldest last append loses its tail first. A log without appends has no tail.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence

from odradek.storage.files import Buffer

TAIL_BYTES = 256 * 1024
"""The maximum size of one tail. Longer reads stay in their file as a FileSlice (SLICE_BYTES)."""
TAIL_BATCHES = 512
"""The maximum number of batches in one tail: the segment knows the positions of as many (LogSegment.locate)."""
MAX_TAIL_BYTES = 4 << 20
"""The maximum size of all logs' tails together, unless `odradek.log.tail.bytes` is set."""
ENTRY_BYTES = 512
"""The memory that a batch needs besides its bytes, including its share of the tail's own memory."""
_JOINED_BYTES = 4096
"""Batches up to this size are joined immediately: a view and a header would take as much memory as the batch."""


class Tails:
    """The tails of all logs of a broker. `held_bytes` is their total size, including ENTRY_BYTES for each batch."""

    __slots__ = ("_by_use", "held_bytes", "max_bytes")

    def __init__(self, max_bytes: int = MAX_TAIL_BYTES) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._by_use: OrderedDict[Tail, None] = OrderedDict()  # least recently appended to first

    def __len__(self) -> int:
        return len(self._by_use)

    def keep(self, tail: Tail | None, parts: Sequence[Buffer], position: int, size: int) -> Tail:
        """Adds a batch of `size` bytes, written at `position`; returns the segment's tail, possibly a new one."""
        if tail is None:
            tail = Tail(self, position)
        elif tail.end != position:
            self.drop(tail)
            tail = Tail(self, position)
        before = tail.held_bytes
        tail.append(parts, size)
        self.held_bytes += tail.held_bytes - before
        self._by_use[tail] = None
        self._by_use.move_to_end(tail)
        while self.held_bytes > self.max_bytes:
            self.drop(next(iter(self._by_use)))
        return tail

    def drop(self, tail: Tail) -> None:
        """Clears the tail. Idempotent."""
        if tail in self._by_use:
            del self._by_use[tail]
            self.held_bytes -= tail.held_bytes
            tail.clear()


class Tail:
    """The bytes from `start` to `end` of one segment's file, in complete batches."""

    __slots__ = ("_batches", "_positions", "end", "owner", "start")

    def __init__(self, owner: Tails, position: int) -> None:
        self.owner = owner
        self.start = position
        self.end = position
        self._batches: list[Sequence[Buffer]] = []
        self._positions: list[int] = []

    @property
    def held_bytes(self) -> int:
        return self.end - self.start + ENTRY_BYTES * len(self._batches)

    def append(self, parts: Sequence[Buffer], size: int) -> None:
        """Appends a batch and drops the oldest ones if the tail is too large. A batch that is too large for it
        leaves it empty.
        """
        self._batches.append((b"".join(parts),) if size <= _JOINED_BYTES else parts)
        self._positions.append(self.end)
        self.end += size
        if self.end - self.start > TAIL_BYTES or len(self._batches) > TAIL_BATCHES:
            self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        """Drops batches down to half of the tail's limits, so that not every append has to move the rest."""
        positions = self._positions
        count = bisect_right(positions, self.end - TAIL_BYTES // 2)
        count = max(count, len(positions) - TAIL_BATCHES // 2)
        del self._batches[:count], positions[:count]
        self.start = positions[0] if positions else self.end

    def clear(self) -> None:
        """Drops all batches. The next append continues at the same end."""
        self._batches = []
        self._positions = []
        self.start = self.end

    def read(self, position: int, length: int) -> Buffer | None:
        """Returns `length` bytes of the file from `position`; None if the tail does not have all of them."""
        if position < self.start or position + length > self.end:
            return None
        slot = bisect_right(self._positions, position) - 1
        skipped = position - self._positions[slot]
        batch = self._batch(slot)
        if len(batch) - skipped >= length:
            return batch if len(batch) == length else batch[skipped : skipped + length]
        found: list[Buffer] = [batch[skipped:] if skipped else batch]
        left = length - len(found[0])
        while left > 0:
            slot += 1
            batch = self._batch(slot)
            found.append(batch if len(batch) <= left else batch[:left])
            left -= len(batch)
        return b"".join(found)

    def _batch(self, slot: int) -> bytes:
        """Returns the batch in one piece, and keeps it that way."""
        parts = self._batches[slot]
        if len(parts) == 1 and isinstance(parts[0], bytes):
            return parts[0]
        batch = b"".join(parts)
        self._batches[slot] = (batch,)
        return batch
