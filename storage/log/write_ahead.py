"""Writing the records of a large batch before the batch is appended, so that no single write takes long.

The records are written where the batch will be, after the log's end. There they are not part of the log: reads stop
at the end, and a restart after a crash truncates them, because the start of the header, with offset and length, is
missing. The append writes it, which completes the batch. Any other append in the meantime first truncates the records;
the batch is then written again, as a whole. LogWriter does both.
"""

from __future__ import annotations

from odradek.protocol.leader_assignment import ValidatedBatch
from odradek.storage.segment.segment import LogSegment

PIECE_BYTES = 256 << 10
"""The size of one write: 0.1 ms, or up to 2 ms on systems that get page cache pages from a host."""


class WrittenAhead:
    """The part of a batch that is already written at the end of `segment`."""

    __slots__ = ("_position", "batch", "is_whole", "segment")

    def __init__(self, batch: ValidatedBatch, segment: LogSegment) -> None:
        self.batch = batch
        self.segment = segment
        self.is_whole = False
        self._position = segment.size

    def write(self, body: memoryview, start: int) -> None:
        """Writes a piece of the batch's body, after the space for the start of the header, which is not known yet."""
        piece = body[start : start + PIECE_BYTES]
        self.segment.file.write([piece], self._position + self.batch.size_in_bytes - len(body) + start)

    def holds(self, batch: ValidatedBatch, segment: LogSegment) -> bool:
        """Whether everything except the start of the header is written where the batch goes."""
        return self.is_whole and self.batch is batch and self.segment is segment and self._position == segment.size
