"""Cleaning one compacted log (Kafka's Cleaner): reads sealed segments and writes the files that will replace them.

1. The keys of the dirty section are read: the last offset of each, until the memory for them is full. The clean ends at
   the offset reached. A batch is always read whole, so every clean makes progress.
2. All segments below that offset are grouped so that each group fits one segment: by the sizes of log and indexes, and
   by the offsets, which an index stores in 31 bits.
3. Each group is filtered (see batches.py) into one new segment. Its files are synced and reported; the owner of the log
   swaps them in (see swap.py). A group of one segment that loses nothing is left as it is.

`clean_steps` yields after every piece of work, so that the caller can wait, do something else or stop. It changes none
of the log's own files, so it may be dropped at any step (`close` the generator: it removes what it was writing).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from struct import Struct

from odradek.protocol.batch_header import BATCH_OVERHEAD, COMPRESSION_MASK, LOG_OVERHEAD, BatchHeader, read_batch_header
from odradek.storage.cleaner.batches import BatchFilter, batch_body, checked_header, marker_type
from odradek.storage.cleaner.cleaned_segment import CleanedSegment
from odradek.storage.cleaner.job import (
    CleanDone,
    CleanedGroup,
    CleanJob,
    CleanStats,
    SourceSegment,
    UncleanableLog,
)
from odradek.storage.cleaner.transactions import CleanedTransactions
from odradek.storage.cleaner.walk import MALFORMED, put_keys
from odradek.storage.file_names import LOG_SUFFIX, offset_file_name
from odradek.storage.files import Buffer, File, Files
from odradek.storage.segment.index import MAX_RELATIVE_OFFSET

BYTES_OF_ENTRY = 144
"""The memory that a key needs in the table besides its own bytes: measured on CPython 3.11, where it is 120 to 160."""

_LENGTH_AND_MAGIC = Struct(">8xi4xB")
_LEGACY_OFFSET = Struct(">q")
_SMALLEST = 17

Progress = int | CleanedGroup
"""Bytes read and written since the last step, or a group that is ready to be swapped in."""

CleanSteps = Generator[Progress, None, CleanDone]


def clean_steps(files: Files, job: CleanJob) -> CleanSteps:
    """Cleans; see the head of the file. Raises OSError and UncleanableLog."""
    return (yield from _Cleaner(files, job).steps())


def group_segments(job: CleanJob, end_offset: int) -> list[list[SourceSegment]]:
    """Groups the segments that start below `end_offset`, like Kafka's groupSegmentsBySize."""
    groups: list[list[SourceSegment]] = []
    size = index = time_index = 0
    for segment in job.segments:
        if segment.base_offset >= end_offset:
            break
        fits = (
            groups
            and size + segment.size <= job.segment_bytes
            and index + segment.index_bytes <= job.segment_index_bytes
            and time_index + segment.time_index_bytes <= job.segment_index_bytes
            and (segment.size == 0 or segment.end_offset - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = index = time_index = 0
        size += segment.size
        index += segment.index_bytes
        time_index += segment.time_index_bytes
    return groups


class _Cleaner:
    def __init__(self, files: Files, job: CleanJob) -> None:
        self._files = files
        self._job = job
        self._stats = CleanStats()
        self._latest: dict[bytes, int] = {}
        self._latest_offset = -1
        self._key_bytes = 0
        self._keys_seen = 0

    def steps(self) -> CleanSteps:
        yield from self._read_keys()
        end_offset = max(self._latest_offset + 1, self._job.first_dirty_offset)
        transactions = CleanedTransactions(self._job.aborted)
        batches = BatchFilter(self._job, self._latest, self._latest_offset, transactions, self._stats)
        for group in group_segments(self._job, end_offset):
            yield from self._clean_group(group, batches, transactions)
        return CleanDone(end_offset, self._stats)

    # ---- the keys

    def _read_keys(self) -> Generator[int, None, None]:
        job = self._job
        transactions = CleanedTransactions(
            transaction for transaction in job.aborted if transaction.last_offset >= job.first_dirty_offset
        )
        for segment in job.segments:
            if segment.end_offset <= job.first_dirty_offset:
                continue
            with _Source(self._files, job, segment) as source:
                for data in source.chunks():
                    is_full = self._read_keys_of(data, source, transactions)
                    self._stats.map_bytes_read += source.consumed
                    yield source.consumed
                    if is_full:
                        return
            self._latest_offset = max(self._latest_offset, segment.end_offset - 1)
        self._stats.buffer_utilization = self._utilization()

    def _read_keys_of(self, data: bytes, source: _Source, transactions: CleanedTransactions) -> bool:
        """Returns whether the memory for keys is full."""
        for position, header in source.batches(data):
            if header is None or header.last_offset < self._job.first_dirty_offset:
                continue
            if self._utilization() >= 1:
                source.consumed = position
                self._stats.buffer_utilization = 1.0
                return True
            checked_header(data, position, header)
            self._stats.map_messages_read += header.record_count
            if header.is_control:
                transactions.marker(header, marker_type(data, position, header))
            elif not transactions.data_batch(header):
                self._put_keys(data, position, header)
            self._latest_offset = header.last_offset
        return False

    def _put_keys(self, data: bytes, position: int, header: BatchHeader) -> None:
        if header.attributes & COMPRESSION_MASK:
            data, start = batch_body(data, position, header, self._job.max_decompressed_bytes), 0
        else:
            start = position + BATCH_OVERHEAD
        key_bytes = put_keys(
            data, start, header.record_count, header.base_offset, self._job.first_dirty_offset, self._latest
        )
        if key_bytes == MALFORMED:
            raise UncleanableLog(f"the records of the batch at offset {header.base_offset} are malformed")
        self._key_bytes += key_bytes
        self._keys_seen += header.record_count

    def _utilization(self) -> float:
        if not self._keys_seen:
            return 0.0
        keys = len(self._latest)
        return keys * (BYTES_OF_ENTRY + self._key_bytes / self._keys_seen) / self._job.map_bytes

    # ---- the segments

    def _clean_group(
        self, group: list[SourceSegment], batches: BatchFilter, transactions: CleanedTransactions
    ) -> Generator[Progress, None, None]:
        job = self._job
        yield 0
        cleaned = CleanedSegment(
            self._files, job.directory, group[0].base_offset, job.segment_index_bytes, job.index_interval_bytes
        )
        transactions.note_aborted = cleaned.transaction_index.append
        changed = len(group) > 1
        try:
            for segment in group:
                with _Source(self._files, job, segment) as source:
                    for data in source.chunks():
                        before = cleaned.size
                        changed = self._filter_chunk(data, source, batches, cleaned) or changed
                        written = cleaned.size - before
                        self._stats.bytes_read += source.consumed
                        self._stats.bytes_written += written
                        yield source.consumed + written
            if changed:
                cleaned.finish(group[-1].modified_ms)
            else:
                cleaned.discard()
        except BaseException:
            cleaned.discard()
            raise
        yield CleanedGroup(group[0].base_offset, [segment.base_offset for segment in group], changed)

    def _filter_chunk(self, data: bytes, source: _Source, batches: BatchFilter, cleaned: CleanedSegment) -> bool:
        """Returns whether anything in the chunk has changed. Adjacent unchanged batches are written in one piece."""
        parts: list[Buffer] = []
        view = memoryview(data)
        changed = False
        run_start = run_end = 0
        for position, header in source.batches(data):
            end = source.position_behind
            if header is None:
                kept: bytes | None = data
                cleaned.note_batch(end - position, _LEGACY_OFFSET.unpack_from(data, position)[0], -1)
            else:
                kept = batches.filtered(data, position, header)
                if kept is not None:
                    size = end - position if kept is data else len(kept)
                    cleaned.note_batch(size, header.last_offset, _max_timestamp(header, kept, data))
            if kept is data:
                run_end = end
                continue
            changed = True
            if run_end > run_start:
                parts.append(view[run_start:run_end])
            run_start = run_end = end
            if kept is not None:
                parts.append(kept)
        if run_end > run_start:
            parts.append(view[run_start:run_end])
        cleaned.write(parts)
        return changed


_MAX_TIMESTAMP = Struct(">35xq")


def _max_timestamp(header: BatchHeader, kept: bytes, data: bytes) -> int:
    return header.max_timestamp if kept is data else int(_MAX_TIMESTAMP.unpack_from(kept)[0])


class _Source:
    """A segment's file, read in chunks of complete batches. `consumed`: how much of the last chunk was used; `chunks`
    continues there. `position_behind`: the end of the batch that `batches` yielded last.
    """

    def __init__(self, files: Files, job: CleanJob, segment: SourceSegment) -> None:
        self._size = segment.size
        self._chunk = max(job.chunk_bytes, _SMALLEST)
        self._path = f"{job.directory}/{offset_file_name(segment.base_offset, LOG_SUFFIX)}"
        self._file: File = files.open(self._path)
        self.consumed = 0
        self.position_behind = 0

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def chunks(self) -> Iterator[bytes]:
        """Raises UncleanableLog if a batch is incomplete, or if bytes are not a batch."""
        position = 0
        wanted = self._chunk
        while position < self._size:
            data = bytes(self._file.read(position, min(wanted, self._size - position)))
            self.consumed = 0
            if not self._has_a_batch(data):
                wanted = self._size_of_first(data, position)
                continue
            yield data
            position += self.consumed
            wanted = self._chunk

    @staticmethod
    def _has_a_batch(data: bytes) -> bool:
        return len(data) >= _SMALLEST and _LENGTH_AND_MAGIC.unpack_from(data)[0] + LOG_OVERHEAD <= len(data)

    def _size_of_first(self, data: bytes, position: int) -> int:
        """Returns how many bytes must be read to have the complete first batch."""
        left = self._size - position
        if len(data) < min(_SMALLEST, left):
            raise OSError(5, "the file is shorter than it was", self._path)
        if len(data) < _SMALLEST:
            raise UncleanableLog(f"{self._path} ends within a batch at byte {position}")
        size = int(_LENGTH_AND_MAGIC.unpack_from(data)[0]) + LOG_OVERHEAD
        if size > left:
            raise UncleanableLog(f"{self._path} ends within a batch at byte {position}")
        return size

    def batches(self, data: bytes) -> Iterator[tuple[int, BatchHeader | None]]:
        """Yields (position, header) of a chunk's complete batches; the header is None for an old format."""
        position = 0
        end = len(data)
        while end - position >= _SMALLEST:
            length, magic = _LENGTH_AND_MAGIC.unpack_from(data, position)
            behind = position + length + LOG_OVERHEAD
            if behind > end:
                break
            if length < 14 or magic > 2 or (magic == 2 and length < BATCH_OVERHEAD - LOG_OVERHEAD):
                raise UncleanableLog(f"{self._path} has no valid batch at the expected position")
            self.position_behind = behind
            self.consumed = behind
            yield position, read_batch_header(data, position) if magic == 2 else None
            position = behind
