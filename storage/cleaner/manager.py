"""Which logs are cleaned when, which are being cleaned, and which are uncleanable (Kafka's LogCleanerManager).

A clean runs beside appends, DeleteRecords and reads. `is_valid` turns False, and the clean is given up, after a
truncation, the deletion of the partition, a topic that is no longer compacted, a disk failure, or a move to another log
directory (until it has ended). The log is cleaned again in a later round. Retention skips a log that is being cleaned.

Everything here is synchronous and runs on the loop.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.cleaner.candidates import LogToClean, clean_job, log_to_clean
from odradek.storage.cleaner.job import CleanedGroup, CleanJob
from odradek.storage.cleaner.swap import discard_cleaned, replace_segments
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import Log
from odradek.storage.segment.segment import LogSegment
from odradek.storage.segment.transaction_index import CorruptTransactionIndex
from odradek.timer.clock import Clock

_log = structlog.get_logger(__name__)


class Clean(NamedTuple):
    """A clean in progress: of `log` as it was at `generation`, with its segments by base offset."""

    to_clean: LogToClean
    job: CleanJob
    generation: int
    segments: dict[int, LogSegment]

    @property
    def log(self) -> Log:
        return self.to_clean.log


class CleanerManager:
    """`dirtiest_ratio`: the ratio of the dirtiest log in the last search, at `last_run_ms` (wall clock). `delayed`,
    `max_delay_ms`: the number and the largest delay of the logs that were then due by max.compaction.lag.ms.
    """

    def __init__(self, logs: LogManager, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._uncleanable: set[Log] = set()
        self._postponed: set[Log] = set()
        self.in_progress: dict[TopicPartition, Clean] = {}
        self.dirtiest_ratio = 0.0
        self.last_run_ms = clock.wall_ms()
        self.max_delay_ms = 0
        self.delayed = 0

    @property
    def ms_since_last_run(self) -> int:
        return self._clock.wall_ms() - self.last_run_ms

    def dirtiest(self) -> LogToClean | None:
        """Returns the log with the largest share of dirty bytes, of those that are due."""
        now_ms = self.last_run_ms = self._clock.wall_ms()
        dirty = [found for log in self._compacted() if (found := self._look_at(log, now_ms)) and found.total_bytes]
        self.dirtiest_ratio = max((found.cleanable_ratio for found in dirty), default=0.0)
        self.max_delay_ms = max((found.delay_ms for found in dirty), default=0)
        self.delayed = sum(found.delay_ms > 0 for found in dirty)
        due = [found for found in dirty if found.is_due]
        return max(due, key=lambda found: found.cleanable_ratio, default=None)

    def _compacted(self) -> list[Log]:
        self._forget_deleted()
        return [
            log
            for key, log in self._logs.logs.items()
            if log.config.compact
            and log.folder.failure is None
            and key not in self.in_progress
            and self._logs.moves.get(key) is None
            and log not in self._postponed
            and log not in self._uncleanable
        ]

    def _look_at(self, log: Log, now_ms: int) -> LogToClean | None:
        try:
            return log_to_clean(log, now_ms)
        except OSError as error:
            self.mark_uncleanable(log, str(error))
            return None

    def begin(self, to_clean: LogToClean, map_bytes: int, chunk_bytes: int) -> Clean | None:
        """Returns None, after marking the log as uncleanable, if it cannot be cleaned."""
        log = to_clean.log
        try:
            job = clean_job(to_clean, self._clock.wall_ms(), map_bytes, chunk_bytes, log)
        except (OSError, CorruptTransactionIndex) as error:
            self.mark_uncleanable(log, str(error))
            return None
        segments = {segment.base_offset: segment for segment in log.segments}
        clean = Clean(to_clean, job, log.state.generation, segments)
        self.in_progress[log.topic_partition] = clean
        log.state.cleaning_begun()
        return clean

    def is_valid(self, clean: Clean) -> bool:
        """Whether the conditions under which the clean began still hold."""
        log = clean.log
        return (
            self._logs.get(log.topic_partition) is log
            and self._logs.moves.get(log.topic_partition) is None
            and log.config.compact
            and log.state.generation == clean.generation
            and log.folder.failure is None
        )

    def swap(self, clean: Clean, group: CleanedGroup) -> list[str]:
        """Swaps in a cleaned group; returns the paths to remove after syncing the directory. Raises OSError."""
        old = [clean.segments[base] for base in group.replaced]
        if not all(segment in clean.log.segments for segment in old):
            discard_cleaned(clean.log, group.base_offset)
            raise OSError(2, "a segment was removed while it was being cleaned", clean.log.folder.path)
        return replace_segments(clean.log, group.base_offset, old)

    def discard(self, clean: Clean, group: CleanedGroup) -> None:
        """Removes the files of a group that is not needed any more, unless the log itself is gone."""
        if self._logs.get(clean.log.topic_partition) is clean.log:
            discard_cleaned(clean.log, group.base_offset)

    def done(self, clean: Clean, end_offset: int | None) -> None:
        """Ends a clean; an `end_offset` of None means that it was given up."""
        self.in_progress.pop(clean.log.topic_partition, None)
        clean.log.state.cleaning_ended()
        if end_offset is not None:
            clean.log.state.cleaned_to(end_offset)

    # ---- logs that cannot be cleaned

    def postpone(self, log: Log, reason: str) -> None:
        """After a disk error: cleans other logs first, until the next round."""
        _log.error("clean failed", partition=str(log.topic_partition), directory=log.folder.path, reason=reason)
        self._postponed.add(log)

    def begin_round(self) -> None:
        """Makes postponed logs eligible again."""
        self._postponed.clear()

    def mark_uncleanable(self, log: Log, reason: str) -> None:
        """Skips the log until the broker restarts or the partition is recreated."""
        _log.error(
            "log marked uncleanable", partition=str(log.topic_partition), directory=log.folder.path, reason=reason
        )
        self._uncleanable.add(log)

    def _forget_deleted(self) -> None:
        self._uncleanable.intersection_update(self._logs.logs.values())

    def uncleanable(self) -> dict[str, list[Log]]:
        """Returns the uncleanable logs by the path of their log directory."""
        self._forget_deleted()
        found: dict[str, list[Log]] = {path: [] for path in self._logs.directories}
        for log in sorted(self._uncleanable, key=lambda log: log.topic_partition):
            found[self._logs.directory_of(log)].append(log)
        return found

    def uncleanable_bytes(self, log: Log) -> int:
        """Returns the number of bytes that a clean of the log would process."""
        try:
            return log_to_clean(log, self._clock.wall_ms()).cleanable_bytes
        except OSError:
            return 0
