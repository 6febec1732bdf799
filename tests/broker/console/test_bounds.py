"""Ten thousand topics, groups or waiting requests: answers are cut, say how much they leave off, and come in steps."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

import pytest

from odradek.broker.background.stepwise import Pace, Steps, finished
from odradek.broker.console.console import Console, encoded
from odradek.broker.console.groups import groups
from odradek.broker.console.queries import MOST_ROWS, Query
from odradek.broker.console.requesters import MOST_LOOKED_AT
from odradek.broker.console.selection import LONGEST_TEXT, SORTED_PER_STEP, Row, select
from odradek.broker.console.topics import topics
from odradek.broker.console.waiting import waiting
from odradek.broker.console.wheel import wheel
from odradek.broker.metadata.metadata_cache import PartitionState, TopicMetadata
from odradek.broker.metrics.sources import MetricSources
from odradek.broker.server import Broker
from odradek.purgatory import DelayedTopicChange
from tests.broker.console.test_api import broker_with_console, coordinate
from tests.broker.replica.test_over_sockets import client_of
from tests.patience import until

MANY = 10_000
T = TypeVar("T")


def steps_of(steps: Steps[T]) -> tuple[int, T]:
    """Runs the steps. Returns their number and their value."""
    for number in count(1):
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return number, value
    raise AssertionError


def add_topics(broker: Broker, number: int) -> None:
    state = PartitionState(0, broker.broker_id, 0, (broker.broker_id,), (broker.broker_id,))
    for n in range(number):
        broker.metadata.put_topic(TopicMetadata(f"topic-{n:05}", UUID(int=n + 1), {0: state}), {})


def park(sources: MetricSources, number: int) -> None:
    """Parks operations whose deadlines come in the reverse order, ten seconds apart: parking them takes less."""
    for n in range(number):
        operation = DelayedTopicChange((number - n) * 10_000, lambda: False, lambda: None)
        sources.topic_purgatory.try_complete_else_watch(operation, (f"topic-{n}", "all"))


def of_topics(found: Row) -> dict[str, Any]:
    [purgatory] = [each for each in found["purgatories"] if each["name"] == "topic"]
    assert isinstance(purgatory, dict)
    return purgatory


async def test_ten_thousand_topics_come_in_pages_and_in_steps() -> None:
    async with broker_with_console() as (broker, _):
        add_topics(broker, MANY)
        steps, found = steps_of(topics(broker.metric_sources(), Query(limit=MOST_ROWS)))
        assert steps > MANY / SORTED_PER_STEP
        assert (found["total"], found["matching"], len(found["rows"])) == (MANY, MANY, MOST_ROWS)
        assert found["left_off"] == MANY - MOST_ROWS
        last = finished(topics(broker.metric_sources(), Query(offset=MANY - 1)))
        assert [row["name"] for row in last["rows"]] == [f"topic-{MANY - 1:05}"]
        assert last["left_off"] == 0


async def test_of_ten_thousand_waiting_the_soonest_are_shown_and_the_others_counted() -> None:
    async with broker_with_console() as (broker, _):
        sources = broker.metric_sources()
        park(sources, MANY)
        steps, found = steps_of(waiting(sources, Query(limit=100)))
        shown = of_topics(found)
        assert steps > 2 * MANY / 1000
        assert (shown["waiting"], shown["left_off"], len(shown["rows"])) == (MANY, MANY - 100, 100)
        assert shown["rows"][0]["keys"] == [f"topic-{MANY - 1}", "all"]
        deadlines = [row["deadline_ms"] for row in shown["rows"]]
        assert deadlines == sorted(deadlines)
        steps, state = steps_of(wheel(sources, Query()))
        assert sum(sum(level["tasks"]) for level in state["levels"]) == state["tasks"] >= MANY


async def test_beyond_a_bound_waiting_operations_are_only_counted() -> None:
    async with broker_with_console() as (broker, _):
        sources = broker.metric_sources()
        park(sources, MOST_LOOKED_AT + 1000)
        shown = of_topics(finished(waiting(sources, Query(limit=1))))
        assert (shown["waiting"], shown["left_off"]) == (MOST_LOOKED_AT + 1000, MOST_LOOKED_AT + 999)


async def test_operations_may_end_between_two_steps() -> None:
    async with broker_with_console() as (broker, _):
        sources = broker.metric_sources()
        park(sources, 2000)
        steps = waiting(sources, Query(limit=MOST_ROWS))
        for _ in range(5):
            next(steps)
        sources.topic_purgatory.shutdown()
        shown = of_topics(finished(steps))
        assert (shown["waiting"], shown["rows"]) == (0, [])


async def test_ten_thousand_groups_come_in_steps() -> None:
    async with broker_with_console() as (broker, _), client_of(broker) as client:
        await coordinate(client, "any")
        sources = broker.metric_sources()
        await until(sources.group_coordinator.shards)
        [shard, *_] = sources.group_coordinator.shards()
        for n in range(MANY):
            shard.group_or_new(f"group-{n:05}")
        steps, found = steps_of(groups(sources, Query(search="group-0999")))
        assert steps > MANY / SORTED_PER_STEP
        assert [row["name"] for row in found["rows"]] == [f"group-0999{n}" for n in range(10)]


def test_long_answers_are_encoded_in_steps() -> None:
    rows = [{"name": "🦔" * LONGEST_TEXT, "number": number, "clients": [{}]} for number in range(5000)]
    document = {"now_ms": 1, "purgatories": [{"name": "Fetch", "rows": rows}, {"name": "topic", "rows": []}]}
    steps, text = steps_of(encoded(document, Pace()))
    assert json.loads(text) == document
    assert len(text) / steps < 1_000_000
    assert steps_of(encoded({"total": 0, "rows": []}, Pace()))[1] == '{"total": 0, "rows": []}'


async def test_answers_take_turns_one_step_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with broker_with_console() as (broker, _):
        console = Console(broker.status, broker.config, broker.background.turns)
        turn = 0
        steps: list[int] = []

        def three_steps(_sources: MetricSources, _query: Query) -> Steps[Row]:
            for _ in range(3):
                steps.append(turn)
                yield
            return {}

        async def count_turns() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        monkeypatch.setitem(console._views, "topics", (three_steps, frozenset()))
        counting = asyncio.ensure_future(count_turns())
        pages = await asyncio.gather(*(console.answer("/api/topics", "") for _ in range(4)))
        counting.cancel()
    assert [page is not None and page.body for page in pages] == [b"{}\n"] * 4
    assert len(steps) == 12
    assert len(set(steps)) == 12


def test_a_selection_is_the_page_of_the_sorted_names() -> None:
    names = [f"{n * 7919 % 5000:04}" for n in range(5000)]
    for offset in (0, 999, 1000, 4990):
        found = finished(select(names, str, Query(offset=offset, limit=20)))
        assert found.found == sorted(names)[offset : offset + 20]
        assert (found.matching, found.total) == (5000, 5000)
