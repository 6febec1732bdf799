"""Writing the records of a large batch before the batch is appended, so that no single write takes long.

They go where the batch would, behind the log's end, where they count for nothing: readers stop at the end, and a start
after a crash cuts them off, as they have no offset and length yet. The append writes these and the batch is there. Any
other append to the log in the meantime cuts them off first, before a byte of its own: then they were written in vain,
and the batch is written as a whole behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.protocol.leader_assignment import ValidatedBatch
from odradek.storage.log_append import roll, storage_error

if TYPE_CHECKING:
    from odradek.storage.log import Log
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


def write_ahead(log: Log, batch: ValidatedBatch) -> Iterator[None]:
    """Writes the records of a batch that is to be appended right behind the last step; in between the log may change.
    Until the next append `log.ahead` is not None. Raises KAFKA_STORAGE_ERROR.
    """
    size = batch.size_in_bytes
    if size <= PIECE_BYTES or size > log.config.segment_bytes:
        return
    try:
        if not log.writable:
            log.make_writable()
        last_offset = log.log_end_offset + batch.header.last_offset_delta
        segment = log.active_segment
        if segment.should_roll(log.config, size, last_offset, batch.max_timestamp, log.clock.wall_ms()):
            segment = roll(log)
        ahead = log.ahead = WrittenAhead(batch, segment)
        body = memoryview(batch.body)
        for start in range(0, len(body), PIECE_BYTES):
            ahead.write(body, start)
            yield
            if log.ahead is not ahead or log.active_segment is not segment or log.closed:
                return
        ahead.is_whole = True
    except OSError as error:
        raise storage_error(log, "append_failed", error) from error


def give_up_ahead(log: Log) -> None:
    """What was written ahead and is not appended by now was in vain: it is cut off before the next append."""
    if log.ahead is not None:
        log.ahead = None
        log.writable = False
