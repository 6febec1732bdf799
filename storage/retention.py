"""What leaves the log: by age, by size, by DeleteRecords, by truncation.

Segments go from the front, whole, and only below the high watermark. A deleted segment's files are renamed at once
(`.deleted`) and removed after file.delete.delay.ms, so that a read in flight still finds its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import structlog

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage import log_append
from odradek.storage.log_names import DELETED_SUFFIX, SEGMENT_SUFFIXES
from odradek.storage.producer_replay import rebuild_producer_state

if TYPE_CHECKING:
    from odradek.storage.log import Log
    from odradek.storage.segment import LogSegment

_log = structlog.get_logger(__name__)

SEGMENTS_PER_STEP = 32
"""How many segments of a log go before others have their turn: their files are renamed, which takes a while."""


def delete_records_before(log: Log, offset: int) -> int:
    """See Log.delete_records_before."""
    if offset == -1:
        offset = log.high_watermark
    if offset < 0 or offset > log.high_watermark:
        raise ProtocolError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.topic_partition} can begin at most at its high watermark {log.high_watermark}, not at {offset}",
        )
    advance_log_start_offset(log, offset, "records deleted")
    return log.log_start_offset


def advance_log_start_offset(log: Log, offset: int, reason: str) -> None:
    if offset <= log.log_start_offset:
        return
    log.log_start_offset = offset
    if log.high_watermark < offset:
        log.update_high_watermark(offset)
    log.recovery_point = max(log.recovery_point, min(offset, log.log_end_offset))
    log.forget_positions()
    log.producer_state.forget_replicated(offset)
    _log.info("log_start_offset_moved", partition=str(log.topic_partition), offset=offset, reason=reason)
    try:
        log.leader_epochs.truncate_from_start(offset)
    except OSError as error:  # on a full disk this may be what makes room; epochs that are too old do no harm
        _log.warning("leader_epochs_not_written", partition=str(log.topic_partition), reason=str(error))


def retention_steps(log: Log, now_ms: int) -> Iterator[int]:
    """See Log.retention_steps. Each step looks at the log as it is then."""
    while True:
        deleted = _retention_step(log, now_ms)
        yield deleted
        if deleted < SEGMENTS_PER_STEP:
            return


def _retention_step(log: Log, now_ms: int) -> int:
    if log.being_cleaned:
        return 0
    config = log.config
    try:
        deleted = _delete_while(
            log,
            lambda segment, next_base: next_base is not None and next_base <= log.log_start_offset,
            "start",
            SEGMENTS_PER_STEP,
        )
        if config.delete:
            deleted += _delete_by_size(log, config.retention_bytes, SEGMENTS_PER_STEP - deleted)
            deleted += _delete_by_time(log, config.retention_ms, now_ms, SEGMENTS_PER_STEP - deleted)
    except OSError as error:
        raise log_append.storage_error(log, "retention_failed", error) from error
    return deleted


def _delete_by_size(log: Log, retention_bytes: int, at_most: int) -> int:
    if retention_bytes < 0:
        return 0
    surplus = log.size - retention_bytes

    def too_much(segment: LogSegment, next_base: int | None) -> bool:
        nonlocal surplus
        if surplus < segment.size:
            return False
        surplus -= segment.size
        return True

    return _delete_while(log, too_much, "size", at_most)


def _delete_by_time(log: Log, retention_ms: int, now_ms: int, at_most: int) -> int:
    if retention_ms < 0:
        return 0

    def too_old(segment: LogSegment, next_base: int | None) -> bool:
        return now_ms - log.use(segment).largest_timestamp > retention_ms

    return _delete_while(log, too_old, "time", at_most)


def _delete_while(log: Log, wanted: Callable[[LogSegment, int | None], bool], reason: str, at_most: int) -> int:
    """Deletes from the front, up to so many, while `wanted(segment, next segment's base offset)` and everything lies
    below the high watermark. What an open transaction has there goes too: its records then begin where the log does.
    """
    doomed = []
    for slot, segment in enumerate(log.segments[:at_most]):
        is_last = slot + 1 == len(log.segments)
        next_base = None if is_last else log.base_offsets[slot + 1]
        end = log.log_end_offset if next_base is None else next_base
        if log.high_watermark < end or (is_last and segment.size == 0) or not wanted(segment, next_base):
            break
        doomed.append(segment)
    if not doomed:
        return 0
    if doomed[-1] is log.active_segment:
        log.roll()
    last = log.segments.index(doomed[-1])
    advance_log_start_offset(log, log.base_offsets[last + 1], f"retention by {reason}")
    for segment in doomed:
        delete_segment(log, segment)
    _log.info(
        "segments_deleted",
        partition=str(log.topic_partition),
        reason=reason,
        base_offsets=[segment.base_offset for segment in doomed],
    )
    return len(doomed)


def delete_segment(log: Log, segment: LogSegment) -> None:
    """Takes the segment out of the log; its files, and the producer snapshot at its base, are removed later."""
    log.segments.drop(segment)
    segment.close_files()
    log.forget_positions()
    due_ms = log.clock.now_ms() + log.config.file_delete_delay_ms
    paths = [segment.path(suffix) for suffix in SEGMENT_SUFFIXES]
    snapshot = log.snapshots.release(segment.base_offset)
    for path in paths if snapshot is None else [*paths, snapshot]:
        if log.files.exists(path):
            log.files.rename(path, path + DELETED_SUFFIX)
            log.removals.append((due_ms, path + DELETED_SUFFIX))


def truncate_to(log: Log, offset: int) -> bool:
    """See Log.truncate_to."""
    if offset >= log.log_end_offset:
        log.leader_epochs.truncate_from_end(log.log_end_offset)
        return False
    log.generation += 1
    log.recovery_point = min(log.recovery_point, offset)
    if log.cleaned_offset is not None:
        log.cleaned_offset = min(log.cleaned_offset, offset)
    if offset < log.base_offsets[0]:
        _start_over(log, offset)
        return True
    for segment in [segment for segment in log.segments if segment.base_offset > offset]:
        delete_segment(log, segment)
    active = log.active_segment
    if active in log.unsynced_segments:
        log.unsynced_segments.remove(active)
    log.cache.forget(active)
    active.truncate_to(offset, log.clock.wall_ms())
    log.log_end_offset = offset
    log.leader_epochs.truncate_from_end(offset)
    log.log_start_offset = min(log.log_start_offset, offset)
    rebuild_producer_state(log)
    # what was cut off must not come back after a crash, nor must its snapshots
    active.file.sync()
    log.files.sync_directory(log.directory)
    log.forget_positions()
    log.update_high_watermark(min(log.high_watermark, offset))
    return True


def _start_over(log: Log, offset: int) -> None:
    """An empty log at `offset`, which lies below everything that the log had."""
    segment = log.new_segment(offset)
    for old in list(log.segments):
        delete_segment(log, old)
    log.segments.add(segment)
    log.directory_changed = True
    log.log_start_offset = log.log_end_offset = offset
    log.leader_epochs.clear()
    rebuild_producer_state(log)
    log.update_high_watermark(offset)
