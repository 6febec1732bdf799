"""What consumer groups know of the cluster's topics, and when their hashes change."""

from __future__ import annotations

from uuid import UUID

from odradek.broker.coordinator.group.cluster_topics import ClusterTopics
from odradek.broker.coordinator.group.consumer.topic_hash import NO_TOPICS
from odradek.broker.metadata.metadata_cache import BrokerInfo, MetadataCache, PartitionState

T, U = UUID(int=5), UUID(int=6)


def put(metadata: MetadataCache, name: str, topic_id: UUID, *replicas: tuple[int, ...]) -> None:
    states = {number: PartitionState(number, 1, 0, brokers, brokers) for number, brokers in enumerate(replicas)}
    metadata.put_partitions(name, topic_id, states)


def cluster(*racks: str | None) -> tuple[MetadataCache, ClusterTopics]:
    """Brokers 1, 2 and so on, with these racks; topic "t" has two partitions."""
    metadata = MetadataCache("", 1)
    place(metadata, *racks)
    put(metadata, "t", T, (1, 2), (2,))
    return metadata, ClusterTopics(metadata)


def place(metadata: MetadataCache, *racks: str | None) -> None:
    metadata.put_brokers(BrokerInfo(number, {}, rack) for number, rack in enumerate(racks, 1))


def test_topics_are_those_of_the_metadata() -> None:
    metadata, topics = cluster(None, None)
    assert (topics.topic_id("t"), topics.name(T), topics.partition_count(T)) == (T, "t", 2)
    assert (topics.topic_id("u"), topics.name(U), topics.partition_count(U)) == (None, None, None)
    put(metadata, "u", U, (1,))
    assert list(topics.names()) == ["t", "u"]


def test_new_topics_raise_the_version() -> None:
    metadata, topics = cluster(None, None)
    version = topics.version
    topics.has_changed("t", is_new=False)
    assert topics.version == version
    put(metadata, "u", U, (1,))
    topics.has_changed("u", is_new=True)
    assert topics.version != version


def test_a_hash_is_kept_until_the_topic_has_changed() -> None:
    metadata, topics = cluster(None, None)
    assert topics.hash_of("u") == NO_TOPICS
    first = topics.hash_of("t")
    put(metadata, "t", T, (1,), (1,), (1,))
    assert topics.hash_of("t") == first
    topics.has_changed("t", is_new=False)
    assert topics.hash_of("t") not in (first, NO_TOPICS)
    metadata.remove_topic("t")
    topics.has_changed("t", is_new=False)
    assert topics.hash_of("t") == NO_TOPICS


def test_the_racks_of_replicas_count() -> None:
    metadata, topics = cluster("east", None)
    assert (list(topics.racks(T, 0)), list(topics.racks(T, 1)), list(topics.racks(T, 7))) == (["east"], [], [])
    first = topics.hash_of("t")
    place(metadata, "east", "west")
    assert topics.hash_of("t") == first
    assert topics.racks_have_changed()
    assert topics.hash_of("t") != first
    assert list(topics.racks(T, 0)) == ["east", "west"]


def test_a_broker_that_is_away_keeps_its_rack() -> None:
    metadata, topics = cluster("east", "west")
    first = topics.hash_of("t")
    place(metadata, "east")
    assert not topics.racks_have_changed()
    assert topics.hash_of("t") == first
