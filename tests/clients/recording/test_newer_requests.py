"""Recordings with requests of Kafka 4: topics by their ids, members with epochs, transactions that raise the epoch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.clients.admin.client import AdminClient
from odradek.clients.network_client import NetworkClient
from odradek.clients.recording.heartbeats import Beat, beat_of
from odradek.clients.recording.identities import Identities
from odradek.clients.recording.topic_names import TopicNames
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.protocol.messages.transactions import EndTxnRequest
from odradek.protocol.records import Record, build_batch
from odradek.protocol.wire_codes import CoordinatorType
from tests.clients.recording.workloads import fresh, recording_of, replay
from tests.wire.requests import init

JOINS: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
INTERVAL_S = 1.1
"""A little more than group.consumer.assignment.interval.ms."""


@contextlib.asynccontextmanager
async def connected(servers: str) -> AsyncIterator[NetworkClient]:
    host, _, port = servers.rpartition(":")
    async with await NetworkClient.connect(host, int(port)) as client:
        yield client


async def coordinated(servers: str) -> None:
    async with AdminClient(servers) as admin:
        for kind in (CoordinatorType.GROUP, CoordinatorType.TRANSACTION):
            await admin.coordinator(kind, "any")


async def created(client: NetworkClient, topic: str, partitions: int) -> UUID:
    new = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    await client.send(CreateTopicsRequest(topics=[new], timeout_ms=10_000))
    asked = MetadataRequest.MetadataRequestTopic(name=topic)
    found: UUID = (await client.send(MetadataRequest(topics=[asked]))).topics[0].topic_id
    return found


async def beat(client: NetworkClient, member_id: str, epoch: int, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id="readers", member_id=member_id, member_epoch=epoch, **fields)
    response = await client.send(request)
    assert response.error_code == 0, response
    return response


def commit(topic_ids: list[UUID], member_id: str, epoch: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])
        for topic_id in topic_ids
    ]
    return OffsetCommitRequest(
        group_id="readers", generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics
    )


async def a_group_of_the_newer_protocol(servers: str) -> None:
    """One member has all partitions of two topics, and gives half of them up; both commit."""
    await coordinated(servers)
    async with connected(servers) as first, connected(servers) as second:
        ids = [await created(first, name, 2) for name in ("orders", "payments")]
        both = {**JOINS, "subscribed_topic_names": ["orders", "payments"], "server_assignor": "range"}
        epoch = (await beat(first, "a", 0, **both)).member_epoch
        assert (await first.send(commit(ids, "a", epoch), version=10)).topics[0].partitions[0].error_code == 0
        await beat(second, "b", 0, **both)
        await asyncio.sleep(INTERVAL_S)
        told = (await beat(first, "a", epoch)).assignment.topic_partitions
        assert sum(len(topic.partitions) for topic in told) == 2
        owned = [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
            for topic in told
        ]
        epoch = (await beat(first, "a", epoch, topic_partitions=owned)).member_epoch
        given = await beat(second, "b", epoch - 1)
        assert sum(len(topic.partitions) for topic in given.assignment.topic_partitions) == 2
        assert (await second.send(commit(ids[:1], "b", epoch), version=10)).topics[0].partitions[0].error_code == 0
        asked = [OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in ids]
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id="readers", member_id="b", member_epoch=epoch, topics=asked
        )
        fetched = await second.send(OffsetFetchRequest(groups=[group]), version=10)
        assert fetched.groups[0].error_code == 0
        await first.send(ConsumerGroupDescribeRequest(group_ids=["readers", "others"]))
        await beat(first, "a", -1)
        await beat(second, "b", -1)


async def transactions_by_epochs(servers: str) -> None:
    """Two transactions, each in an epoch of its own, in a topic that is named by its id."""
    await coordinated(servers)
    async with connected(servers) as client:
        topic_id = await created(client, "orders", 1)
        made = await client.send(init("clerk"), version=5)
        producer = (made.producer_id, made.producer_epoch)
        for committed in (True, False):
            batch = build_batch(
                [Record(0, 1_700_000_000_000, None, b"v")],
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=0,
                is_transactional=True,
            )
            data = ProduceRequest.PartitionProduceData(index=0, records=batch)
            topic = ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])
            request = ProduceRequest(transactional_id="clerk", acks=-1, timeout_ms=10_000, topic_data=[topic])
            written = await client.send(request, version=13)
            assert written.responses[0].partition_responses[0].error_code == 0
            end = EndTxnRequest(
                transactional_id="clerk", producer_id=producer[0], producer_epoch=producer[1], committed=committed
            )
            ended = await client.send(end, version=5)
            assert ended.error_code == 0
            producer = (ended.producer_id, ended.producer_epoch)


async def test_a_group_is_replayed_where_its_epochs_and_topics_are_others(tmp_path: Path) -> None:
    file = await recording_of(a_group_of_the_newer_protocol, tmp_path / "file")
    async with fresh() as target:
        assert (await replay(file, target))[0] == []
    async with fresh() as target:
        await coordinated(target)
        async with connected(target) as client:  # two more changes of the group, which is empty again
            await created(client, "unused", 1)
            await beat(client, "earlier", 0, **JOINS)
            await beat(client, "earlier", -1)
        differences, summary = await replay(file, target)
    assert [difference for difference in differences if not difference.where.startswith("Metadata")] == []
    assert summary.undecoded == 0


async def test_transactions_are_replayed_with_the_producers_of_the_target(tmp_path: Path) -> None:
    file = await recording_of(transactions_by_epochs, tmp_path / "file")
    async with fresh() as target:
        await coordinated(target)
        async with connected(target) as client:
            for number in range(3):
                await client.send(init(f"other-{number}"), version=5)
        assert (await replay(file, target))[0] == []


async def test_another_assignment_is_a_difference_by_the_name_of_the_topic(tmp_path: Path) -> None:
    async def subscribe(servers: str) -> None:
        await coordinated(servers)
        async with connected(servers) as client:
            for name in ("orders", "payments"):
                await created(client, name, 2)
            await beat(client, "a", 0, **{**JOINS, "subscribed_topic_names": ["orders", "payments"]})

    file = await recording_of(subscribe, tmp_path / "file")
    async with fresh() as target:
        async with AdminClient(target) as admin, connected(target) as client:
            await created(client, "payments", 1)
            assert await admin.topic("payments")
        differences, _ = await replay(file, target)
    (found,) = (each for each in differences if each.where.startswith("ConsumerGroupHeartbeat"))
    assert found.where == "ConsumerGroupHeartbeat 1.Assignment.TopicPartitions[payments].Partitions"
    assert (found.expected, found.found) == ([0, 1], [0])


# Heartbeats that come too early


def answer(epoch: int, *partitions: int, told: bool = True, error: int = 0) -> dict[str, Any]:
    topics = [{"TopicId": "t", "Partitions": list(partitions)}] if partitions else []
    return {"ErrorCode": error, "MemberEpoch": epoch, "Assignment": {"TopicPartitions": topics} if told else None}


NOTHING_NEW = answer(2, told=False)


@pytest.mark.parametrize(
    ("recorded", "response", "is_behind"),
    [
        (answer(2, 0), NOTHING_NEW, True),
        (answer(2), NOTHING_NEW, True),
        (answer(3, told=False), NOTHING_NEW, True),
        (answer(3, 0), answer(2), True),
        (answer(3, 0), answer(3, 0), False),
        (answer(3, 0), answer(3, told=False), False),
        (answer(3, told=False), answer(4, told=False), False),
        (NOTHING_NEW, NOTHING_NEW, False),
        (NOTHING_NEW, answer(2, 0), False),
        (answer(0, told=False, error=110), NOTHING_NEW, False),
        (answer(3, 0), answer(0, told=False, error=110), False),
        ({"undecoded": True}, NOTHING_NEW, False),
    ],
)
def test_a_heartbeat_is_sent_again_if_it_tells_less_than_the_recorded_one(
    recorded: dict[str, Any], response: dict[str, Any], is_behind: bool
) -> None:
    assert Beat(recorded_epoch=2, sent_epoch=2, is_dynamic=True).is_behind(recorded, response) is is_behind


@pytest.mark.parametrize(("instance", "is_behind"), [(None, True), ("one", False)])
def test_a_member_joins_again_only_if_its_instance_is_not_known_by_that(instance: str | None, is_behind: bool) -> None:
    joining = beat_of({"MemberEpoch": 0, "InstanceId": instance}, {"MemberEpoch": 0, "InstanceId": instance})
    assert joining.is_behind(answer(3, 0), answer(2)) is is_behind
    assert not joining.is_behind(answer(2), answer(2))
    assert not joining.is_behind(answer(2, 0), answer(2, 0))


# Ids


def test_epochs_of_members_are_generations_of_their_group() -> None:
    identities = Identities(TopicNames())
    identities.learn({"MemberEpoch": 2}, {"MemberEpoch": 4}, 1, "readers")
    described = {"Groups": [{"GroupId": "readers", "GroupEpoch": 3, "AssignmentEpoch": 2}]}
    here = {"Groups": [{"GroupId": "readers", "GroupEpoch": 5, "AssignmentEpoch": 4}]}
    identities.learn(described, here, 1)
    assert identities.to_recording(here, 1) == described
    fetch = {"Groups": [{"GroupId": "readers", "MemberEpoch": 3}, {"GroupId": "others", "MemberEpoch": 3}]}
    changed = identities.to_target(fetch, 1)
    assert [group["MemberEpoch"] for group in changed["Groups"]] == [5, 3]
    commit = {"GroupId": "readers", "GenerationIdOrMemberEpoch": 2}
    assert identities.to_target(commit, 2)["GenerationIdOrMemberEpoch"] == 4


@pytest.mark.parametrize("epoch", [0, -1, -2])
def test_to_join_and_to_leave_are_no_epochs(epoch: int) -> None:
    identities = Identities(TopicNames())
    identities.learn({"MemberEpoch": epoch}, {"MemberEpoch": 5}, 1, "readers")
    beat = {"GroupId": "readers", "MemberEpoch": epoch}
    assert identities.to_target(beat, 1) == beat


def test_topics_without_names_are_paired_by_what_is_known_of_their_ids() -> None:
    names = TopicNames()
    identities = Identities(names)
    there, here = {"a": "t2", "b": "t1"}, {"a": "h1", "b": "h2"}
    for name in "ab":
        recorded, answered = ({"Name": name, "TopicId": ids[name]} for ids in (there, here))
        names.learn(answered)
        identities.learn(recorded, answered, 1)

    def topics(ids: dict[str, str], epochs: dict[str, int]) -> dict[str, Any]:
        partitions = {name: [{"PartitionIndex": 0, "LeaderEpoch": epochs[name]}] for name in ids}
        listed = [{"TopicId": ids[name], "Partitions": partitions[name]} for name in ids]
        return {"Topics": sorted(listed, key=lambda topic: str(topic["TopicId"]))}

    recorded, answered = topics(there, {"a": 17, "b": 27}), topics(here, {"a": 3, "b": 4})
    identities.learn(recorded, answered, 1)
    assert identities.to_target(recorded, 1)["Topics"] == list(reversed(answered["Topics"]))
