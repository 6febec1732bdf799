"""Notifies the operations and fetch sessions that wait for a change of a partition.

Nothing is completed here. The completion queue checks the noted keys once the running handler has finished. A waiting
produce, delete or plain fetch is watched under its partitions; a waiting fetch of a session under the session and those
of its partitions that are still pending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.purgatory import CompletionQueue, DelayedOperationPurgatory

if TYPE_CHECKING:
    from odradek.broker.replica.partition.partition import Partition


class Wakeups:
    __slots__ = ("_completions", "delete_records", "fetch", "produce")

    def __init__(
        self,
        completions: CompletionQueue,
        produce: DelayedOperationPurgatory,
        fetch: DelayedOperationPurgatory,
        delete_records: DelayedOperationPurgatory,
    ) -> None:
        self._completions = completions
        self.produce = produce
        self.fetch = fetch
        self.delete_records = delete_records

    def log_grew(self, partition: Partition) -> None:
        """After an append that the high watermark does not cover yet: followers may read it."""
        self._completions.add(self.fetch, partition.topic_partition)
        if partition.watchers:
            self._wake_sessions(partition)

    def watermark_moved(self, partition: Partition) -> None:
        """After a change of the high watermark, the last stable offset, the low watermark or the leader."""
        key = partition.topic_partition
        completions = self._completions
        completions.add(self.produce, key)
        completions.add(self.fetch, key)
        completions.add(self.delete_records, key)
        if partition.watchers:
            self._wake_sessions(partition)

    def flushed(self, partition: Partition) -> None:
        """After the flushed offset moved but the high watermark did not: a produce with acks=1 may wait for it."""
        self._completions.add(self.produce, partition.topic_partition)

    def replicas_changed(self, partition: Partition) -> None:
        """After the set of live replicas changed, and with it perhaps the low watermark."""
        self._completions.add(self.delete_records, partition.topic_partition)

    def _wake_sessions(self, partition: Partition) -> None:
        watchers, partition.watchers = partition.watchers, {}
        for watcher in watchers:
            key = watcher.awaken()
            if key is not None:
                partition.watchers[watcher] = None
                self._completions.add(self.fetch, key)
