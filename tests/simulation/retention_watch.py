"""Judges each step of a log's retention when it has been taken: which segments it has deleted, and whether it should.

A segment may go if all of it lies before the log's start, if the rest of the log is as large as retention.bytes, or if
its last record is older than retention.ms; never what the high watermark has not passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from odradek.broker.replica.partition.partition import Partition
from odradek.protocol.errors import ProtocolError
from odradek.storage.log.log import Log
from tests.simulation.history import History
from tests.simulation.log_contents import segment_contents
from tests.simulation.loop import ProcessEnded
from tests.simulation.retention_history import Retained

LONGEST_RUN_MS = 600_000
NEVER_MS = 1 << 60


class SealedSegment(NamedTuple):
    """A segment before a step."""

    base_offset: int
    end_offset: int
    size: int
    last_ms: int
    """The largest timestamp of its records."""


class BeforeRetention(NamedTuple):
    """A log before a step."""

    segments: list[SealedSegment]
    start_offset: int
    high_watermark: int


def watch_retention(history: History, process: str, replica_manager: Any) -> None:
    """Wraps the replica manager's steps."""
    retention_of = replica_manager._retention_of

    def watched(partition: Partition, now_ms: int) -> Iterator[int]:
        log = partition.log
        steps = retention_of(partition, now_ms)
        before = _before(log)

        def note(reason: str) -> None:
            start = log.state.log_start_offset
            if start != before.start_offset or reason:
                key = partition.topic_partition
                history.note(Retained(process=process, partition=key, start_offset=start, reason=reason))

        try:
            while (deleted := next(steps, None)) is not None:
                note(_why_wrong(log, before, now_ms))
                yield deleted
                before = _before(log)
        except (ProtocolError, ProcessEnded):  # the start has moved, and not all segments before it are gone
            note("")
            raise

    replica_manager._retention_of = watched


def _before(log: Log) -> BeforeRetention:
    ends = [*log.segments.base_offsets[1:], log.state.log_end_offset]
    segments = [
        SealedSegment(segment.base_offset, end, segment.size, _last_ms(log, number))
        for number, (segment, end) in enumerate(zip(log.segments, ends, strict=True))
    ]
    return BeforeRetention(segments, log.state.log_start_offset, log.state.high_watermark)


def _last_ms(log: Log, number: int) -> int:
    """Read only where something may be so old, for it takes time."""
    if log.config.retention_ms > LONGEST_RUN_MS:
        return NEVER_MS
    return max((each.header.max_timestamp for each in segment_contents(log, log.segments[number]).batches), default=0)


def _why_wrong(log: Log, before: BeforeRetention, now_ms: int) -> str:
    first = log.segments.base_offsets[0]
    size = sum(segment.size for segment in before.segments)
    config = log.config
    for segment in before.segments:
        if segment.base_offset >= first:
            break
        size -= segment.size
        is_too_old = config.delete and 0 <= config.retention_ms < now_ms - segment.last_ms
        is_too_much = config.delete and 0 <= config.retention_bytes <= size
        if segment.end_offset > before.high_watermark:
            return f"up to {segment.end_offset}, above the high watermark {before.high_watermark}"
        if not (segment.end_offset <= before.start_offset or is_too_old or is_too_much):
            return f"up to {segment.end_offset}, which is neither too old nor too much"
    if log.state.truncating_to is not None:
        return ""  # it starts where it will when it has lost all its segments
    expected = max(before.start_offset, first)
    return "" if log.state.log_start_offset == expected else f"and not before {expected}"
