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
from odradek.clients.recording.heartbeats import Beat, Member, Told, beat_of, is_enough
from odradek.clients.recording.identities import Identities
from odradek.clients.recording.topic_names import TopicNames
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.protocol.messages.transactions import EndTxnRequest
from odradek.protocol.records import Record, build_batch
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType, CoordinatorType
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


def owned_of(response: Any) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    """What a member says that it owns after a response."""
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
        for topic in response.assignment.topic_partitions
    ]


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
        owned = owned_of(await beat(first, "a", epoch))
        assert sum(len(topic.partitions) for topic in owned) == 2
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
        differences, _ = await replay(file, target, timeout_s=2)
    (found,) = (each for each in differences if each.where.startswith("ConsumerGroupHeartbeat"))
    assert found.where == "ConsumerGroupHeartbeat.readers.a"
    assert (found.expected, found.found) == (
        {"orders": [0, 1], "payments": [0, 1]},
        {"orders": [0, 1], "payments": [0]},
    )


async def test_a_member_that_is_told_earlier_than_the_recorded_one_is_no_difference(tmp_path: Path) -> None:
    """The second member of the recording joined within the assignment interval, which the target does not have."""

    async def join_and_leave(servers: str) -> None:
        await coordinated(servers)
        async with connected(servers) as client:
            await created(client, "orders", 2)
            await beat(client, "a", 0, **JOINS)
            await beat(client, "b", 0, **JOINS)
            await asyncio.sleep(INTERVAL_S)
            epochs = {"a": 2, "b": 2}
            owned: dict[str, list[Any]] = {}
            while not owned.get("b"):
                for member_id, epoch in epochs.items():
                    response = await beat(client, member_id, epoch, topic_partitions=owned.get(member_id))
                    epochs[member_id] = response.member_epoch
                    if response.assignment is not None:
                        owned[member_id] = owned_of(response)
            for member_id in epochs:
                await beat(client, member_id, -1)

    file = await recording_of(join_and_leave, tmp_path / "file")
    async with fresh() as target:
        async with AdminClient(target) as admin:
            await coordinated(target)
            change = [("consumer.assignment.interval.ms", ConfigOperation.SET, "0")]
            await admin.alter_configs(ConfigResourceType.GROUP, "readers", change)
        assert (await replay(file, target))[0] == []


# Heartbeats that come too early

MEMBER = Member("readers", "m")
WANTED = {"t": [0]}


def answer(epoch: int, *partitions: int, told: bool = True, error: int = 0) -> dict[str, Any]:
    topics = [{"TopicId": "t", "Partitions": list(partitions)}] if partitions else []
    return {"ErrorCode": error, "MemberEpoch": epoch, "Assignment": {"TopicPartitions": topics} if told else None}


def enough(recorded: dict[str, Any], response: dict[str, Any], epoch: int = 2, *before: int) -> bool:
    """Whether a member in this epoch, which had these partitions `before`, is told enough."""
    of_recording, of_target = Told(str), Told(str)
    for told in (of_recording, of_target):
        told.add(MEMBER, answer(epoch, *before))
    beat = Beat(MEMBER, epoch, is_static=False)
    return is_enough(beat, recorded, beat, response, of_target, of_recording.with_response(MEMBER, recorded))


NOTHING_NEW = answer(2, told=False)


@pytest.mark.parametrize(
    ("recorded", "response", "expected"),
    [
        (answer(2, 0), NOTHING_NEW, False),
        (answer(2), NOTHING_NEW, False),
        (answer(2, 0, 1), NOTHING_NEW, True),
        (answer(3, told=False), NOTHING_NEW, False),
        (answer(3, 0), answer(2, 0), False),
        (answer(3, 0), answer(3, 0), True),
        (answer(3, told=False), answer(4, told=False), True),
        (NOTHING_NEW, NOTHING_NEW, True),
        (NOTHING_NEW, answer(2, 0), True),
        (answer(0, told=False, error=110), NOTHING_NEW, True),
        (answer(3, 0), answer(0, told=False, error=110), True),
        ({"undecoded": True}, NOTHING_NEW, True),
    ],
)
def test_a_heartbeat_is_enough_if_it_tells_what_the_recorded_one_told(
    recorded: dict[str, Any], response: dict[str, Any], expected: bool
) -> None:
    assert enough(recorded, response, 2, 0, 1) is expected


def test_a_joining_member_may_be_told_more_than_the_recorded_one() -> None:
    assert enough(answer(2), answer(3, 0), 0)
    assert not enough(answer(2, 0, 1), answer(2, 0), 0)


def test_a_member_that_was_waited_for_in_vain_is_not_waited_for_again() -> None:
    told, beat = Told(str), Beat(MEMBER, 2, is_static=False)
    assert not is_enough(beat, answer(2, 0), beat, NOTHING_NEW, told, WANTED)
    told.in_vain.add(MEMBER)
    assert is_enough(beat, answer(2, 0), beat, NOTHING_NEW, told, WANTED)


@pytest.mark.parametrize(
    ("epoch", "instance", "response", "expected"),
    [
        (2, None, NOTHING_NEW, True),
        (2, "one", NOTHING_NEW, True),
        (2, None, answer(3, told=False), False),
        (2, None, answer(0, told=False, error=110), False),
        (0, None, answer(2), True),
        (0, "one", answer(2), False),
    ],
)
def test_a_heartbeat_is_repeated_only_while_the_member_is_where_it_was(
    epoch: int, instance: str | None, response: dict[str, Any], expected: bool
) -> None:
    request = {"GroupId": "readers", "MemberId": "m", "MemberEpoch": epoch, "InstanceId": instance}
    assert beat_of(request).may_be_repeated(response) is expected


def test_a_member_whose_id_the_broker_has_made_is_known_by_the_response() -> None:
    beat = beat_of({"GroupId": "readers", "MemberId": "", "MemberEpoch": 0, "InstanceId": None})
    assert beat.answered({"MemberId": "made"}).member == Member("readers", "made")
    assert beat.answered({"MemberId": None}) == beat
    assert beat._replace(member=MEMBER).answered({"MemberId": "made"}).member == MEMBER


# Ids


def test_a_request_has_the_epoch_that_the_target_has_told_the_member_last() -> None:
    identities = Identities(TopicNames())
    for answered in (4, 5):
        identities.learn({"MemberId": "a", "MemberEpoch": 2}, {"MemberId": "a", "MemberEpoch": answered}, 1, "readers")
    identities.learn({"MemberId": "b", "MemberEpoch": 2}, {"MemberId": "b", "MemberEpoch": 3}, 1, "readers")

    def sent(**fields: Any) -> Any:
        return identities.to_target({"GroupId": "readers", **fields}, 2)

    assert sent(MemberId="a", MemberEpoch=2)["MemberEpoch"] == 5
    assert sent(MemberId="b", MemberEpoch=2)["MemberEpoch"] == 3
    assert sent(MemberId="a", MemberEpoch=1)["MemberEpoch"] == 1
    assert sent(MemberId="a", GenerationIdOrMemberEpoch=2)["GenerationIdOrMemberEpoch"] == 5
    assert identities.to_target({"GroupId": "others", "MemberId": "a", "MemberEpoch": 2}, 2)["MemberEpoch"] == 2
    groups = {"Groups": [{"GroupId": name, "MemberId": "a", "MemberEpoch": 2} for name in ("readers", "others")]}
    assert [group["MemberEpoch"] for group in identities.to_target(groups, 2)["Groups"]] == [5, 2]


@pytest.mark.parametrize("epoch", [0, -1, -2])
def test_to_join_and_to_leave_are_no_epochs(epoch: int) -> None:
    identities = Identities(TopicNames())
    identities.learn({"MemberId": "a", "MemberEpoch": epoch}, {"MemberId": "a", "MemberEpoch": 5}, 1, "readers")
    beat = {"GroupId": "readers", "MemberId": "a", "MemberEpoch": epoch}
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
