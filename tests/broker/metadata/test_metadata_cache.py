from __future__ import annotations

import uuid

from odradek.broker.metadata.metadata_cache import MetadataCache, TopicMetadata


def cache_with(*names: str) -> MetadataCache:
    cache = MetadataCache("cluster", 0)
    for number, name in enumerate(names):
        cache.put_topic(TopicMetadata(name, uuid.UUID(int=number + 1), {}), {})
    return cache


def test_names_collide_when_only_dots_and_underscores_differ() -> None:
    cache = cache_with("x", "a_b.c")
    assert cache.colliding_topic("a.b_c") == "a_b.c"
    assert cache.colliding_topic("a_b.c") is None
    assert cache.colliding_topic("ab.c") is None


def test_a_deleted_topic_collides_with_no_name() -> None:
    cache = cache_with("a.b")
    cache.put_topic(TopicMetadata("a.b", uuid.UUID(int=9), {}), {})
    cache.remove_topic("a.b")
    cache.remove_topic("a.b")
    assert cache.colliding_topic("a_b") is None


def test_existing_colliding_topics_are_each_found_until_deleted() -> None:
    cache = cache_with("a.b", "a_b")
    assert cache.colliding_topic("a.b") == "a_b"
    cache.remove_topic("a.b")
    assert cache.colliding_topic("a.b") == "a_b"
    assert cache.colliding_topic("a_b") is None
