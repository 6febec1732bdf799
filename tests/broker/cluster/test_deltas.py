"""Deltas: what listeners hear of topics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

from odradek.broker.cluster.deltas import BrokersChanged, Delta, Deltas, TopicChanged, TopicNews, TopicsListed
from odradek.broker.metadata.metadata_cache import MetadataCache, PartitionState

ONE, OTHER = UUID(int=1), UUID(int=2)
UNUSED: Any = None


class Heard:
    """A listener, and the deltas that it listens to."""

    def __init__(self) -> None:
        self.metadata = MetadataCache("", 1)
        self.deltas = Deltas(self.metadata, UNUSED, UNUSED, UNUSED, None, UNUSED, lambda: None)
        self.deltas.listeners.append(self)
        self.news: list[tuple[str, TopicNews]] = []
        self.steps = 0

    def topic_changed(self, topic: str, news: TopicNews) -> Iterator[None]:
        assert self.metadata.is_complete
        self.news.append((topic, news))
        yield
        self.steps += 1

    async def of(self, *deltas: Delta) -> list[tuple[str, TopicNews]]:
        async def listed() -> AsyncIterator[Delta]:
            for delta in deltas:
                yield delta

        self.news = []
        await self.deltas.apply(listed())
        return self.news


def states(*partitions: int, leader_epoch: int = 0) -> list[PartitionState]:
    return [PartitionState(number, 1, leader_epoch, (1,), (1,)) for number in partitions]


async def test_a_listener_hears_of_new_and_larger_and_deleted_topics_and_of_nothing_else() -> None:
    heard = Heard()
    assert await heard.of(TopicChanged("t", ONE, states(0, 1))) == [("t", TopicNews.CREATED)]
    assert await heard.of(TopicChanged("t", ONE, states(0, leader_epoch=1)), BrokersChanged(1, [])) == []
    assert await heard.of(TopicChanged("t", ONE, states(2))) == [("t", TopicNews.EXTENDED)]
    assert await heard.of(TopicChanged("t", ONE, states(0))) == [], "a late copy"
    assert await heard.of(TopicChanged("t", ONE, [], deleted=[0, 1])) == []
    assert await heard.of(TopicChanged("t", ONE, [], deleted=[2])) == [("t", TopicNews.DELETED)]
    assert heard.steps == 3


async def test_a_listener_hears_of_partitions_that_move() -> None:
    heard = Heard()
    await heard.of(TopicChanged("t", ONE, states(0, 1)))
    moving = PartitionState(1, 1, 1, (1, 2), (1,), adding=(2,))
    assert await heard.of(TopicChanged("t", ONE, [moving])) == [("t", TopicNews.MOVED)]
    assert await heard.of(TopicChanged("t", ONE, [moving._replace(leader_epoch=2, isr=(1, 2))])) == []
    back = moving._replace(leader_epoch=3, replicas=(1,), adding=())
    assert await heard.of(TopicChanged("t", ONE, [back, *states(2)])) == [("t", TopicNews.EXTENDED)]
    assert await heard.of(
        TopicChanged("u", OTHER, states(0)), TopicChanged("u", OTHER, [moving._replace(partition=0)])
    ) == [("u", TopicNews.CREATED)]


async def test_a_topic_with_the_name_of_another_one_is_new() -> None:
    heard = Heard()
    await heard.of(TopicChanged("t", ONE, states(0, leader_epoch=5)))
    assert await heard.of(TopicChanged("t", OTHER, states(0))) == [("t", TopicNews.CREATED)]


async def test_topics_that_are_not_listed_have_vanished() -> None:
    heard = Heard()
    await heard.of(TopicChanged("a", ONE, states(0)), TopicChanged("b", OTHER, states(0)))
    assert await heard.of(TopicsListed(["b"])) == [("a", TopicNews.VANISHED)]
    assert heard.metadata.topic_names() == ["b"]
