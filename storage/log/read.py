"""Reading a log by offset, for fetches and to find the position of an offset.

A read waits for the disk only with `may_block=True`. With `may_block=False`, a read that misses the page cache returns
`cold` and no records. `cold.run()`, in a thread, loads the bytes into the cache; then the caller reads again (with
`may_block=True`, in case the cache has dropped them meanwhile).

The most recent appends are read from memory (tail.py). A caller that can send files asks for `sendable` records: large
reads then stay in their file as a FileSlice, whether cached or not.
"""

from __future__ import annotations

from bisect import bisect_right

import structlog

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage.file_slice import SLICE_BYTES, FileSlice
from odradek.storage.files import Buffer, File
from odradek.storage.log.folder import LogFolder
from odradek.storage.log.log_state import LogState
from odradek.storage.log.positions import LogPositions
from odradek.storage.log.segments import LogSegments
from odradek.storage.log_offsets import LogOffsetMetadata
from odradek.storage.segment.batch_scan import WouldBlock, read_window
from odradek.storage.segment.segment import LogSegment
from odradek.storage.segment.transaction_index import AbortedTransaction, CorruptTransactionIndex

_log = structlog.get_logger(__name__)
_WARM_BYTES = 1 << 20


class ColdRead:
    """Bytes that must be read from the disk. `run` (any thread, once) reads them only to fill the page cache."""

    __slots__ = ("_file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self._file = file.duplicate()
        self.position = position
        self.length = length

    def run(self) -> None:
        """Raises OSError if the disk does."""
        try:
            position, end = self.position, self.position + self.length
            while position < end and self._file.read(position, min(_WARM_BYTES, end - position)):
                position += _WARM_BYTES
        finally:
            self._file.close()


class FetchData:
    """The result of a read.

    `records`: complete batches except for the last one, which `max_bytes` may cut (b"" for none); a FileSlice only if
    requested. `offset_metadata`: the position of the requested offset. `first_batch_incomplete`: not even the first
    batch fits. `cold`: see the head of this file.
    """

    __slots__ = ("cold", "first_batch_incomplete", "offset_metadata", "records")

    def __init__(
        self,
        records: Buffer | FileSlice,
        offset_metadata: LogOffsetMetadata,
        first_batch_incomplete: bool = False,
        cold: ColdRead | None = None,
    ) -> None:
        self.records = records
        self.offset_metadata = offset_metadata
        self.first_batch_incomplete = first_batch_incomplete
        self.cold = cold


class FoundRecords:
    """The position of a read's records: `length` bytes at `position` of `segment.file`."""

    __slots__ = ("first_batch_incomplete", "length", "offset_metadata", "position", "segment")

    def __init__(
        self,
        segment: LogSegment | None,
        position: int,
        length: int,
        offset_metadata: LogOffsetMetadata,
        first_batch_incomplete: bool = False,
    ) -> None:
        self.segment = segment
        self.position = position
        self.length = length
        self.offset_metadata = offset_metadata
        self.first_batch_incomplete = first_batch_incomplete


class RecordReader:
    """Reads one log."""

    __slots__ = ("_folder", "_positions", "_segments", "_state")

    def __init__(self, state: LogState, folder: LogFolder, segments: LogSegments, positions: LogPositions) -> None:
        self._state = state
        self._folder = folder
        self._segments = segments
        self._positions = positions

    def read(
        self,
        offset: int,
        max_bytes: int,
        upper: LogOffsetMetadata | None = None,
        min_one_message: bool = True,
        may_block: bool = True,
        sendable: bool = False,
        whole_batches: bool = False,
    ) -> FetchData:
        """Reads records from the batch that contains `offset`, below `upper` (the log's end if None), of one segment.

        Returns at most `max_bytes`, but at least the first batch with `min_one_message`. `may_block=False`, `sendable`:
        see above. `whole_batches`: `max_bytes` cuts between two batches, as far as the offset index knows where they
        are. Raises OFFSET_OUT_OF_RANGE and KAFKA_STORAGE_ERROR.
        """
        try:
            found = self._find(offset, max_bytes, upper, min_one_message, may_block, whole_batches)
            if found.segment is None or found.length == 0:
                return FetchData(b"", found.offset_metadata, found.first_batch_incomplete)
            records = _records(found.segment, found.position, found.length, may_block, sendable)
        except WouldBlock as cold:
            length = max(cold.length, min(max_bytes, SLICE_BYTES) if sendable else max_bytes)
            return FetchData(b"", LogOffsetMetadata(offset), False, ColdRead(cold.file, cold.position, length))
        except OSError as error:
            raise self._unreadable(error) from error
        return FetchData(records, found.offset_metadata, found.first_batch_incomplete)

    def check_range(self, offset: int) -> None:
        """Raises OFFSET_OUT_OF_RANGE unless the log can be read from the offset."""
        state = self._state
        if offset < state.log_start_offset or offset > state.log_end_offset:
            bounds = f"{self._folder.topic_partition}: {state.log_start_offset} to {state.log_end_offset}"
            raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is outside {bounds}")

    def _find(
        self,
        offset: int,
        max_bytes: int,
        upper: LogOffsetMetadata | None,
        min_one_message: bool,
        may_block: bool,
        whole_batches: bool,
    ) -> FoundRecords:
        """Finds the position of the records to read. Raises OFFSET_OUT_OF_RANGE, WouldBlock and OSError."""
        positions = self._positions
        self.check_range(offset)
        if upper is None:
            upper = positions.log_end
        elif upper.segment_base_offset < 0:
            upper = positions.of(upper.message_offset, may_block)
        if offset >= upper.message_offset:
            where = upper if offset == upper.message_offset else positions.of(offset, may_block)
            return FoundRecords(None, 0, 0, where)
        located = positions.locate(offset, may_block)
        if located is None:
            return FoundRecords(None, 0, 0, positions.log_end)
        segment, position, batch_size = located
        where = LogOffsetMetadata(offset, segment.base_offset, position)
        if segment.base_offset < upper.segment_base_offset:
            end = segment.size
        elif segment.base_offset == upper.segment_base_offset:
            end = upper.relative_position
        else:
            end = position
        if min_one_message and batch_size > max_bytes:
            max_bytes = batch_size
        length = end - position
        if length > max_bytes:
            length = max_bytes
            if whole_batches:
                whole = segment.offset_index.last_start(position + length) - position
                if whole > 0:
                    length = whole
        return FoundRecords(segment, position, length if length > 0 else 0, where, batch_size > max_bytes)

    def aborted_transactions(self, data: FetchData) -> list[AbortedTransaction]:
        """Returns the transactions that a read_committed consumer needs to filter these records (Kafka's LocalLog).
        Raises KAFKA_STORAGE_ERROR.
        """
        try:
            return self._aborted_transactions(data)
        except (OSError, CorruptTransactionIndex) as error:
            raise self._unreadable(error) from error

    def _aborted_transactions(self, data: FetchData) -> list[AbortedTransaction]:
        where = data.offset_metadata
        if not data.records or where.message_offset_only:
            return []
        segments = self._segments
        slot = bisect_right(segments.base_offsets, where.segment_base_offset) - 1
        index = segments.use(segments[slot]).offset_index
        upper_bound = index.upper_bound_offset(where.relative_position + len(data.records))
        if upper_bound is None:
            upper_bound = segments.next_base(slot)
        if upper_bound is None:
            upper_bound = self._state.log_end_offset
        found: list[AbortedTransaction] = []
        for segment in segments[slot:]:
            entries, complete = segments.use(segment).transaction_index.collect(where.message_offset, upper_bound)
            found += entries
            if complete:
                break
        return found

    def _unreadable(self, error: Exception) -> ProtocolError:
        partition, directory = str(self._folder.topic_partition), self._folder.path
        _log.error("log not readable", partition=partition, directory=directory, reason=str(error))
        return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {partition} cannot be read: {error}")


def _records(segment: LogSegment, position: int, length: int, may_block: bool, sendable: bool) -> Buffer | FileSlice:
    if segment.tail is not None:
        recent = segment.tail.read(position, length)
        if recent is not None:
            return recent
    file = segment.file
    if sendable and length >= SLICE_BYTES:
        records = file.slice(position, length)
        if records is not None:
            return records
    return read_window(file, position, length, may_block)
