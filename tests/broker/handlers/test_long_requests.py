"""Requests that name very many items are answered completely and in order without blocking the event loop.

The length of a turn depends on the machine. These tests count the turns and the work per turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.background.stepwise import EachMade
from odradek.broker.coordinator.group.offsets.removal import remove_offsets_of_topic
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.handlers.api_row import ApiTable
from odradek.broker.handlers.api_table import api_table
from odradek.broker.requests.request_bound import MAX_PARTITIONS_PER_REQUEST
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.configs import AlterConfigsRequest, DescribeConfigsRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from odradek.protocol.messages.groups import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.producers import DescribeProducersRequest
from odradek.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from odradek.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from odradek.protocol.schema import Message
from tests.broker.handlers.test_offsets_api import coordinated
from tests.patience import PATIENCE_S
from tests.wire import requests
from tests.wire.api import Api, api_of_a_broker
from tests.wire.records import connect

MANY = 12_000
NAMES = [f"name-{number}" for number in range(MANY)]
SETTINGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 1,
}
LEAST_TURNS = 10
"""The minimum number of turns for decoding, handling and answering MANY names, however fast each step is."""


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker(SETTINGS) as api:
        await coordinated(api)
        yield api


@contextmanager
def turns_counted() -> Iterator[Callable[[], int]]:
    """Counts the turns of the loop with a callback that reschedules itself."""
    loop = asyncio.get_running_loop()
    turns, counting = 0, True

    def turn() -> None:
        nonlocal turns
        turns += 1
        if counting:
            loop.call_soon(turn)

    loop.call_soon(turn)
    try:
        yield lambda: turns
    finally:
        counting = False


async def turns_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def busy_turns(api: Api, request: Message, version: int) -> tuple[Any, int]:
    """Returns the response and the number of steps that the broker's `turns` ran for it."""
    turns = api.broker.background.turns
    steps = 0
    take = turns.take

    async def counted(work: Any) -> Any:
        def each() -> Any:
            nonlocal steps
            while True:
                try:
                    next(work)
                except StopIteration as end:
                    return end.value
                steps += 1
                yield

        return await take(each())

    with pytest.MonkeyPatch.context() as patched, turns_counted() as count:
        patched.setattr(turns, "take", counted)
        response = await api(request, version)
        assert count() >= steps, "each step had a turn of the loop of its own"
    return response, steps


def member(number: int) -> LeaveGroupRequest.MemberIdentity:
    return LeaveGroupRequest.MemberIdentity(member_id=NAMES[number])


ASSIGNMENT = SyncGroupRequest.SyncGroupRequestAssignment
CASES: dict[str, tuple[Message, int, Callable[[Any], int]]] = {
    "DescribeTransactions": (
        DescribeTransactionsRequest(transactional_ids=NAMES),
        0,
        lambda answer: len([each for each in answer.transaction_states if each.error_code == 105]),
    ),
    "FindCoordinator": (
        FindCoordinatorRequest(coordinator_keys=NAMES),
        4,
        lambda answer: len({each.key for each in answer.coordinators if each.error_code == ErrorCode.NONE}),
    ),
    "DescribeGroups": (
        DescribeGroupsRequest(groups=NAMES),
        5,
        lambda answer: len([each for each in answer.groups if each.group_state == "Dead"]),
    ),
    "DeleteGroups": (
        DeleteGroupsRequest(groups_names=NAMES),
        2,
        lambda answer: len([each for each in answer.results if each.error_code == ErrorCode.GROUP_ID_NOT_FOUND]),
    ),
    "LeaveGroup": (
        LeaveGroupRequest(group_id="g", members=[member(number) for number in range(MANY)]),
        4,
        lambda answer: len([each for each in answer.members if each.error_code == ErrorCode.UNKNOWN_MEMBER_ID]),
    ),
    "OffsetFetch of groups": (
        OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in NAMES]
        ),
        8,
        lambda answer: len([each for each in answer.groups if not each.error_code and not each.topics]),
    ),
    "Metadata": (
        MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False
        ),
        9,
        lambda answer: len([each for each in answer.topics if each.error_code == 3]),
    ),
    "Metadata by ids": (
        MetadataRequest(
            topics=[
                MetadataRequest.MetadataRequestTopic(name=None, topic_id=UUID(int=1 + number)) for number in range(MANY)
            ]
        ),
        12,
        lambda answer: len({each.topic_id for each in answer.topics if each.error_code == ErrorCode.UNKNOWN_TOPIC_ID}),
    ),
    "DescribeConfigs": (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=name) for name in NAMES
            ]
        ),
        4,
        lambda answer: len([each for each in answer.results if each.error_code == 3]),
    ),
    "AlterConfigs": (
        AlterConfigsRequest(
            resources=[AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name=name) for name in NAMES]
        ),
        2,
        lambda answer: len([each for each in answer.responses if each.error_code == 3]),
    ),
    "DeleteTopics": (
        DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1000),
        5,
        lambda answer: len([each for each in answer.responses if each.error_code == 3]),
    ),
    "ListTransactions": (
        ListTransactionsRequest(state_filters=NAMES),
        0,
        lambda answer: len(answer.unknown_state_filters),
    ),
    "OffsetCommit of too many partitions": (
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=i) for i in range(MANY)
                    ],
                )
            ],
        ),
        8,
        lambda answer: len([each for each in answer.topics[0].partitions if each.error_code == 44]),
    ),
    "CreatePartitions of too many topics": (
        CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=0) for name in NAMES]
        ),
        3,
        lambda answer: len([each for each in answer.results if each.error_code == ErrorCode.POLICY_VIOLATION]),
    ),
    "WriteTxnMarkers without partitions": (
        WriteTxnMarkersRequest(
            markers=[WriteTxnMarkersRequest.WritableTxnMarker(producer_id=i, producer_epoch=0) for i in range(MANY)]
        ),
        1,
        lambda answer: len(answer.markers),
    ),
}


@pytest.mark.parametrize("verify_only", [False, True])
async def test_many_transactions_are_added_to_or_verified_over_many_turns(api: Api, verify_only: bool) -> None:
    """As many as a request may name."""
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="none", partitions=[0])
    transactions = [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=1, verify_only=verify_only, topics=[topic]
        )
        for name in NAMES[:MAX_PARTITIONS_PER_REQUEST]
    ]
    response, steps = await busy_turns(api, AddPartitionsToTxnRequest(transactions=transactions), 5)
    results = [result.topic_results[0].results_by_partition[0] for result in response.results_by_transaction]
    assert [result.partition_error_code for result in results] == [3] * MAX_PARTITIONS_PER_REQUEST
    assert steps >= MAX_PARTITIONS_PER_REQUEST / 30


@pytest.mark.parametrize("name", CASES)
async def test_many_names_are_all_answered_over_many_turns(api: Api, name: str) -> None:
    request, version, rightly_answered = CASES[name]
    response, steps = await busy_turns(api, request, version)
    assert rightly_answered(response) == MANY
    assert steps >= LEAST_TURNS


async def test_a_small_request_with_too_many_partitions_is_refused_over_many_turns(api: Api) -> None:
    """Each partition takes three bytes, so encoding the response takes longer than decoding the request."""
    count = 20_000
    topics = [FetchRequest.FetchTopic(topic="") for _ in range(count)]
    answer, steps = await busy_turns(api, FetchRequest(topics=topics), 12)
    assert len(answer.responses) == count
    assert steps >= LEAST_TURNS


async def test_a_sync_with_many_assignments_keeps_those_of_members(api: Api) -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range")
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=300_000, rebalance_timeout_ms=300_000, protocol_type="c", protocols=[protocol]
    )
    joined = await api(join, 3)
    assignments = [ASSIGNMENT(member_id=name, assignment=b"other") for name in NAMES]
    assignments.insert(MANY // 2, ASSIGNMENT(member_id=joined.member_id, assignment=b"mine"))
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id, assignments=assignments)
    synced, steps = await busy_turns(api, sync, 4)
    assert (synced.error_code, bytes(synced.assignment)) == (ErrorCode.NONE, b"mine")
    assert steps >= LEAST_TURNS


async def test_more_protocols_than_a_group_can_compare_are_refused(api: Api) -> None:
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name=name) for name in NAMES]
    join = JoinGroupRequest(group_id="g", session_timeout_ms=300_000, protocol_type="c", protocols=protocols)
    assert (await api(join, 3)).error_code == ErrorCode.POLICY_VIOLATION
    join.protocols = protocols[:MAX_PARTITIONS_PER_REQUEST]
    assert (await api(join, 3)).error_code == ErrorCode.NONE


async def test_a_leave_without_members_still_returns_the_groups_error(api: Api) -> None:
    assert (await api(LeaveGroupRequest(group_id="", members=[]), 4)).error_code == ErrorCode.INVALID_GROUP_ID


async def test_requests_after_a_long_one_are_answered_after_it(api: Api) -> None:
    client = api.client
    order: list[str] = []

    async def ask(name: str, request: Message, version: int) -> None:
        await client.send(request, version=version, timeout_ms=PATIENCE_S * 1000)
        order.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(ask("long", FindCoordinatorRequest(coordinator_keys=NAMES), 4))
        group.create_task(ask("short", ApiVersionsRequest(), 0))
    assert order == ["long", "short"]


async def test_another_connection_is_answered_before_a_long_request(api: Api) -> None:
    async with await connect(api.broker.bootstrap) as other:
        many = [f"{name}-{number}" for name in NAMES for number in range(2)]
        long = asyncio.ensure_future(api(DescribeTransactionsRequest(transactional_ids=many), 0))
        await turns_until(lambda: bool(api.broker.background.turns._bytes))
        await other.send(ListGroupsRequest(), version=4, timeout_ms=PATIENCE_S * 1000)
        assert not long.done()
        assert len((await long).transaction_states) == 2 * MANY


async def test_a_client_that_disconnects_cancels_its_undecoded_request(api: Api) -> None:
    turns = api.broker.background.turns
    client = await connect(api.broker.bootstrap)
    asking = asyncio.ensure_future(
        client.send(FindCoordinatorRequest(coordinator_keys=NAMES * 10), version=4, timeout_ms=PATIENCE_S * 1000)
    )
    await turns_until(lambda: bool(turns._bytes))
    await client.close()
    await asyncio.wait([asking])
    assert asking.exception() is not None
    await turns_until(lambda: not turns._bytes)
    assert api.broker.metrics.of(10, 4).requests == 0


async def test_a_large_produce_of_few_partitions_takes_no_steps(api: Api) -> None:
    produce = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="absent", partition_data=[ProduceRequest.PartitionProduceData(index=0, records=bytes(200_000))]
            )
        ],
    )
    response, steps = await busy_turns(api, produce, 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert steps == 0


async def test_a_long_error_response_is_built_while_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    row = api_table().row(ApiKey.OFFSET_FETCH)
    assert row is not None
    error_response, made = row.error_response, list[Any]()

    def kept(*arguments: Any) -> Any:
        made.append((yield from error_response(*arguments)))
        return made[-1]

    others = [each for each in api_table().rows() if each is not row]
    table = ApiTable.of([*others, row._replace(error_response=kept)])
    monkeypatch.setattr("odradek.broker.assembly._apis_of", lambda _release: table)
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=[topic]) for name in NAMES]
    async with api_of_a_broker(SETTINGS) as api:
        await coordinated(api)
        answer = await api(OffsetFetchRequest(groups=groups), 8)
    assert {group.error_code for group in answer.groups} == {ErrorCode.POLICY_VIOLATION}
    assert len(answer.groups) == MANY
    assert [type(response.groups) for response in made] == [EachMade]


async def test_a_name_that_is_repeated_is_answered_once(api: Api) -> None:
    coordinators = (await api(FindCoordinatorRequest(coordinator_keys=["g"] * MANY), 4)).coordinators
    assert [each.key for each in coordinators] == ["g"]
    states = (await api(DescribeTransactionsRequest(transactional_ids=["t"] * MANY), 0)).transaction_states
    assert [each.transactional_id for each in states] == ["t"]


async def test_a_repeated_partition_is_described_once_and_its_producers_a_few_at_a_time(api: Api) -> None:
    await coordinated(api, "t")
    ended = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    markers = [marker(producer_id=i, producer_epoch=0, topics=[ended]) for i in range(1000)]
    await api(WriteTxnMarkersRequest(markers=markers), 1)
    asked = [DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 0])] * 100
    response, steps = await busy_turns(api, DescribeProducersRequest(topics=asked), 0)
    (described,) = [partition for topic in response.topics for partition in topic.partitions]
    assert len(described.active_producers) == 1000
    assert steps >= 3


LONG_NAMES = [f"{number}".rjust(30_000, "g") for number in range(12)]
OF_LONG_NAMES: dict[str, tuple[Message, int]] = {
    "FindCoordinator": (FindCoordinatorRequest(coordinator_keys=LONG_NAMES), 4),
    "DescribeGroups": (DescribeGroupsRequest(groups=LONG_NAMES), 5),
    "DeleteGroups": (DeleteGroupsRequest(groups_names=LONG_NAMES), 2),
    "DescribeTransactions": (DescribeTransactionsRequest(transactional_ids=LONG_NAMES), 0),
    "OffsetFetch": (
        OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in LONG_NAMES]
        ),
        8,
    ),
}


@pytest.mark.parametrize("name", OF_LONG_NAMES)
async def test_a_long_name_is_hashed_in_its_own_step(api: Api, name: str) -> None:
    request, version = OF_LONG_NAMES[name]
    _, steps = await busy_turns(api, request, version)
    assert steps >= len(LONG_NAMES) - 2


GROUPS = [f"group-{number}" for number in range(150)]


async def commit(api: Api, topic: str) -> None:
    for group_id in GROUPS:
        answer = await api(requests.commit(group_id, topic, 0, 5), 5)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def test_many_groups_are_deleted_a_few_at_a_time(api: Api) -> None:
    await coordinated(api, "t")
    await commit(api, "t")
    response, steps = await busy_turns(api, DeleteGroupsRequest(groups_names=GROUPS), 2)
    assert {result.error_code for result in response.results} == {ErrorCode.NONE}
    assert steps >= 4
    assert (await api(ListGroupsRequest(), 4)).groups == []


async def test_offsets_of_a_deleted_topic_are_removed_in_steps_before_it_can_be_recreated(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await coordinated(api, "t", "u")
    await commit(api, "t")
    await commit(api, "u")
    steps = 0

    def counted(shards: Iterable[GroupShard], topic: str) -> Iterator[None]:
        nonlocal steps
        for _ in remove_offsets_of_topic(shards, topic):
            steps += 1
            assert api.broker.metadata.topic(topic) is None
            yield

    monkeypatch.setattr("odradek.broker.coordinator.group.coordinator.remove_offsets_of_topic", counted)
    deleting = asyncio.ensure_future(api(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5))
    await turns_until(lambda: steps > 0)
    await coordinated(api, "t")
    assert deleting.done()
    assert steps >= 4
    asked = [OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("t", "u")]
    of_groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=asked) for group in GROUPS]
    answer = await api(OffsetFetchRequest(groups=of_groups), 8)
    for group in answer.groups:
        found = {topic.name: topic.partitions[0].committed_offset for topic in group.topics}
        assert found == {"t": -1, "u": 5}
