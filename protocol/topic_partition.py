"""A topic's name with a partition's number: the key under which everything about a partition is kept."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        """The name of the partition's folder, `topic-partition` (Kafka's TopicPartition.toString)."""
        return f"{self.topic}-{self.partition}"
