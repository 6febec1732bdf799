"""Who hears of the leaderships of internal topics: each topic's coordinator, which appends to the partitions that this
broker leads, and so is made after them.
"""

from __future__ import annotations

from typing import Protocol

from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.protocol.topic_partition import TopicPartition


class LeadershipListener(Protocol):
    """Receives the events of the partitions of one topic that this broker leads."""

    def elected(self, partition: int, leader_epoch: int) -> None:
        """This broker became the partition's leader, in that epoch; the log is open for reads and appends."""

    def resigned(self, partition: int) -> None:
        """This broker is no longer the leader, and the log may be gone. No effect if it was not the leader."""

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """A marker was appended to the partition, and the high watermark has passed the marker."""


class Leaderships:
    """The listeners by topic."""

    def __init__(self, partitions: HostedPartitions) -> None:
        self._partitions = partitions
        self._listeners: dict[str, LeadershipListener] = {}

    def report(self, topic: str, listener: LeadershipListener) -> None:
        """Reports the leaderships of the topic's partitions to `listener` from now on, first those that this broker has
        already. A topic has one listener: a later one takes its place.
        """
        self._listeners[topic] = listener
        for partition in self._partitions.of_topic(topic):
            if partition.is_leader:
                listener.elected(partition.topic_partition.partition, partition.leader_epoch)

    def elected(self, key: TopicPartition, leader_epoch: int) -> None:
        """See LeadershipListener; so the others."""
        if (listener := self._listeners.get(key.topic)) is not None:
            listener.elected(key.partition, leader_epoch)

    def resigned(self, key: TopicPartition) -> None:
        if (listener := self._listeners.get(key.topic)) is not None:
            listener.resigned(key.partition)

    def transaction_ended(self, key: TopicPartition, producer_id: int, producer_epoch: int, committed: bool) -> None:
        if (listener := self._listeners.get(key.topic)) is not None:
            listener.transaction_ended(key.partition, producer_id, producer_epoch, committed)
