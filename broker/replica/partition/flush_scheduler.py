"""Flushes appended records to disk. Durability is an offset that operations wait for.

(A) `flush.messages`: the append that completes this many unflushed records waits for its flush, whatever its acks
    (except 0). Many appends may wait for one fsync: while a flush is in progress, further appends accumulate and share
    the next one (group commit).
(B) `flush.ms`: a record is on disk at the latest this long after it was appended; no request waits for it.

Each partition has at most one fsync in progress, in a thread, so that other partitions are still served. When it is
done, the log's flushed offset is updated on the loop, and `on_flushed` completes the waiting operations. A failed fsync
is not retried for the same records (the operating system may have dropped them): the log reports the error, and
`on_failed` completes the waiting operations. A follower waits with `until_flushed` before it fetches on.

Source: Kafka's log.flush.interval.messages and log.flush.interval.ms, which flush within the append instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.replica.partition.partition_flushes import flush_until_enough
from odradek.protocol.errors import ProtocolError
from odradek.timer import TimerTask

if TYPE_CHECKING:
    from odradek.broker.background.tasks import Threads
    from odradek.broker.replica.partition.partition import Partition
    from odradek.storage.log.flushing import FlushJob
    from odradek.timer import SystemTimer

NEVER_MS = 0x7FFFFFFFFFFFFFFF


class FlushTask(TimerTask):
    """The timer of (B): runs once, `flush.ms` after the first append since the last flush."""

    def __init__(self, delay_ms: int, flusher: FlushScheduler, partition: Partition) -> None:
        super().__init__(delay_ms)
        self._flusher = flusher
        self._partition = partition

    def run(self) -> None:
        self._flusher.due(self._partition)


class FlushScheduler:
    def __init__(
        self,
        background: Threads,
        timer: SystemTimer,
        on_flushed: Callable[[Partition], None],
        on_failed: Callable[[Partition, ProtocolError], None],
    ) -> None:
        self.background = background
        self._timer = timer
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._under_way: dict[Partition, None] = {}
        self._tasks: dict[Partition, FlushTask] = {}
        self._ends: dict[Partition, asyncio.Future[None]] = {}
        self.flushes = 0

    def appended(self, partition: Partition, *, required: bool) -> None:
        """Starts or schedules the flush that the partition's policy requires after an append."""
        if required:
            self.start(partition)
            return
        delay_ms = partition.log.config.flush_ms
        if delay_ms is not None and delay_ms != NEVER_MS and partition not in self._tasks:
            task = self._tasks[partition] = FlushTask(delay_ms, self, partition)
            self._timer.add(task)

    def due(self, partition: Partition) -> None:
        self._tasks.pop(partition, None)
        self.start(partition)

    def start(self, partition: Partition) -> None:
        """Flushes everything appended so far. If a flush is in progress, it checks at its end whether another is
        needed.
        """
        if partition not in self._under_way:
            self._under_way[partition] = None
            self.background.spawn(flush_until_enough(self, partition), f"flush {partition.topic_partition}")

    def until_flushed(self, partition: Partition) -> asyncio.Future[None] | None:
        """Returns None if the policy requires no flush of the records appended so far; else a future of the end of the
        flush, to be shared, so do not cancel it. The flush may have failed (`Partition.has_failed`).
        """
        if not partition.needs_flush or partition.has_failed:
            return None
        end = self._ends.get(partition)
        if end is None:
            end = self._ends[partition] = asyncio.get_running_loop().create_future()
        self.start(partition)
        return end

    def forget(self, partition: Partition) -> None:
        """Cancels the timer of a partition that is removed."""
        task = self._tasks.pop(partition, None)
        if task is not None:
            task.cancel()

    def begin(self, partition: Partition) -> FlushJob | None:
        """Returns the data to sync, or None if it is already flushed. Raises KAFKA_STORAGE_ERROR."""
        job = partition.log.begin_flush()
        if job is None:
            self._on_flushed(partition)
        else:
            self.flushes += 1
        return job

    def finish(self, partition: Partition, job: FlushJob) -> bool:
        """Runs after job.run(). Returns whether everything that operations wait for is flushed. Raises
        KAFKA_STORAGE_ERROR.
        """
        partition.log.flusher.finish(job)
        self._on_flushed(partition)
        return partition.required_flush_offset <= partition.log.state.recovery_point

    def failed(self, partition: Partition, error: ProtocolError) -> None:
        self._on_failed(partition, error)

    def ended(self, partition: Partition) -> None:
        """Marks the flush as ended, so that the next append that requires a flush starts one."""
        self._under_way.pop(partition, None)
        end = self._ends.pop(partition, None)
        if end is not None and not end.done():
            end.set_result(None)
