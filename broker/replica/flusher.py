"""Bringing appended records to the disk: durability is an offset that those who need it wait for.

(A) `flush.messages`: the append that completes so many unflushed records waits for its flush, whatever its acks (but
    0). Many appends may wait for one fsync: while one is under way the next ones gather, and all of them share the
    one after it (group commit).
(B) `flush.ms`: a record is on the disk this long after it was appended, at the latest; nobody waits for it.

One fsync at a time for each partition, in a thread, so that the others are served meanwhile. When it has ended the
log's flushed offset moves on the loop, and `on_flushed` lets those go on who waited. An fsync that fails is not tried
again for the same records (the operating system may have dropped them): the log says so in its own words, and
`on_failed` answers those who wait.

Source: Kafka's log.flush.interval.messages and log.flush.interval.ms, which flush within the append instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.replica.flushes import flush_until_enough
from odradek.timer import TimerTask

if TYPE_CHECKING:
    from odradek.broker.background.tasks import Threads
    from odradek.broker.replica.partition import Partition
    from odradek.protocol.topic_partition import TopicPartition
    from odradek.storage.flushing import FlushJob
    from odradek.timer import SystemTimer

NEVER_MS = 0x7FFFFFFFFFFFFFFF


class FlushTask(TimerTask):
    """(B): runs once, `flush.ms` after the first append since the last flush."""

    def __init__(self, delay_ms: int, flusher: LogFlusher, partition: Partition) -> None:
        super().__init__(delay_ms)
        self._flusher = flusher
        self._partition = partition

    def run(self) -> None:
        self._flusher.due(self._partition)


class LogFlusher:
    def __init__(
        self,
        background: Threads,
        timer: SystemTimer,
        on_flushed: Callable[[Partition], None],
        on_failed: Callable[[Partition], None],
    ) -> None:
        self.background = background
        self._timer = timer
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._under_way: set[TopicPartition] = set()
        self._tasks: dict[TopicPartition, FlushTask] = {}
        self.flushes = 0

    def appended(self, partition: Partition, *, required: bool) -> None:
        """After an append: starts what the partition's flush policy asks for."""
        if required:
            self.start(partition)
            return
        delay_ms = partition.log.config.flush_ms
        if delay_ms is not None and delay_ms != NEVER_MS and partition.topic_partition not in self._tasks:
            task = self._tasks[partition.topic_partition] = FlushTask(delay_ms, self, partition)
            self._timer.add(task)

    def due(self, partition: Partition) -> None:
        self._tasks.pop(partition.topic_partition, None)
        self.start(partition)

    def start(self, partition: Partition) -> None:
        """Flushes everything appended so far, unless a flush is under way: then its end looks whether another is
        needed.
        """
        if partition.topic_partition not in self._under_way:
            self._under_way.add(partition.topic_partition)
            self.background.spawn(flush_until_enough(self, partition), f"flush {partition.topic_partition}")

    def forget(self, partition: Partition) -> None:
        """The partition goes away."""
        task = self._tasks.pop(partition.topic_partition, None)
        if task is not None:
            task.cancel()

    def begin(self, partition: Partition) -> FlushJob | None:
        """What is to be synced; None if somebody else has flushed it. Raises KAFKA_STORAGE_ERROR."""
        job = partition.log.begin_flush()
        if job is None:
            self._on_flushed(partition)
        else:
            self.flushes += 1
        return job

    def finish(self, partition: Partition, job: FlushJob) -> bool:
        """After job.run(): whether all is flushed that somebody waits for. Raises KAFKA_STORAGE_ERROR."""
        partition.log.finish_flush(job)
        self._on_flushed(partition)
        return partition.required_flush_offset <= partition.log.flushed_offset

    def failed(self, partition: Partition) -> None:
        self._on_failed(partition)

    def ended(self, partition: Partition) -> None:
        """The next append that asks for a flush starts one."""
        self._under_way.discard(partition.topic_partition)
