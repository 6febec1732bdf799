"""DescribeTopicPartitions over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.metadata.metadata_cache import GROUP_TOPIC
from odradek.broker.metadata.new_topic import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.topic_partitions import DescribeTopicPartitionsRequest
from odradek.protocol.wire_codes import AclOperation as Op
from odradek.protocol.wire_codes import AclResourceType as On
from tests.broker.handlers.scripted_authorizer import Question, ScriptedAuthorizer, api_with, but
from tests.wire.api import Api, api_of_a_broker

TOPICS = {"a": 3, "b": 1, "c": 2}
NOBODY = UUID(int=0)
_Topic, _Cursor = DescribeTopicPartitionsRequest.TopicRequest, DescribeTopicPartitionsRequest.Cursor

Cursor = tuple[str, int] | None
Page = tuple[dict[str, list[int]], Cursor]


async def with_topics(api: Api) -> Api:
    await api.broker.controller.topics.create(
        [NewTopic(name, count) for name, count in TOPICS.items()], timeout_ms=10_000
    )
    return api


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker() as api:
        yield await with_topics(api)


async def describe(api: Api, *names: str, cursor: Cursor = None, limit: int = 2000) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[_Topic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else _Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return await api(request, 0)


async def page(api: Api, *names: str, cursor: Cursor = None, limit: int = 2000) -> Page:
    response = await describe(api, *names, cursor=cursor, limit=limit)
    found = {topic.name: [one.partition_index for one in topic.partitions] for topic in response.topics}
    following = response.next_cursor
    return found, None if following is None else (following.topic_name, following.partition_index)


async def test_a_topic_is_described_with_its_leaders_and_operations(api: Api) -> None:
    (topic,) = (await describe(api, "b")).topics
    metadata = api.broker.metadata
    node = metadata.broker_id
    assert (topic.error_code, topic.topic_id, topic.is_internal) == (0, metadata.topic_id("b"), False)
    assert topic.topic_authorized_operations == 3576
    (one,) = topic.partitions
    assert (one.error_code, one.leader_id, one.leader_epoch) == (0, node, 0)
    assert (one.replica_nodes, one.isr_nodes, one.offline_replicas) == ([node], [node], [])
    assert (one.eligible_leader_replicas, one.last_known_elr) == ([], [])


async def test_all_topics_are_sorted_and_named_ones_are_described_once(api: Api) -> None:
    assert await page(api) == ({"a": [0, 1, 2], "b": [0], "c": [0, 1]}, None)
    assert await page(api, "c", "a", "c") == ({"a": [0, 1, 2], "c": [0, 1]}, None)


async def test_the_pages_together_have_every_partition_once(api: Api) -> None:
    for limit in range(1, 8):
        seen: list[tuple[str, int]] = []
        cursor: Cursor = None
        for _ in range(7):
            found, cursor = await page(api, limit=limit, cursor=cursor)
            seen += [(name, number) for name, numbers in found.items() for number in numbers]
            assert len(seen) <= 6
            if cursor is None:
                break
        assert seen == [(name, number) for name, count in TOPICS.items() for number in range(count)]


@pytest.mark.parametrize(
    ("limit", "cursor", "expected"),
    [
        (2, None, ({"a": [0, 1]}, ("a", 2))),
        (3, None, ({"a": [0, 1, 2]}, ("b", 0))),
        (0, None, ({"a": [0]}, ("a", 1))),
        (-5, ("a", 1), ({"a": [1]}, ("a", 2))),
        (5, ("a", 2), ({"a": [2], "b": [0], "c": [0, 1]}, None)),
        (5, ("a", 9), ({"a": [], "b": [0], "c": [0, 1]}, None)),
        (5, ("aa", 2), ({"b": [0], "c": [0, 1]}, None)),
        (5, ("d", 0), ({}, None)),
    ],
)
async def test_a_page_begins_at_the_cursor_and_ends_at_the_limit(
    api: Api, limit: int, cursor: Cursor, expected: Page
) -> None:
    assert await page(api, limit=limit, cursor=cursor) == expected


async def test_the_brokers_limit_is_the_lower_one() -> None:
    async with api_of_a_broker({"max.request.partition.size.limit": 2}) as api:
        assert await page(await with_topics(api)) == ({"a": [0, 1]}, ("a", 2))


@pytest.mark.parametrize(("names", "cursor"), [(("b", "c"), ("a", 0)), (("b",), ("b", -1))])
async def test_a_cursor_that_no_page_has_is_refused(api: Api, names: tuple[str, ...], cursor: Cursor) -> None:
    response = await describe(api, *names, cursor=cursor)
    assert [(each.name, each.error_code) for each in response.topics] == [
        (name, ErrorCode.INVALID_REQUEST) for name in names
    ]
    assert (await describe(api, cursor=("a", -1))).topics == []


async def test_a_named_topic_that_does_not_exist_has_an_error_and_takes_no_room(api: Api) -> None:
    response = await describe(api, "none", "bad/name", GROUP_TOPIC, "b", limit=1)
    assert [(each.name, each.error_code, each.is_internal) for each in response.topics] == [
        (GROUP_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        ("b", ErrorCode.NONE, False),
    ]
    assert response.next_cursor.topic_name == "bad/name"
    response = await describe(api, "none", "bad/name")
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("bad/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_a_client_sees_only_what_it_may_describe() -> None:
    authorizer = ScriptedAuthorizer(but(Question(Op.DESCRIBE, On.TOPIC, "a")))
    async with api_with(authorizer) as api:
        await with_topics(api)
        assert await page(api) == ({"b": [0], "c": [0, 1]}, None)
        response = await describe(api, "a", "b")
        assert [(each.name, each.error_code, each.topic_id == NOBODY) for each in response.topics] == [
            ("b", ErrorCode.NONE, False),
            ("a", ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
        ]
