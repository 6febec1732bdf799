"""The topics of the cluster as the metadata store has them when the broker starts: whose logs the broker loads.

The folder of a partition is known if the topic has it, with the same id, on this broker. Others (of a topic that was
deleted, or of a replica that was moved, while the broker was down) are not loaded. A topic whose entry is damaged is
logged, and its folders are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import structlog

from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Entry, MetadataStore, StoreDamaged
from odradek.broker.metadata_store.read_back import retry_until_connected
from odradek.protocol.topic_partition import TopicPartition

TOPICS_PER_READ = 100

log = structlog.get_logger("broker.cluster")


class KnownTopics:
    """Call `load` once the store is open."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._topics: dict[str, znodes.TopicAssignment] = {}

    async def load(self, store: MetadataStore) -> None:
        """Reads the assignments of all topics. While the connection is lost, it waits.

        Raises StoreUnavailable if the store is closed.
        """
        names = await retry_until_connected(store, lambda: store.children(znodes.TOPICS))
        for start in range(0, len(names), TOPICS_PER_READ):
            some = names[start : start + TOPICS_PER_READ]
            entries = await _entries(store, [znodes.topic_path(name) for name in some])
            for name, entry in zip(some, entries, strict=True):
                try:
                    if entry is not None:
                        self._topics[name] = znodes.parse_topic(name, entry.data)
                except StoreDamaged as error:
                    log.error("topic not readable", topic=name, reason=str(error))

    def has(self, topic_partition: TopicPartition, topic_id: UUID | None) -> bool:
        """Whether this broker has the partition. A folder without a topic id is known by its name."""
        topic = self._topics.get(topic_partition.topic)
        if topic is None or self._broker_id not in topic.replicas.get(topic_partition.partition, ()):
            return False
        return topic_id is None or topic.topic_id is None or topic_id == topic.topic_id


async def _entries(store: MetadataStore, paths: Sequence[str]) -> list[Entry | None]:
    return await retry_until_connected(store, lambda: store.entries(paths))
