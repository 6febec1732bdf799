"""A log as it is at one instant, written to another folder while the log goes on.

Appends only add to the last segment, so the instant is a few numbers (`FrozenLog`), and its files are written later:
(A) sealed segments get a second name if the files can do that (Files.link), otherwise they are copied;
(B) of the active segment, what it had at the instant is copied, with its indexes. If that is more than
    MOST_COPIED_AGAIN, an empty segment follows: a broker that opens the copy appends there, not to the large file;
(C) the other files are written as a clean shutdown at the instant would have left them.

If the log has lost or replaced one of these segments meanwhile (retention, compaction, truncation, deletion of the
topic), LogHasChanged is raised: freeze again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator
from functools import partial

from odradek.storage.checkpoint import LEADER_EPOCH, PARTITION_METADATA, write_epochs, write_partition_metadata
from odradek.storage.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from odradek.storage.files import File, Files
from odradek.storage.log.log import Log
from odradek.storage.producers.snapshot_format import write_snapshot
from odradek.storage.segment.segment import LogSegment

MOST_COPIED_AGAIN = 64 << 10
SLICE_BYTES = 1 << 20

Work = Callable[[], None]
FreezingSteps = Generator[Work | None, None, None]
"""Yields functions to run in any thread before the next step, which raise OSError, and None for a turn of the loop."""


class LogHasChanged(Exception):
    """The log does not have the segments any more that it had at the instant."""


def prepare(log: Log) -> None:
    """Reads what a FrozenLog needs, so that making it does not wait for the disk. Raises OSError."""
    active = log.segments.active
    if active.size and not active.knows_its_times:
        assert active.max_timestamp is not None
    if active.size:
        len(active.offset_index), len(active.time_index)


class FrozenLog:
    """Made at the instant, on the loop."""

    def __init__(self, log: Log) -> None:
        state, active = log.state, log.segments.active
        self.topic_partition = log.topic_partition
        self.log_start_offset = state.log_start_offset
        self.high_watermark = state.high_watermark
        self.log_end_offset = state.log_end_offset
        self.cleaned_offset = state.cleaned_offset
        self._log = log
        self._generation = state.generation
        self._segments = list(log.segments)
        self._size = active.size
        self._offset_entries = len(active.offset_index) if active.size else 0
        self._time_entries = len(active.time_index) if active.size else 0
        self._last_time = (active.max_timestamp, active.offset_of_max_timestamp) if active.size else (-1, 0)
        self._epochs = log.leader_epochs.entries
        self._producers = write_snapshot(log.producers.state.producers.values())

    def steps(self, files: Files, folder: str) -> FreezingSteps:
        """Writes the files. `files` and `folder`: where to. Raises LogHasChanged and OSError."""
        files.make_directories(folder)
        for segment in self._segments[:-1]:
            yield from self._second_name(segment, files, folder)
            yield None
        yield from self._copy_active(files, folder)
        self._write_others(files, folder)

    # ---- (A)

    def _second_name(self, segment: LogSegment, files: Files, folder: str) -> FreezingSteps:
        self._check(segment)
        if not segment.is_released:
            segment.write_indexes()
            segment.transaction_index.write()
        own, missing = self._log.files, []
        for suffix in SEGMENT_SUFFIXES:
            source = segment.path(suffix)
            target = f"{folder}/{offset_file_name(segment.base_offset, suffix)}"
            if own.exists(source) and not own.link(source, target) and not own.reflink(source, target):
                missing.append(copying(own, source, files, target))
        self._log.segments.forget_use(segment)
        segment.release()
        yield from missing

    def _check(self, segment: LogSegment) -> None:
        if self._log.state.generation != self._generation or segment not in self._log.segments:
            raise LogHasChanged(str(self.topic_partition))

    # ---- (B)

    def _copy_active(self, files: Files, folder: str) -> FreezingSteps:
        active, end = self._segments[-1], self.log_end_offset
        self._check(active)

        def path(suffix: str, offset: int = active.base_offset) -> str:
            return f"{folder}/{offset_file_name(offset, suffix)}"

        offsets = active.offset_index.packed(self._offset_entries) if self._size else b""
        times = active.time_index.packed_with(self._time_entries, *self._last_time) if self._size else b""
        aborted = active.transaction_index.packed_below(end)
        copy = copying(self._log.files, active.path(LOG_SUFFIX), files, path(LOG_SUFFIX), self._size)
        if self._size > MOST_COPIED_AGAIN:
            yield copy
            self._check(active)
        else:
            copy()
            yield None
        write(files, path(INDEX_SUFFIX), offsets)
        write(files, path(TIME_INDEX_SUFFIX), times)
        if aborted:
            write(files, path(TRANSACTION_INDEX_SUFFIX), aborted)
        if self._size > MOST_COPIED_AGAIN:
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                write(files, path(suffix, end), b"")

    # ---- (C)

    def _write_others(self, files: Files, folder: str) -> None:
        write_epochs(files, f"{folder}/{LEADER_EPOCH}", self._epochs, sync=False)
        topic_id = self._log.folder.topic_id
        if topic_id is not None:
            write_partition_metadata(files, f"{folder}/{PARTITION_METADATA}", topic_id, sync=False)
        if self.log_end_offset:
            write(files, f"{folder}/{offset_file_name(self.log_end_offset, SNAPSHOT_SUFFIX)}", self._producers)


def write(files: Files, path: str, data: bytes) -> None:
    """Writes a new file, without a sync. Raises OSError."""
    file = files.open(path, create=True, exclusive=True)
    try:
        if data:
            file.write((data,), 0)
    finally:
        file.close()


def copying(source_files: Files, source: str, files: Files, target: str, size: int | None = None) -> Work:
    """Opens a file, and returns a function that copies it, or its first `size` bytes, to a new file with the same time.
    Both raise OSError.
    """
    opened = source_files.open(source)
    return partial(_copy, opened, files, target, opened.size() if size is None else size)


def _copy(source: File, files: Files, target: str, size: int) -> None:
    try:
        copy = files.open(target, create=True, exclusive=True)
        try:
            for position in range(0, size, SLICE_BYTES):
                length = min(SLICE_BYTES, size - position)
                data = source.read(position, length)
                if len(data) != length:
                    raise OSError(errno.EIO, "the file is shorter than it was", source.path)
                copy.write((data,), position)
        finally:
            copy.close()
        files.set_modified_ms(target, source.modified_ms())
    finally:
        source.close()
