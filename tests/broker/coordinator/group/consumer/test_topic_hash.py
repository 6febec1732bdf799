"""The hash of a group's topics, by which Kafka's coordinator and ours see the same change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

import pytest

from odradek.broker.coordinator.group.consumer.topic_hash import NO_TOPICS, TopicHashes, group_hash, topic_hash

RACK = "rack-\u00c3\u00bc1"
FOO = UUID("e11b8d3f-7c8a-4c2e-9a51-0d1c6bb0a7f2")


class OneTopic:
    def __init__(self, partitions: int, racks: Sequence[Sequence[str]] = ()) -> None:
        self._partitions = partitions
        self._racks = racks

    def topic_id(self, name: str) -> UUID | None:
        return FOO if name == "foo" else None

    def partition_count(self, topic_id: UUID) -> int | None:
        return self._partitions

    def racks(self, topic_id: UUID, partition: int) -> Sequence[str]:
        return self._racks[partition] if self._racks else ()


class ControlsTopics:
    """Two topics of a broker of Apache Kafka 4.4.0 whose `broker.rack` is RACK."""

    ids: ClassVar = {
        "foo": UUID("3b118d64-1ea8-4de0-a543-da2fa76ce654"),
        "bar.baz": UUID("631eb27d-c679-4fd5-b516-bd427c137a5d"),
    }
    counts: ClassVar = {ids["foo"]: 6, ids["bar.baz"]: 3}

    def topic_id(self, name: str) -> UUID | None:
        return self.ids.get(name)

    def partition_count(self, topic_id: UUID) -> int | None:
        return self.counts[topic_id]

    def racks(self, topic_id: UUID, partition: int) -> Sequence[str]:
        return [RACK]


@pytest.mark.parametrize(
    ("names", "hashed"),
    [
        (("foo",), -6659896561777253280),
        (("foo", "bar.baz"), 5462318565741810751),
        (("bar.baz", "missing"), 2769583443036996361),
    ],
)
def test_the_hash_is_the_one_in_kafka_s_log(names: Sequence[str], hashed: int) -> None:
    assert group_hash(names, lambda name: topic_hash(ControlsTopics(), name)) == hashed


def test_a_topic_that_does_not_exist_changes_no_hash() -> None:
    assert topic_hash(OneTopic(1), "bar") == NO_TOPICS
    hashes = {"foo": 7, "bar": NO_TOPICS}
    assert group_hash(["bar", "foo"], hashes.__getitem__) == group_hash(["foo"], hashes.__getitem__)
    assert group_hash(["bar"], hashes.__getitem__) == NO_TOPICS


def test_the_hash_depends_on_partitions_and_racks_but_not_on_the_order_of_racks() -> None:
    kinds = [
        OneTopic(1),
        OneTopic(2),
        OneTopic(2, [["a"], ["b"]]),
        OneTopic(2, [["b"], ["a"]]),
        OneTopic(2, [["a", "a"], ["b"]]),
    ]
    hashes = [topic_hash(each, "foo") for each in kinds]
    assert len(set(hashes)) == len(hashes)
    assert topic_hash(OneTopic(1, [["a", "b"]]), "foo") == topic_hash(OneTopic(1, [["b", "a"]]), "foo")


def test_a_group_s_hash_does_not_depend_on_the_order_of_its_topics() -> None:
    hashes = {"a": 1, "b": -2}
    assert group_hash(["a", "b"], hashes.__getitem__) == group_hash(["b", "a"], hashes.__getitem__)


def test_a_topic_s_hash_is_kept_until_it_is_forgotten() -> None:
    computed: list[str] = []

    def hash_of(name: str) -> int:
        computed.append(name)
        return len(computed)

    hashes = TopicHashes(hash_of)
    assert [hashes("a"), hashes("a"), hashes("b")] == [1, 1, 2]
    hashes.forget("a")
    assert [hashes("a"), hashes("b")] == [3, 2]
    hashes.forget_all()
    assert hashes("b") == 4
