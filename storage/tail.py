"""The batches that were appended last, in memory: a consumer at the end of a log is served without reading the file.

An active segment has a `Tail`: its most recent batches, by reference. A tail ends where the segment ends, always:
whatever cuts, seals or closes the segment drops its tail (LogSegment.drop_tail). All tails together hold at most
`Tails.max_bytes`; the log that was appended to least recently loses its tail first. A log to which nobody appends has
none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence

from odradek.storage.files import Buffer

TAIL_BYTES = 256 * 1024
"""The most that one tail holds. Longer reads stay in their file as a FileSlice (SLICE_BYTES)."""
TAIL_BATCHES = 512
"""The most batches that one tail holds: the segment knows the positions of so many (LogSegment.locate)."""
MAX_TAIL_BYTES = 4 << 20
"""The most that the tails of all logs hold together, unless `odradek.log.tail.bytes` says otherwise."""
ENTRY_BYTES = 512
"""What a batch takes beside its bytes, its part of the tail's own memory included."""
_JOINED_BYTES = 4096
"""Batches up to this size are joined at once: a view and a header would take as much as the batch."""


class Tails:
    """The tails of all logs of a broker. `held_bytes` is what they hold, ENTRY_BYTES for each batch included."""

    __slots__ = ("_by_use", "held_bytes", "max_bytes")

    def __init__(self, max_bytes: int = MAX_TAIL_BYTES) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._by_use: OrderedDict[Tail, None] = OrderedDict()  # least recently appended to first

    def __len__(self) -> int:
        return len(self._by_use)

    def keep(self, tail: Tail | None, parts: Sequence[Buffer], position: int, size: int) -> Tail:
        """Notes a batch of `size` bytes, written at `position`, and returns the segment's tail from now on."""
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
        """Forgets what the tail holds. No effect twice."""
        if tail in self._by_use:
            del self._by_use[tail]
            self.held_bytes -= tail.held_bytes
            tail.clear()


class Tail:
    """The bytes from `start` to `end` of one segment's file: whole batches."""

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
        """Puts a batch at the end; the oldest ones go when there are too many. One that is too large leaves nothing."""
        self._batches.append((b"".join(parts),) if size <= _JOINED_BYTES else parts)
        self._positions.append(self.end)
        self.end += size
        if self.end - self.start > TAIL_BYTES or len(self._batches) > TAIL_BATCHES:
            self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        """Down to half of what a tail may hold, so that not every append has to move the others."""
        positions = self._positions
        count = bisect_right(positions, self.end - TAIL_BYTES // 2)
        count = max(count, len(positions) - TAIL_BATCHES // 2)
        del self._batches[:count], positions[:count]
        self.start = positions[0] if positions else self.end

    def clear(self) -> None:
        """Holds nothing from now on; what is appended goes on at the same end."""
        self._batches = []
        self._positions = []
        self.start = self.end

    def read(self, position: int, length: int) -> Buffer | None:
        """The bytes of the file from `position` on; None where not all of them are held."""
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
        """The batch in one piece, from now on."""
        parts = self._batches[slot]
        if len(parts) == 1 and isinstance(parts[0], bytes):
            return parts[0]
        batch = b"".join(parts)
        self._batches[slot] = (batch,)
        return batch
