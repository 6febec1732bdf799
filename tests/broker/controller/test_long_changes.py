"""Changes of very many topics, partitions or settings: other tasks and other changes run in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import pytest

from odradek.broker.controller.metadata_store import Create
from odradek.broker.controller.reassignment import ElectionType
from odradek.broker.controller.state import MOST_CONFIG_BYTES, MOST_SETTINGS, NewPartitions, NewTopic
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.controller.rooms import ControllerRoom, at_once

MANY = 300
LEAST_TURNS = 8


@pytest.fixture
async def room() -> ControllerRoom:
    return await ControllerRoom().start()


async def turns_during(change: Coroutine[Any, Any, Any]) -> int:
    """Returns the number of loop turns that another task gets during the change."""
    task = asyncio.ensure_future(change)
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    task.result()
    return turns


async def turns_while(condition: Callable[[], bool]) -> None:
    while condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


def topics(count: int = MANY) -> list[NewTopic]:
    return [NewTopic(f"t{number}", 1, 1) for number in range(count)]


async def test_many_topics_are_planned_created_and_deleted_over_many_turns(room: ControllerRoom) -> None:
    controller = room.controller
    wishes = topics()
    planning = controller.create_topics(wishes, timeout_ms=1000, validate_only=True)
    assert await turns_during(planning) >= LEAST_TURNS
    assert await turns_during(controller.create_topics(wishes, timeout_ms=60_000)) >= MANY
    raising = controller.create_partitions(
        [NewPartitions(f"t{number}", 2) for number in range(MANY)], timeout_ms=60_000
    )
    assert await turns_during(raising) >= LEAST_TURNS
    setting = controller.alter_broker_config(None, at_once(lambda _: {"log.segment.bytes": "2000"}))
    assert await turns_during(setting) >= LEAST_TURNS
    assert {config.segment_bytes for config in room.partitions.configs.values()} == {2000}
    keys = [TopicPartition(f"t{number}", 0) for number in range(MANY)]
    assert await turns_during(controller.replica_changes.elect(ElectionType.PREFERRED, keys)) >= 3
    deleting = controller.delete_topics([wish.name for wish in wishes], timeout_ms=60_000)
    assert await turns_during(deleting) >= LEAST_TURNS
    assert room.cache.topic_names() == []


async def test_another_change_runs_between_the_topics_of_a_long_one(room: ControllerRoom) -> None:
    await room.controller.create_topics([NewTopic("other", 1, 1)], timeout_ms=1000)
    long = asyncio.ensure_future(room.controller.create_topics(topics(), timeout_ms=60_000))
    await turns_while(lambda: room.cache.topic_count == 1)
    await room.controller.alter_topic_config("other", at_once(lambda _: {"retention.ms": "5"}))
    assert not long.done()
    assert 1 < room.cache.topic_count < MANY
    await long
    names = [f"t{number}" for number in range(MANY)]
    deleting = asyncio.ensure_future(room.controller.delete_topics(names, timeout_ms=60_000))
    await turns_while(lambda: room.cache.topic_count > 1)
    await room.controller.alter_topic_config("other", at_once(lambda _: {}))
    assert not deleting.done()
    assert await deleting == [None] * MANY


async def test_a_second_deletion_of_a_topic_waits_for_the_first(room: ControllerRoom) -> None:
    await room.controller.create_topics(topics(3), timeout_ms=1000)
    names = ["t0", "t1", "t2"]
    first = asyncio.ensure_future(room.controller.delete_topics(names, timeout_ms=1000))
    await turns_while(lambda: room.cache.topic_count > 0)
    assert not first.done()
    assert await room.controller.delete_topics(["t2"], timeout_ms=1000) == [None]
    assert room.partitions.led.get(TopicPartition("t2", 0)) is None
    assert await first == [None] * 3


async def test_a_topic_with_very_many_partitions_is_stored_in_steps(room: ControllerRoom) -> None:
    operations = [Create("/many"), *(Create(f"/many/{number}", b"x") for number in range(5_000))]
    assert await turns_during(room.store.multi(operations)) >= LEAST_TURNS
    assert len(await room.store.children("/many")) == 5_000


def instead(after: dict[str, str], _before: Mapping[str, str]) -> dict[str, str]:
    return after


async def test_the_number_and_size_of_a_resources_settings_are_bounded(room: ControllerRoom) -> None:
    most = {f"plug.in.{number}": "" for number in range(MOST_SETTINGS)}
    await room.controller.alter_broker_config(None, at_once(lambda _: most))
    for config in ({**most, "one.more": ""}, {"a": "x" * MOST_CONFIG_BYTES}):
        for validate_only in (True, False):
            change = at_once(partial(instead, config))
            with pytest.raises(ProtocolError) as caught:
                await room.controller.alter_broker_config(None, change, validate_only=validate_only)
            assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert room.cache.broker_config(None) == most
