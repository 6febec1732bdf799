"""Counts of requests that ended by their timeout; the metrics exporter reads them.

Kafka: DelayedProduceMetrics (in total and by partition), DelayedFetchMetrics (followers' and consumers'),
DelayedDeleteRecordsMetrics (in total).
"""

from odradek.protocol.topic_partition import TopicPartition


class PartitionExpirations:
    """Timeouts by partition that was still pending. `total` keeps the counts of forgotten partitions."""

    __slots__ = ("by_partition", "total")

    def __init__(self) -> None:
        self.total: int = 0
        self.by_partition: dict[TopicPartition, int] = {}

    def record(self, topic_partition: TopicPartition) -> None:
        self.total += 1
        self.by_partition[topic_partition] = self.by_partition.get(topic_partition, 0) + 1

    def forget(self, topic_partition: TopicPartition) -> None:
        """Drops the count of a deleted partition."""
        self.by_partition.pop(topic_partition, None)


class FetchExpirations:
    """Timeouts of fetches."""

    __slots__ = ("consumer", "follower")

    def __init__(self) -> None:
        self.consumer: int = 0
        self.follower: int = 0

    def record(self, is_from_follower: bool) -> None:
        if is_from_follower:
            self.follower += 1
        else:
            self.consumer += 1
