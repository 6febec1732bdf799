"""Moving a log to another directory: the future replica, copied while the log is written and read (KIP-113).

The copy is a folder `topic-partition.<unique>-future` in the target directory. It has the same segments with the same
names and bytes, so every offset keeps its position. It is copied in pieces that run in a thread:
(A) the records of all segments, including the active one, a slice at a time; a sealed segment's indexes after its
    records. Then the segments that the log itself has synced are synced; the others are flushed wherever the log is
    then;
(B) `settle`, when all but a slice has been copied: copies changes of the small files beside the segments, and syncs as
    much of the active segment as the log itself has flushed. If nothing is flushed, it does not wait for the disk, so
    it catches up even with a log that grows faster than a slow disk syncs;
(C) `copy_rest`, on the loop: copies what was appended since (B), if that is little; otherwise (A) continues. It does
    not wait for the disk for data that the log itself has not flushed.

Changes during the copy are detected by the identity of the segments: what retention deleted, the cleaner replaced or a
truncation removed is removed from the copy too, and replaced segments are copied again.

Kafka copies by fetching from itself and appending again; the folder and the time of the swap are the same.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.storage.checkpoint import LEADER_EPOCH, PARTITION_METADATA, write_epochs
from odradek.storage.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from odradek.storage.file_names import offset_file_name as file_name
from odradek.storage.files import Files

if TYPE_CHECKING:
    from odradek.storage.log.log import Log
    from odradek.storage.segment.segment import LogSegment

SLICE_BYTES = 1 << 20
REST_BYTES = 4 << 20
"""The most that is copied on the loop at the end: it takes two or three milliseconds."""
REST_SEGMENTS = 16
SEGMENTS_PER_SYNC = 16
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


class MoveJob:
    """A piece of the copy. Call `run` in any thread, which keeps an OSError in `error`; then LogMove.finished on the
    loop.

    `size`: the number of record bytes that it copies.
    """

    __slots__ = ("_work", "error", "note", "segment", "size")

    def __init__(
        self, work: Callable[[], None], note: Callable[[], None], *, segment: LogSegment | None = None, size: int = 0
    ) -> None:
        self._work = work
        self.note = note
        self.segment = segment
        self.size = size
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            self._work()
        except OSError as error:
            self.error = error


class _SegmentCopy:
    """How much of a segment's records is copied. `sealed`: all of them, with indexes; `synced`: and synced."""

    __slots__ = ("sealed", "segment", "size", "synced")

    def __init__(self, segment: LogSegment) -> None:
        self.segment = segment
        self.size = 0
        self.sealed = False
        self.synced = False


class LogMove:
    """`directory`: the target, one of log.dirs. `folder`: the future folder there, until the swap."""

    def __init__(self, files: Files, log: Log, directory: str, folder: str) -> None:
        self.log = log
        self.directory = directory
        self.folder = folder
        self.abandoned = False
        self._files = files
        self._copies: dict[int, _SegmentCopy] = {}
        self._generation = log.state.generation
        self._snapshots: set[int] = set()
        self._epochs: list[tuple[int, int]] | None = None
        self._settled_offset = -1

    # ---- progress

    @property
    def size(self) -> int:
        """The number of record bytes copied."""
        return sum(copy.size for copy in self._copies.values())

    @property
    def end_offset(self) -> int:
        """Everything below is copied. Within a segment, as precise as its index."""
        for segment in self.log.segments:
            copy = self._copy_of(segment)
            if copy is None or copy.size == 0 < segment.size:
                return segment.base_offset
            if copy.size < segment.size:
                index = self.log.segments.use(segment).offset_index
                offset = index.upper_bound_offset(copy.size)
                return index.last_offset if offset is None else offset
        return self.log.state.log_end_offset

    @property
    def synced_offset(self) -> int:
        """Everything below is on the target's disk, with its indexes: the recovery point of the copy."""
        for segment in self.log.segments:
            copy = self._copy_of(segment)
            if copy is None or not copy.synced:
                return min(segment.base_offset, self.log.flusher.safe_recovery_point)
        return self.log.flusher.safe_recovery_point

    def _copy_of(self, segment: LogSegment) -> _SegmentCopy | None:
        copy = self._copies.get(segment.base_offset)
        return copy if copy is not None and copy.segment is segment else None

    # ---- (A)

    def next_job(self) -> MoveJob | None:
        """Returns the next piece to copy; None once only what is appended meanwhile is missing. Raises OSError."""
        stale = self._stale()
        if stale:
            return self._removal(stale)
        for segment in self.log.segments:
            copy = self._copies.setdefault(segment.base_offset, _SegmentCopy(segment))
            is_active = segment is self.log.segments.active
            if segment.size - copy.size > (SLICE_BYTES if is_active else 0):
                return self._slice(copy)
            if not copy.sealed and not is_active:
                return self._seal(copy)
        return self._sync()

    def finished(self, job: MoveJob) -> None:
        """Records that a job has run. Raises its OSError, unless its segment is no longer part of the log, or may have
        been truncated.
        """
        if job.error is None:
            job.note()
        elif job.segment is None or (job.segment in self.log.segments and not self._is_another_log):
            raise job.error

    @property
    def _is_another_log(self) -> bool:
        """Whether all that was copied is stale: offsets have other records now."""
        return self._generation != self.log.state.generation

    def _stale(self) -> list[int]:
        if self._is_another_log:
            return list(self._copies)
        return [base for base, copy in self._copies.items() if copy.segment not in self.log.segments]

    def _removal(self, stale: list[int]) -> MoveJob:
        generation = self.log.state.generation
        snapshots = list(self._snapshots) if self._is_another_log else []

        def work() -> None:
            for base in stale:
                for suffix in SEGMENT_SUFFIXES:
                    self._files.remove(self._target(base, suffix))
            for offset in snapshots:
                self._files.remove(self._target(offset, SNAPSHOT_SUFFIX))

        def note() -> None:
            for base in stale:
                del self._copies[base]
            self._snapshots.difference_update(snapshots)
            self._settled_offset = -1
            self._generation = generation

        return MoveJob(work, note)

    def _slice(self, copy: _SegmentCopy) -> MoveJob:
        segment, position = copy.segment, copy.size
        length = min(SLICE_BYTES, segment.size - position)
        source = self.log.segments.use(segment).file.duplicate()

        def work() -> None:
            try:
                data = source.read(position, length)
            finally:
                source.close()
            if len(data) != length:
                raise OSError(errno.EIO, "the segment is shorter than it was", segment.path(LOG_SUFFIX))
            target = self._files.open(self._target(segment.base_offset, LOG_SUFFIX), create=True)
            try:
                target.write((data,), position)
            finally:
                target.close()

        def note() -> None:
            copy.size = position + length

        return MoveJob(work, note, segment=segment, size=length)

    def _seal(self, copy: _SegmentCopy) -> MoveJob:
        """Completes a sealed segment. For an empty one this creates the files."""
        segment = copy.segment
        segment.write_indexes()

        def work() -> None:
            self._copy_indexes(segment)

        def note() -> None:
            copy.sealed = True

        return MoveJob(work, note, segment=segment)

    def _sync(self) -> MoveJob | None:
        """Syncs some of the segments that must be synced."""
        behind = [copy for copy in self._copies.values() if copy.sealed and not self._is_as_durable(copy)]
        some = behind[:SEGMENTS_PER_SYNC]
        if not some:
            return None

        def work() -> None:
            self._sync_segments([copy.segment for copy in some])

        def note() -> None:
            for copy in some:
                copy.synced = True

        return MoveJob(work, note)

    def _is_as_durable(self, copy: _SegmentCopy) -> bool:
        return copy.synced or self._is_unflushed(copy.segment)

    def _is_unflushed(self, segment: LogSegment) -> bool:
        """Whether no part of the segment counts as flushed; the log will flush it before or after the move."""
        return self.log.state.recovery_point <= segment.base_offset and segment in self.log.segments.unsynced

    def _sync_segments(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            for suffix in SEGMENT_SUFFIXES:
                self._files.sync_file(self._target(segment.base_offset, suffix))
        self._files.sync_directory(self.folder)

    def _copy_indexes(self, segment: LogSegment) -> None:
        self._files.open(self._target(segment.base_offset, LOG_SUFFIX), create=True).close()
        for suffix in INDEX_SUFFIXES:
            path = segment.path(suffix)
            if self._files.exists(path):
                self._copy_file(path, self._target(segment.base_offset, suffix))

    def _copy_file(self, source: str, target: str) -> None:
        data = self._files.read_file(source)
        self._files.remove(target)
        file = self._files.open(target, create=True)
        try:
            file.write((data,), 0)
        finally:
            file.close()

    # ---- (B)

    def settle(self) -> MoveJob:
        """Call it when `next_job` returns None; a further call handles changes since then.

        One durable producer snapshot is enough: later producer state is rebuilt from the batches.
        """
        log, files = self.log, self._files
        is_first = self._epochs is None
        epochs = list(log.leader_epochs.entries)
        has_new_epochs = epochs != self._epochs
        snapshots = [offset for offset in log.producers.snapshots.offsets if offset not in self._snapshots]
        paths = [log.producers.snapshots.path(offset) for offset in snapshots]
        metadata = f"{log.folder.path}/{PARTITION_METADATA}"
        active = self._target(log.segments.active.base_offset, LOG_SUFFIX)
        owes_sync = self._owes_sync
        is_whole = self._copied_of(log.segments.active) == log.segments.active.size
        end_offset = log.state.log_end_offset if is_whole else log.segments.active.base_offset

        def work() -> None:
            for path in paths:
                if files.exists(path):
                    self._copy_file(path, self._beside(path))
            if is_first and paths:
                files.sync_file(self._beside(paths[-1]))
            if is_first and files.exists(metadata):
                files.replace_file(self._beside(metadata), files.read_file(metadata))
            if has_new_epochs:
                write_epochs(files, self._beside(LEADER_EPOCH), epochs)
            if owes_sync:
                files.sync_file(active)
            if is_first or owes_sync:
                files.sync_directory(self.folder)

        def note() -> None:
            self._snapshots.update(snapshots)
            self._epochs = epochs
            if owes_sync:
                self._settled_offset = end_offset

        return MoveJob(work, note)

    @property
    def _owes_sync(self) -> bool:
        """Whether part of the active segment counts as flushed but may not be on the target's disk."""
        return self.log.state.recovery_point > max(self._settled_offset, self.log.segments.active.base_offset)

    # ---- (C)

    def copy_rest(self) -> bool:
        """After `settle`: completes the copy and returns True, or returns False if too much is missing. A complete copy
        is as durable as the log. Raises OSError.
        """
        log = self.log
        if log.folder.failure is not None:
            raise log.folder.failure
        rest = [segment for segment in log.segments if not self._is_done(segment)]
        missing = sum(segment.size - self._copied_of(segment) for segment in rest)
        if self._stale() or missing > REST_BYTES or len(rest) > REST_SEGMENTS:
            return False
        for segment in rest:
            self._copy_now(segment)
        self._bring_up_to_date()
        for segment in log.segments:
            if segment is not log.segments.active and not segment.is_released:
                segment.write_indexes()
                segment.release()
        return True

    def _copied_of(self, segment: LogSegment) -> int:
        copy = self._copy_of(segment)
        return 0 if copy is None else copy.size

    def _is_done(self, segment: LogSegment) -> bool:
        copy = self._copy_of(segment)
        return copy is not None and copy.sealed and self._is_as_durable(copy)

    def _copy_now(self, segment: LogSegment) -> None:
        """Copies the active segment, or one that was just sealed and that the next flush will sync."""
        copy = self._copies.setdefault(segment.base_offset, _SegmentCopy(segment))
        while copy.size < segment.size:
            job = self._slice(copy)
            job.run()
            self.finished(job)
        segment.write_indexes()
        self._copy_indexes(segment)
        if segment is not self.log.segments.active and not self._is_unflushed(segment):
            self._sync_segments([segment])

    def _bring_up_to_date(self) -> None:
        log = self.log
        if log.leader_epochs.entries != self._epochs:
            write_epochs(self._files, self._beside(LEADER_EPOCH), log.leader_epochs.entries)
        for offset in log.producers.snapshots.offsets:
            if offset not in self._snapshots:
                self._copy_file(
                    log.producers.snapshots.path(offset), self._beside(log.producers.snapshots.path(offset))
                )
        if self._owes_sync:
            self._files.sync_file(self._target(log.segments.active.base_offset, LOG_SUFFIX))
            self._files.sync_directory(self.folder)

    def _target(self, base_offset: int, suffix: str) -> str:
        return f"{self.folder}/{file_name(base_offset, suffix)}"

    def _beside(self, path: str) -> str:
        return f"{self.folder}/{path.rpartition('/')[2]}"
