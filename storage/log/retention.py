"""Deletes segments that are below the log's start offset, exceed the size limit, or are too old.

Only whole segments are deleted, from the front, and only below the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from odradek.storage.log.folder import LogFolder
from odradek.storage.log.log_state import LogState
from odradek.storage.log.segments import LogSegments
from odradek.storage.log.start_offset import LogStart
from odradek.storage.log.writer import LogWriter
from odradek.storage.log_config import LogConfig
from odradek.storage.producers.snapshots import ProducerSnapshots
from odradek.storage.segment.segment import LogSegment

_log = structlog.get_logger(__name__)

SEGMENTS_PER_STEP = 32
"""How many segments of a log are deleted before other logs have their turn. Renaming their files takes time."""


class Retention:
    __slots__ = ("_folder", "_segments", "_snapshots", "_start", "_state", "_writer")

    def __init__(
        self,
        state: LogState,
        folder: LogFolder,
        segments: LogSegments,
        snapshots: ProducerSnapshots,
        start: LogStart,
        writer: LogWriter,
    ) -> None:
        self._state = state
        self._folder = folder
        self._segments = segments
        self._snapshots = snapshots
        self._start = start
        self._writer = writer

    def step(self, config: LogConfig, now_ms: int) -> int:
        """Deletes up to SEGMENTS_PER_STEP segments and returns how many; a smaller number means that none are left to
        delete. A log that is being cleaned or truncated keeps all segments. `now_ms` is wall clock time. Raises
        KAFKA_STORAGE_ERROR.
        """
        if self._state.being_cleaned or self._state.truncating_to is not None:
            return 0
        try:
            deleted = self._delete_before_start(config, SEGMENTS_PER_STEP)
            if config.delete:
                deleted += self._delete_by_size(config, SEGMENTS_PER_STEP - deleted)
                deleted += self._delete_by_time(config, now_ms, SEGMENTS_PER_STEP - deleted)
        except OSError as error:
            raise self._writer.storage_error("retention failed", error) from error
        return deleted

    def _delete_before_start(self, config: LogConfig, at_most: int) -> int:
        def before_start(segment: LogSegment, next_base: int | None) -> bool:
            return next_base is not None and next_base <= self._state.log_start_offset

        return self._delete_while(before_start, config, "start", at_most)

    def _delete_by_size(self, config: LogConfig, at_most: int) -> int:
        if config.retention_bytes < 0:
            return 0
        surplus = self._segments.size_in_bytes - config.retention_bytes

        def too_much(segment: LogSegment, next_base: int | None) -> bool:
            nonlocal surplus
            if surplus < segment.size:
                return False
            surplus -= segment.size
            return True

        return self._delete_while(too_much, config, "size", at_most)

    def _delete_by_time(self, config: LogConfig, now_ms: int, at_most: int) -> int:
        if config.retention_ms < 0:
            return 0

        def too_old(segment: LogSegment, next_base: int | None) -> bool:
            return now_ms - self._segments.use(segment).largest_timestamp > config.retention_ms

        return self._delete_while(too_old, config, "time", at_most)

    def _delete_while(
        self, wanted: Callable[[LogSegment, int | None], bool], config: LogConfig, reason: str, at_most: int
    ) -> int:
        """Deletes up to `at_most` segments from the front, while they are below the high watermark and `wanted(segment,
        next segment's base offset)` returns True. Records of open transactions are deleted too; such a transaction then
        starts at the log start offset.
        """
        state, segments = self._state, self._segments
        doomed = []
        for slot, segment in enumerate(segments[:at_most]):
            next_base = segments.next_base(slot)
            end = state.log_end_offset if next_base is None else next_base
            is_empty_end = next_base is None and segment.size == 0
            if state.high_watermark < end or is_empty_end or not wanted(segment, next_base):
                break
            doomed.append(segment)
        if not doomed:
            return 0
        if doomed[-1] is segments.active:
            self._writer.roll(config)
        last = segments.index(doomed[-1])
        self._start.advance_to(segments.base_offsets[last + 1], f"retention by {reason}")
        for segment in doomed:
            segments.delete(segment, self._snapshots, config.file_delete_delay_ms)
        _log.info(
            "segments deleted",
            partition=str(self._folder.topic_partition),
            reason=reason,
            base_offsets=[segment.base_offset for segment in doomed],
        )
        return len(doomed)
