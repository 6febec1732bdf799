"""Replacing segments with the cleaned segment that was made from them (Kafka's LocalLog.replaceSegments).

1. `.cleaned` files become `.swap` files. Until all have, a restart removes them and keeps the old segments.
2. The old segments' files become `.deleted`. From here on a restart finishes the replacement (see leftovers).
3. The `.swap` files get their final names.

Readers of an old file can continue: it exists until file.delete.delay.ms has passed. The cleaned files were synced
before. Their names are durable once the directory is synced; only then may old files be removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    offset_file_name,
)
from odradek.storage.segment.segment import LogSegment

if TYPE_CHECKING:
    from odradek.storage.log.log import Log


def replace_segments(log: Log, base_offset: int, replaced: list[LogSegment]) -> list[str]:
    """Replaces `replaced` with the cleaned segment at `base_offset`, which is also the first one's base offset.

    Returns the paths to remove after syncing the directory. Raises OSError, after which the log accepts no appends: its
    next start finishes the replacement. Until then it has the old segments, so that a read of what is no longer under
    its name fails, and skips nothing. Raises FileNotFoundError, without any change, if there is no cleaned segment.
    """
    log.files.size(f"{log.folder.path}/{offset_file_name(base_offset, LOG_SUFFIX)}{CLEANED_SUFFIX}")
    names = [offset_file_name(base_offset, suffix) for suffix in SEGMENT_SUFFIXES]
    paths = [f"{log.folder.path}/{name}" for name in names]
    paths = [path for path in paths if log.files.exists(path + CLEANED_SUFFIX)]
    try:
        for path in paths:
            log.files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        removed = [path for segment in replaced for path in _files_of(log, segment, base_offset)]
        for path in removed:
            log.files.rename(path, path + DELETED_SUFFIX)
        for path in paths:
            log.files.rename(path + SWAP_SUFFIX, path)
        cleaned = LogSegment(log.files, log.folder.path, base_offset, log.config, log.clock.wall_ms())
    except OSError as error:
        log.folder.fail(error)
        raise
    for segment in replaced:
        log.segments.drop(segment)
        segment.close_files()
        if segment.base_offset != base_offset:
            log.producers.snapshots.release(segment.base_offset)
    log.segments.add(cleaned)
    log.positions.forget()
    log.folder.mark_changed()
    return [path + DELETED_SUFFIX for path in removed]


def _files_of(log: Log, segment: LogSegment, base_offset: int) -> list[str]:
    """The segment's files, with the snapshot of producers unless it is the one at the base offset, which stays."""
    paths = [segment.path(suffix) for suffix in SEGMENT_SUFFIXES]
    if segment.base_offset != base_offset:
        paths.append(log.producers.snapshots.path(segment.base_offset))
    return [path for path in paths if log.files.exists(path)]


def discard_cleaned(log: Log, base_offset: int) -> None:
    """Removes a cleaned segment that is not needed any more. Raises OSError."""
    for suffix in SEGMENT_SUFFIXES:
        log.files.remove(f"{log.folder.path}/{offset_file_name(base_offset, suffix)}{CLEANED_SUFFIX}")
