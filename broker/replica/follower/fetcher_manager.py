"""The fetchers of this broker: they follow the partitions that other brokers lead.

There are up to num.replica.fetchers for each leader, each with a connection and a fetch session of its own; a partition
always has the same one of them. A fetcher is created with its first partition, and ends when it has had none for a
while.

(A) `add` and `remove` change roles. When `remove` returns, no response to an earlier request and no truncation changes
    the partition's log any more, so that the log may get another leader, or become a leader's.
(B) A fetcher passes on what happens to a log (FollowerEvents): an append starts the flushes that its topic asks for, a
    moved watermark wakes the requests that wait for it, and a failed log is reported to `on_log_failed`.

Source: Kafka's AbstractFetcherManager and ReplicaFetcherManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from zlib import crc32

from odradek.broker.background.tasks import Threads
from odradek.broker.replica.follower.fetcher_settings import FetcherSettings
from odradek.broker.replica.follower.fetcher_stats import FetcherStats
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import Clock

if TYPE_CHECKING:
    from odradek.broker.replica.follower.fetcher_loop import FetcherLoop, Leader, TruncationSteps
    from odradek.broker.replica.follower.fetcher_state import FetchFrom
    from odradek.broker.replica.partition.flush_scheduler import FlushScheduler
    from odradek.broker.replica.partition.partition import Partition
    from odradek.broker.replica.quota.replication_quota import ReplicationQuota


class FetcherManager:
    """`partitions`, `flusher`, `quota`, `watermark_moved`, `on_log_failed` are the replica manager's,
    `truncation_steps` the log manager's. `peer(broker_id, purpose)` returns a connection for one purpose (Peers).
    """

    def __init__(
        self,
        settings: FetcherSettings,
        *,
        partitions: Callable[[TopicPartition], Partition | None],
        peer: Callable[[int, str], Leader],
        truncation_steps: TruncationSteps,
        flusher: FlushScheduler,
        quota: ReplicationQuota,
        watermark_moved: Callable[[Partition], object],
        on_log_failed: Callable[[Partition, Exception], object],
        clock: Clock,
        background: Threads,
    ) -> None:
        self.stats = FetcherStats()
        self._settings = settings
        self._partitions = partitions
        self._peer = peer
        self._truncation_steps = truncation_steps
        self._flusher = flusher
        self._quota = quota
        self._watermark_moved = watermark_moved
        self._on_log_failed = on_log_failed
        self._clock = clock
        self._background = background
        self._loops: dict[tuple[int, int], FetcherLoop] = {}
        self._loop_of: dict[TopicPartition, FetcherLoop] = {}
        self._failed: dict[TopicPartition, None] = {}
        self._changing = asyncio.Lock()
        self._is_stopped = False

    def quota_changed(self) -> None:
        """The followers' quota has another limit, or concerns other replicas: fetchers that wait for it look again."""
        for loop in self._loops.values():
            loop.wake()

    # Roles (A)

    async def add(self, sources: Mapping[TopicPartition, FetchFrom]) -> None:
        """Follows these partitions from the ends of their logs. A partition that is already followed, from the same
        leader in the same epoch, goes on undisturbed; one that this broker does not host is left out. Has no effect
        after `stop`.
        """
        async with self._changing:
            await self._add(sources)

    async def remove(self, keys: Iterable[TopicPartition]) -> None:
        """Follows these partitions no more; see (A)."""
        async with self._changing:
            await self._remove(keys)

    async def resize(self, num_replica_fetchers: int) -> None:
        """Changes the number of fetchers per leader, and distributes the partitions anew."""
        async with self._changing:
            sources = {key: loop.fetcher.followed[key].source for key, loop in self._loop_of.items()}
            await self._remove(sources)
            self._settings = self._settings._replace(num_replica_fetchers=num_replica_fetchers)
            await self._add(sources)

    async def _add(self, sources: Mapping[TopicPartition, FetchFrom]) -> None:
        await self._remove(key for key, source in sources.items() if self._follows_another(key, source))
        if self._is_stopped:
            return
        woken: dict[FetcherLoop, None] = {}
        for key, source in sources.items():
            partition = self._partitions(key)
            if partition is not None:
                self._failed.pop(key, None)
                loop = self._loop_of[key] = self._loop_for(key, source.leader_id)
                loop.fetcher.follow(partition, source)
                woken[loop] = None
        for loop in woken:
            loop.wake()

    async def _remove(self, keys: Iterable[TopicPartition]) -> None:
        keys = list(keys)
        truncations: dict[asyncio.Task[object], None] = {}
        for key in keys:
            self._failed.pop(key, None)
            loop = self._loop_of.pop(key, None)
            if loop is not None:
                loop.fetcher.drop(key)
        for loop in self._loops.values():
            truncation = loop.truncation_of(keys)
            if truncation is not None:
                truncations[truncation] = None
        if truncations:
            await asyncio.wait(truncations)

    async def stop(self) -> None:
        """Ends all fetchers for good. Truncations under way are finished first."""
        self._is_stopped = True
        self._loop_of.clear()
        loops = list(self._loops.values())
        self._loops.clear()
        for loop in loops:
            await loop.stop()

    def _follows_another(self, key: TopicPartition, source: FetchFrom) -> bool:
        loop = self._loop_of.get(key)
        return loop is not None and loop.fetcher.followed[key].source != source

    def _loop_for(self, key: TopicPartition, leader_id: int) -> FetcherLoop:
        index = (31 * crc32(key.topic.encode("utf-8", "surrogatepass")) + key.partition) % (
            self._settings.num_replica_fetchers
        )
        loop = self._loops.get((leader_id, index))
        if loop is None:
            # A lone broker follows nobody, and so does not import the fetchers.
            from odradek.broker.replica.follower.fetcher import Fetcher
            from odradek.broker.replica.follower.fetcher_loop import FetcherLoop

            name = f"fetcher-{index}"
            loop = self._loops[leader_id, index] = FetcherLoop(
                Fetcher(leader_id, self._settings, self, self._quota, self.stats),
                self._peer(leader_id, name),
                name,
                truncation_steps=self._truncation_steps,
                until_flushed=self._flusher.until_flushed,
                clock=self._clock,
                background=self._background,
                timeout_ms=self._settings.replica_socket_timeout_ms,
                idle_ms=self._settings.replica_fetch_backoff_ms,
                on_idle=self._ended,
            )
        return loop

    def _ended(self, idle: FetcherLoop) -> None:
        self._loops = {key: loop for key, loop in self._loops.items() if loop is not idle}

    # Events (B)

    def appended(self, partition: Partition) -> None:
        """See FollowerEvents."""
        self._flusher.appended(partition, required=partition.needs_flush)

    def moved(self, partition: Partition) -> None:
        """See FollowerEvents."""
        self._watermark_moved(partition)

    def failed(self, partition: Partition, *, by_storage: bool) -> None:
        """See FollowerEvents."""
        key = partition.topic_partition
        self._loop_of.pop(key, None)
        self._failed[key] = None
        failure = partition.log.folder.failure
        if by_storage and failure is not None:
            self._on_log_failed(partition, failure)

    # Metrics

    @property
    def max_lag(self) -> int:
        """By how many records the slowest follower is behind its leader's high watermark (MaxLag)."""
        return max([0, *(loop.fetcher.max_lag for loop in self._loops.values())])

    @property
    def failed_partitions(self) -> int:
        """The number of partitions that are not followed because of an error (FailedPartitionsCount)."""
        return len(self._failed)
