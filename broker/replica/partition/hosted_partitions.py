"""The partitions on this broker, by topic and number, and those that are offline because of a disk failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odradek.broker.replica.partition.offline_replica import OfflineReplica
from odradek.broker.replica.partition.partition import Partition
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition


class HostedPartitions:
    """`is_known` returns whether the cluster has such a partition, on any broker."""

    __slots__ = ("_by_topic", "_is_known", "_online", "offline")

    def __init__(self, is_known: Callable[[TopicPartition], bool]) -> None:
        self._is_known = is_known
        self._online: dict[TopicPartition, Partition] = {}
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self.offline: dict[TopicPartition, OfflineReplica] = {}

    def __len__(self) -> int:
        return len(self._online)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._online.values()))

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._online

    def find(self, topic_partition: TopicPartition) -> Partition:
        """Returns the partition. Raises KAFKA_STORAGE_ERROR (its disk failed), NOT_LEADER_OR_FOLLOWER (only other
        brokers have it) or UNKNOWN_TOPIC_OR_PARTITION.
        """
        partition = self._online.get(topic_partition)
        if partition is not None:
            return partition
        offline = self.offline.get(topic_partition)
        if offline is not None:
            raise offline.error
        if self._is_known(topic_partition):
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        return self._online.get(topic_partition)

    def put(self, partition: Partition) -> None:
        topic, number = key = partition.topic_partition
        self._online[key] = partition
        self._by_topic.setdefault(topic, {})[number] = partition
        self.offline.pop(key, None)

    def pop(self, topic_partition: TopicPartition) -> Partition | None:
        partition = self._online.pop(topic_partition, None)
        if partition is not None:
            of_topic = self._by_topic[topic_partition.topic]
            del of_topic[topic_partition.partition]
            if not of_topic:
                del self._by_topic[topic_partition.topic]
        return partition

    def of_topic(self, topic: str) -> list[Partition]:
        return list(self._by_topic.get(topic, {}).values())
