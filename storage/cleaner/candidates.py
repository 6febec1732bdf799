"""Which of a log's offsets may be cleaned, how dirty the log is, and the job description for a cleaner (Kafka's
LogCleanerManager, LogToClean).

Nothing is cleaned at or after the first of these:
(A) the last stable offset, so that every transaction in a clean has ended;
(B) the active segment;
(C) the first segment with a record younger than min.compaction.lag.ms;
(D) the first segment that is not synced yet: its replacement must not be more durable than the segments after it. The
    segment that contains this offset is not cleaned at all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

import structlog

from odradek.storage.cleaner.job import ActiveProducer, CleanJob, SourceSegment
from odradek.storage.log.log import Log
from odradek.storage.log_config import LONG_MAX
from odradek.storage.segment.segment import LogSegment
from odradek.storage.segment.transaction_index import AbortedTransaction

_log = structlog.get_logger(__name__)


class LogToClean(NamedTuple):
    """`delay_ms`: for how long the log has been due by max.compaction.lag.ms. Sizes are those of whole segments."""

    log: Log
    first_dirty_offset: int
    upper_bound_offset: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        if self.delay_ms > 0 and self.cleanable_bytes > 0:
            return True
        return self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio


def log_to_clean(log: Log, now_ms: int) -> LogToClean:
    """Examines the log at `now_ms` (wall clock). An impossible `cleaned_offset` is corrected. Raises OSError."""
    first_dirty = _first_dirty_offset(log)
    upper_bound = log.segments[_first_uncleanable(log, first_dirty, now_ms)].base_offset
    start = min(first_dirty, upper_bound)
    bases = log.segments.base_offsets
    dirty_from = max(bisect_right(bases, start) - 1, 0)
    cleanable = sum(segment.size for segment in log.segments[dirty_from : bisect_left(bases, upper_bound)])
    clean = sum(segment.size for segment in log.segments[: bisect_left(bases, first_dirty)])
    delay_ms = _delay_ms(log, dirty_from, now_ms) if cleanable else 0
    return LogToClean(log, first_dirty, upper_bound, clean, cleanable, delay_ms)


def _first_dirty_offset(log: Log) -> int:
    cleaned = log.state.cleaned_offset
    if cleaned is None:
        return log.state.log_start_offset
    if log.state.log_start_offset <= cleaned <= log.state.log_end_offset:
        return cleaned
    if cleaned > log.state.log_end_offset or not log.config.delete:
        _log.warning(
            "cleaner offset reset",
            partition=str(log.topic_partition),
            cleaned_offset=cleaned,
            log_start_offset=log.state.log_start_offset,
            log_end_offset=log.state.log_end_offset,
        )
    log.state.cleaned_to(log.state.log_start_offset)
    return log.state.log_start_offset


def _first_uncleanable(log: Log, first_dirty: int, now_ms: int) -> int:
    """Returns the number of the first segment that must not be cleaned."""
    bases = log.segments.base_offsets
    offset = min(log.last_stable_offset, bases[-1])  # (A), (B)
    for segment in log.segments.unsynced:  # (D)
        offset = min(offset, segment.base_offset)
    number = max(bisect_right(bases, offset) - 1, 0)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:  # (C)
        for dirty in range(max(bisect_right(bases, first_dirty) - 1, 0), number):
            if log.segments.use(log.segments[dirty]).largest_timestamp > now_ms - lag_ms:
                return dirty
    return number


def _delay_ms(log: Log, dirty_from: int, now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= LONG_MAX:
        return 0
    times = [log.segments.use(segment).first_batch_timestamp for segment in log.segments[dirty_from:-1]]
    earliest = min((time for time in times if time > 0), default=now_ms)
    return max(now_ms - lag_ms - earliest, 0)


def clean_job(to_clean: LogToClean, now_ms: int, map_bytes: int, chunk_bytes: int, log: Log) -> CleanJob:
    """Returns the job description for a cleaner. Raises OSError, CorruptTransactionIndex."""
    number = bisect_left(log.segments.base_offsets, to_clean.upper_bound_offset)
    ends = log.segments.base_offsets[1 : number + 1]
    segments = [_source(log, segment, end) for segment, end in zip(log.segments[:number], ends, strict=True)]
    config = log.config
    return CleanJob(
        directory=log.folder.path,
        segments=segments,
        first_dirty_offset=to_clean.first_dirty_offset,
        upper_bound_offset=to_clean.upper_bound_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        max_decompressed_bytes=log.max_decompressed_bytes,
        map_bytes=map_bytes,
        chunk_bytes=chunk_bytes,
        aborted=_aborted(log),
        producers={
            producer_id: ActiveProducer(entry.batches[-1].last_offset if entry.batches else -1, entry.producer_epoch)
            for producer_id, entry in log.producers.state.producers.items()
        },
    )


def _source(log: Log, segment: LogSegment, end_offset: int) -> SourceSegment:
    files = log.files
    sizes = [
        files.size(index.path) if files.exists(index.path) else 0
        for index in (segment.offset_index, segment.time_index)
    ]
    return SourceSegment(
        segment.base_offset, end_offset, segment.size, sizes[0], sizes[1], files.modified_ms(segment.path(".log"))
    )


def _aborted(log: Log) -> list[AbortedTransaction]:
    """Includes segments that are not cleaned: a transaction may end in a later segment than it began."""
    found: list[AbortedTransaction] = []
    for segment in log.segments:
        found += segment.transaction_index.entries()
        if segment is not log.segments.active:
            segment.transaction_index.unload()
    return found
