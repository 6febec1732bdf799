"""Reads a log from start to end for replay, one buffer at a time, and skips damaged bytes.

Damage is reported, and the walk skips as little as possible:

A. A batch with a wrong checksum, followed by another batch at the position that its length gives: that batch.
B. A batch with an invalid length or magic: everything up to the next batch that the offset index points to, or the rest
   of the segment if there is none.

Bytes that the disk cannot read are no damage: `read` raises OSError, since they may be there.

Between two reads the cleaner may replace segments, segments may be deleted, and the log may move to another directory.
The walk then finds its position again by offset. A read that misses the page cache runs in a thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.protocol.batch_header import (
    BATCH_OVERHEAD,
    CURRENT_MAGIC,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    SMALLEST_BATCH_LENGTH,
    BatchHeader,
    Buffer,
    check_crc,
    read_batch_header,
)
from odradek.protocol.errors import ProtocolError
from odradek.storage.log.read import ColdRead

if TYPE_CHECKING:
    from odradek.storage.log.log import Log
    from odradek.storage.segment.segment import LogSegment

CurrentLog = Callable[[], "Log | None"]
"""Returns the partition's log: a new object after a move to another directory, None if the partition is gone."""
RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class WalkedBatch(NamedTuple):
    """A batch with a valid checksum, at position `start` of `data`."""

    header: BatchHeader
    data: Buffer
    start: int


class Damage(NamedTuple):
    """`size` bytes skipped at `position` of the segment with base offset `segment`."""

    segment: int
    position: int
    size: int
    reason: str


class _Unreadable(Exception):
    """The bytes at the walk's position do not decode as a batch."""


class LogWalk:
    """Call `read` until it returns False, and iterate over `batches` after each call.

    The buffer holds at most `buffer_bytes`, or one batch if that is larger. `current_log` is called before each read;
    None ends the walk.
    """

    def __init__(
        self,
        current_log: CurrentLog,
        buffer_bytes: int,
        run_in_thread: RunInThread,
        on_damage: Callable[[Damage], object],
    ) -> None:
        self._current_log = current_log
        self._log = log = current_log()
        self._buffer_bytes = buffer_bytes
        self._run_in_thread = run_in_thread
        self._on_damage = on_damage
        self.next_offset = 0 if log is None else log.state.log_start_offset
        """All lower offsets have been read."""
        self._pass_below = self.next_offset
        self._segment: LogSegment | None = None
        self._position = 0
        self._data: Buffer = b""
        self._needed = 0

    async def read(self) -> bool:
        """Fills the buffer. Returns False at the end of the log. Raises OSError."""
        self._data = b""
        segment = self._place()
        if segment is None:
            return False
        length = min(max(self._buffer_bytes, self._needed), segment.size - self._position)
        self._needed = 0
        data = segment.file.read_cached(self._position, length)
        if data is None:
            await self._run_in_thread(ColdRead(segment.file, self._position, length).run)
            if self._place() is not segment:
                return True
            data = segment.file.read(self._position, length)
        if len(data) < length:
            self._pass_over(segment, segment.size, "the file is shorter than the segment")
            return True
        self._data = data
        return True

    def batches(self) -> Iterator[WalkedBatch]:
        """Yields the batches in the buffer. The caller may suspend between two batches."""
        data, segment, begin = self._data, self._segment, self._position
        while segment is not None and data:
            start = self._position - begin
            left, room = len(data) - start, segment.size - self._position
            if room <= 0:
                return
            if left < min(BATCH_OVERHEAD, room):
                self._needed = BATCH_OVERHEAD
                return
            try:
                size = _size_at(data, start, room)
                if size > left:
                    self._needed = size
                    return
                header = self._checked(segment, data, start)
            except (_Unreadable, ProtocolError) as error:
                self._pass_over(segment, self._next_place(segment, data, start, room), str(error))
                return
            self._position += size
            if header.last_offset >= self._pass_below:
                self.next_offset = self._pass_below = header.last_offset + 1
                yield WalkedBatch(header, data, start)

    def _place(self) -> LogSegment | None:
        """Returns the segment to read next and sets `_position` within it. Returns None at the end of the log."""
        log, segment = self._current_log(), self._segment
        self._log = log
        if log is None:
            return None
        if segment is None or segment not in log.segments:
            slot = max(bisect_right(log.segments.base_offsets, self.next_offset) - 1, 0)
            segment = log.segments[slot]
            self._position, self._pass_below = 0, self.next_offset
        while self._position >= segment.size:
            slot = bisect_right(log.segments.base_offsets, segment.base_offset)
            if slot >= len(log.segments):
                return None
            segment = log.segments[slot]
            self._position = 0
            self.next_offset = max(self.next_offset, segment.base_offset)
        self._segment = log.segments.use(segment)
        return segment

    def _checked(self, segment: LogSegment, data: Buffer, start: int) -> BatchHeader:
        header = read_batch_header(data, start)
        if not check_crc(data, start, header):
            raise _Unreadable(f"the batch at offset {header.base_offset} has a wrong checksum")
        if header.last_offset >= self._pass_below and not self._may_follow(segment, header):
            raise _Unreadable(f"offsets {header.base_offset} to {header.last_offset} are not valid at this position")
        return header

    def _may_follow(self, segment: LogSegment, header: BatchHeader) -> bool:
        first = max(segment.base_offset, self.next_offset if self._pass_below <= self.next_offset else 0)
        end = first if self._log is None else self._log.state.log_end_offset
        return first <= header.base_offset <= header.last_offset < end

    # Damage

    def _pass_over(self, segment: LogSegment, position: int, reason: str) -> None:
        self._on_damage(Damage(segment.base_offset, self._position, position - self._position, reason))
        self._position = position

    def _next_place(self, segment: LogSegment, data: Buffer, start: int, room: int) -> int:
        """Returns the position where the next batch seems to begin, or the end of the segment."""
        try:
            behind = self._position + _size_at(data, start, room)
            if behind == segment.size or self._begins_at(segment, behind):
                return behind
        except _Unreadable:
            pass
        index = segment.offset_index
        for number in range(len(index)):
            position = index.entry(number)[1]
            if position > self._position and self._begins_at(segment, position):
                return position
        return segment.size

    def _begins_at(self, segment: LogSegment, position: int) -> bool:
        """Whether a batch, valid or damaged, seems to begin at `position`. The walk then checks that batch itself."""
        try:
            data = segment.file.read(position, BATCH_OVERHEAD)
            _size_at(data, 0, segment.size - position)
            if data[MAGIC_POSITION] < CURRENT_MAGIC:
                return True
            return self._may_follow(segment, read_batch_header(data))
        except (OSError, ProtocolError, _Unreadable):
            return False


def _size_at(data: Buffer, start: int, room: int) -> int:
    """Returns the size in the header of the batch at `start`, in any message format. Raises _Unreadable."""
    if room < LOG_OVERHEAD + SMALLEST_BATCH_LENGTH or len(data) - start <= MAGIC_POSITION:
        raise _Unreadable(f"{room} bytes are too few for a batch")
    length = int.from_bytes(data[start + 8 : start + LOG_OVERHEAD], "big", signed=True)
    magic = data[start + MAGIC_POSITION]
    if magic > CURRENT_MAGIC:
        raise _Unreadable(f"magic {magic} is unknown")
    if not SMALLEST_BATCH_LENGTH <= length <= room - LOG_OVERHEAD:
        raise _Unreadable(f"batch length {length} is invalid")
    return length + LOG_OVERHEAD
