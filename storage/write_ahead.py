"""Writing the records of a large batch before the batch is appended, so that no single write takes long.

They go where the batch would, behind the log's end, where they count for nothing: readers stop at the end, and a start
after a crash cuts them off, as they have no offset and length yet. The append writes these and the batch is there. Any
other append to the log in the meantime cuts them off first, before a byte of its own: then they were written in vain,
and the batch is written as a whole behind it. LogWriter does both.
"""

from __future__ import annotations

from odradek.protocol.leader_assignment import ValidatedBatch
from odradek.storage.segment import LogSegment

PIECE_BYTES = 256 << 10
"""What is written at once: 0.1 ms, or up to 2 ms where the system gets the pages of its cache from a host."""


class WrittenAhead:
    """What is written of a batch that is to go to the end of this segment."""

    __slots__ = ("_position", "batch", "is_whole", "segment")

    def __init__(self, batch: ValidatedBatch, segment: LogSegment) -> None:
        self.batch = batch
        self.segment = segment
        self.is_whole = False
        self._position = segment.size

    def write(self, body: memoryview, start: int) -> None:
        """A piece of the batch's body, which goes behind the place that is not known yet."""
        piece = body[start : start + PIECE_BYTES]
        self.segment.file.write([piece], self._position + self.batch.size_in_bytes - len(body) + start)

    def holds(self, batch: ValidatedBatch, segment: LogSegment) -> bool:
        """Whether all but the place of the batch stands where it is to go."""
        return self.is_whole and self.batch is batch and self.segment is segment and self._position == segment.size
