"""Fetch sessions on a broker with an authorizer: what is decided when, and what happens when the ACLs change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from odradek.clients.network_client import NetworkClient
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.wire_codes import AclOperation, AclResourceType
from tests.base_requests import small_batch
from tests.broker.handlers.scripted_authorizer import Question, ScriptedAuthorizer, api_with, but, everything
from tests.wire import requests
from tests.wire.api import Api

TOPICS = [f"topic-{number}" for number in range(5)]
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
FETCH = 12
"""The last version with names."""


def reading(name: str) -> Question:
    return Question(AclOperation.READ, AclResourceType.TOPIC, name)


class Consumer:
    """A client with one fetch session, which reads on where it is."""

    def __init__(self, api: Api, authorizer: ScriptedAuthorizer, version: int = FETCH) -> None:
        self._api = api
        self._authorizer = authorizer
        self._version = version
        self.session_id = 0
        self._epoch = 0

    async def open(self, topics: list[Any]) -> Any:
        self.session_id = self._epoch = 0
        response = await self._fetch(topics)
        self.session_id = response.session_id
        assert self.session_id
        return response

    async def fetch(self, topics: list[Any] | None = None, max_wait_ms: int = 0) -> Any:
        """The next incremental fetch. `self.asked` is what the authorizer was asked meanwhile."""
        self._epoch += 1
        return await self._fetch(topics or [], max_wait_ms)

    async def _fetch(self, topics: list[Any], max_wait_ms: int = 0) -> Any:
        self._authorizer.asked.clear()
        response = await self._api(
            FetchRequest(
                replica_id=-1,
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=1 << 20,
                session_id=self.session_id,
                session_epoch=self._epoch,
                topics=topics,
            ),
            self._version,
        )
        self.asked = [question for question in self._authorizer.asked if question.operation is AclOperation.READ]
        assert response.error_code == ErrorCode.NONE
        return response


def asked_for(*names: str, offset: int = 0, topic_id: UUID | None = None) -> list[Any]:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    if topic_id is not None:
        return [FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])]
    return [FetchRequest.FetchTopic(topic=name, partitions=[partition]) for name in names]


def codes(response: Any) -> dict[str, int]:
    return {topic.topic: topic.partitions[0].error_code for topic in response.responses}


def records(response: Any) -> set[str]:
    return {topic.topic for topic in response.responses if topic.partitions[0].records}


async def produce(api: Api, name: str) -> None:
    response = await api(requests.produce(name, small_batch(), acks=1), 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def create(api: Api, *names: str) -> dict[str, UUID]:
    response = await api(requests.create_topics(*names), 7)
    assert {topic.error_code for topic in response.topics} == {ErrorCode.NONE}
    return {topic.name: topic.topic_id for topic in response.topics}


@pytest.fixture
def authorizer() -> ScriptedAuthorizer:
    return ScriptedAuthorizer()


@pytest.fixture
async def api(authorizer: ScriptedAuthorizer) -> AsyncIterator[Api]:
    async with api_with(authorizer) as api:
        await create(api, *TOPICS)
        yield api


@pytest.fixture
async def consumer(api: Api, authorizer: ScriptedAuthorizer) -> Consumer:
    return Consumer(api, authorizer)


async def test_a_session_is_decided_once_and_again_when_the_acls_change(
    api: Api, consumer: Consumer, authorizer: ScriptedAuthorizer
) -> None:
    await consumer.open(asked_for(*TOPICS))
    await consumer.fetch()
    assert sorted(consumer.asked) == sorted(map(reading, TOPICS))
    for _ in range(2):
        await produce(api, TOPICS[1])
        assert records(await consumer.fetch()) == {TOPICS[1]}
        assert consumer.asked == []
    authorizer.changes += 1
    await consumer.fetch()
    assert sorted(consumer.asked) == sorted(map(reading, TOPICS))


async def test_a_partition_that_is_denied_wakes_up_to_say_so_and_its_records_stay(
    api: Api, consumer: Consumer, authorizer: ScriptedAuthorizer
) -> None:
    await consumer.open(asked_for(*TOPICS))
    assert codes(await consumer.fetch()) == {}
    await produce(api, TOPICS[0])
    authorizer.change(but(reading(TOPICS[0])))
    for _ in range(2):
        response = await consumer.fetch(max_wait_ms=60_000)
        assert codes(response) == {TOPICS[0]: DENIED}
        assert records(response) == set()
    authorizer.change(everything)
    assert records(await consumer.fetch()) == {TOPICS[0]}


async def test_a_partition_without_news_wakes_up_when_it_is_denied(
    consumer: Consumer, authorizer: ScriptedAuthorizer
) -> None:
    await consumer.open(asked_for(*TOPICS))
    assert codes(await consumer.fetch()) == {}
    authorizer.change(but(reading(TOPICS[0])))
    assert codes(await consumer.fetch(max_wait_ms=60_000)) == {TOPICS[0]: DENIED}
    authorizer.change(everything)
    assert codes(await consumer.fetch()) == {TOPICS[0]: ErrorCode.NONE}
    assert codes(await consumer.fetch()) == {}


async def test_an_id_that_nobody_could_be_asked_about_is_not_read(
    api: Api, authorizer: ScriptedAuthorizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader would know the name."""
    ids = await create(api, "by-id")
    await produce(api, "by-id")
    request = FetchRequest(replica_id=-1, max_bytes=1 << 20, topics=asked_for(topic_id=ids["by-id"]), session_epoch=-1)
    assert (await api(request, 13)).responses[0].partitions[0].records
    monkeypatch.setattr(api.broker.metadata, "topic_name", lambda topic_id: None)
    (topic,) = (await api(request, 13)).responses
    assert (topic.partitions[0].error_code, topic.partitions[0].records) == (ErrorCode.UNKNOWN_TOPIC_ID, b"")


async def test_topics_that_a_session_adds_are_decided_and_no_others(
    api: Api, consumer: Consumer, authorizer: ScriptedAuthorizer
) -> None:
    authorizer.change(but(reading(TOPICS[2])))
    await consumer.open(asked_for(TOPICS[0]))
    await consumer.fetch()
    response = await consumer.fetch(asked_for(TOPICS[1], TOPICS[2]))
    assert codes(response) == {TOPICS[1]: ErrorCode.NONE, TOPICS[2]: DENIED}
    assert consumer.asked == [reading(TOPICS[1]), reading(TOPICS[2])]


async def test_a_denied_partition_opens_a_session_with_the_others(
    consumer: Consumer, authorizer: ScriptedAuthorizer
) -> None:
    authorizer.change(but(reading(TOPICS[0])))
    assert codes(await consumer.open(asked_for(*TOPICS[:2])))[TOPICS[0]] == DENIED
    assert codes(await consumer.fetch()) == {TOPICS[0]: DENIED}
    authorizer.change(everything)
    assert codes(await consumer.fetch()) == {TOPICS[0]: ErrorCode.NONE}


async def test_a_session_is_decided_again_for_another_client(
    api: Api, consumer: Consumer, authorizer: ScriptedAuthorizer
) -> None:
    await consumer.open(asked_for(TOPICS[0]))
    await consumer.fetch()
    (session,) = api.broker.fetch_sessions._sessions.values()
    session.authorized = session.authorized._replace(principal="User:alice")  # type: ignore[attr-defined]
    await consumer.fetch()
    assert consumer.asked == [reading(TOPICS[0])]


async def test_ids_are_decided_by_their_names_once_there_is_one(api: Api, authorizer: ScriptedAuthorizer) -> None:
    ids = await create(api, "by-id", "denied-by-id")
    authorizer.change(but(reading("denied-by-id")))
    consumer = Consumer(api, authorizer, version=13)
    topics = [topic for topic_id in (*ids.values(), UUID(int=7)) for topic in asked_for(topic_id=topic_id)]
    await consumer.open(topics)
    response = await consumer.fetch()
    found = {topic.topic_id: topic.partitions[0].error_code for topic in response.responses}
    assert found == {ids["denied-by-id"]: DENIED, UUID(int=7): ErrorCode.UNKNOWN_TOPIC_ID}
    assert sorted(consumer.asked) == [reading("by-id"), reading("denied-by-id")]


async def test_a_follower_that_is_denied_reads_nothing_and_moves_nothing(
    api: Api, authorizer: ScriptedAuthorizer
) -> None:
    await produce(api, TOPICS[0])
    cluster = Question(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, "kafka-cluster")
    authorizer.change(but(cluster))
    request = FetchRequest(
        replica_id=5, max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=asked_for(TOPICS[0])
    )
    response = await api(request, FETCH)
    assert codes(response) == {TOPICS[0]: DENIED}
    assert records(response) == set()
    authorizer.change(everything)
    assert codes(await api(request, FETCH))[TOPICS[0]] != DENIED


async def test_very_many_topics_are_decided_in_turns(api: Api, authorizer: ScriptedAuthorizer) -> None:
    """The broker answers another client between the decisions."""
    names = [f"absent-{number}" for number in range(2000)]
    authorizer.change(but(reading(names[-1])))
    host, port = api.broker.bootstrap.split(":")
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=asked_for(*names)
    )
    seen: list[int] = []
    turn = api.broker.background.turns.take

    async def counting(steps: Any) -> Any:
        def counted() -> Any:
            while True:
                seen.append(len(authorizer.asked))
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value
                yield

        return await turn(counted())

    api.broker.background.turns.take = counting  # type: ignore[method-assign]
    async with await NetworkClient.connect(host, int(port)) as other:
        response = await other.send(request, version=FETCH, timeout_ms=60_000)
    assert codes(response) == dict.fromkeys(names[:-1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) | {names[-1]: DENIED}
    decided = [after - before for before, after in pairwise(seen)]
    assert max(decided) <= 300
    assert len(authorizer.asked) == len(names)
