"""A topic's name and a partition's number: the key of all state of a partition."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        """The name of the partition's directory, `topic-partition` (Kafka's TopicPartition.toString)."""
        return f"{self.topic}-{self.partition}"
