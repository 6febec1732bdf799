"""ClusterTopics: what consumer groups know of the cluster's topics, from the broker's metadata."""

from __future__ import annotations

from collections.abc import KeysView, Sequence
from uuid import UUID

from odradek.broker.coordinator.group.consumer.topic_hash import TopicHashes, topic_hash
from odradek.broker.metadata.metadata_cache import MetadataCache


class ClusterTopics:
    """See `Topics`. `is_new` and `has_changed` tell it what has become of a topic."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self.version = 0
        self.hash_of = TopicHashes(lambda name: topic_hash(self, name))
        self._racks = self._racks_of_brokers()

    def topic_id(self, name: str) -> UUID | None:
        topic = self._metadata.topics.get(name)
        return None if topic is None else topic.topic_id

    def name(self, topic_id: UUID) -> str | None:
        return self._metadata.topic_name(topic_id)

    def partition_count(self, topic_id: UUID) -> int | None:
        topic = self._metadata.topic_by_id(topic_id)
        return None if topic is None else len(topic.partitions)

    def racks(self, topic_id: UUID, partition: int) -> Sequence[str]:
        topic = self._metadata.topic_by_id(topic_id)
        state = None if topic is None else topic.partitions.get(partition)
        racks = [] if state is None else [self._racks.get(broker_id) for broker_id in state.replicas]
        return [rack for rack in racks if rack is not None]

    def names(self) -> KeysView[str]:
        return self._metadata.topics.keys()

    # --- changes ------------------------------------------------------------------------------------------------

    def has_changed(self, name: str, *, is_new: bool) -> None:
        """The topic is new, gone, or has other partitions or replicas."""
        self.hash_of.forget(name)
        if is_new:
            self.version += 1

    def racks_have_changed(self) -> bool:
        """Takes over the racks of the live brokers. Returns whether they are others than before.

        A broker that is gone keeps its rack: its partitions have not moved.
        """
        racks = self._racks | self._racks_of_brokers()
        if racks == self._racks:
            return False
        self._racks = racks
        self.hash_of.forget_all()
        return True

    def _racks_of_brokers(self) -> dict[int, str | None]:
        return {broker.broker_id: broker.rack for broker in self._metadata.brokers.values()}
