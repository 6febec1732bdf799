"""ConsumerGroupHeartbeat and ConsumerGroupDescribe of a broker, and offsets of members of consumer groups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.features import UpdateFeaturesRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.topic_partitions import DescribeTopicPartitionsRequest
from odradek.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from odradek.protocol.records import Record, build_batch
from odradek.protocol.wire_codes import AclOperation as Op
from odradek.protocol.wire_codes import AclResourceType as On
from tests.broker.handlers.scripted_authorizer import Question, ScriptedAuthorizer, api_with, but, everything
from tests.broker.handlers.test_offsets_api import coordinated, loaded
from tests.patience import until
from tests.wire import requests
from tests.wire.api import Api, api_of_a_broker

SETTINGS: dict[str, object] = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.consumer.assignment.interval.ms": 0,
}
NOBODY = UUID(int=0)
UNKNOWN = UUID(int=77)
_Group = OffsetFetchRequest.OffsetFetchRequestGroup
_Fetched = OffsetFetchRequest.OffsetFetchRequestTopics


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker(SETTINGS) as api:
        await coordinated(api, "t", "u")
        yield api


async def ids_of(api: Api) -> dict[str, UUID]:
    return {topic.name: topic.topic_id for topic in (await api(MetadataRequest(topics=None), 12)).topics}


async def beat(api: Api, member_id: str, epoch: int, version: int = 1, group: str = "g", **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
    return await api(request, version)


async def join(api: Api, member_id: str, *topics: str, version: int = 1, **fields: Any) -> Any:
    named = {"rebalance_timeout_ms": 9000, "subscribed_topic_names": list(topics) or None, "topic_partitions": []}
    return await beat(api, member_id, 0, version, **{**named, **fields})


async def assigned(api: Api, response: Any) -> Mapping[str, list[int]] | None:
    names = {topic_id: name for name, topic_id in (await ids_of(api)).items()}
    if response.assignment is None:
        return None
    return {names[each.topic_id]: each.partitions for each in response.assignment.topic_partitions}


async def describe(api: Api, *groups: str, version: int = 1, **more: Any) -> Any:
    return (await api(ConsumerGroupDescribeRequest(group_ids=list(groups), **more), version)).groups


# --- members ------------------------------------------------------------------------------------------------------


async def test_a_member_joins_stays_and_leaves(api: Api) -> None:
    response = await join(api, "a", "t")
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "a", 2)
    assert (response.heartbeat_interval_ms, await assigned(api, response)) == (5000, {"t": [0, 1]})
    response = await beat(api, "a", 2)
    assert (response.error_code, response.member_epoch, response.assignment) == (0, 2, None)
    response = await beat(api, "a", -1)
    assert (response.error_code, response.member_epoch, response.heartbeat_interval_ms) == (0, -1, 0)
    assert (await beat(api, "a", 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_old_clients_are_given_a_member_id(api: Api) -> None:
    response = await join(api, "", "t", version=0)
    assert (response.error_code, len(response.member_id)) == (0, 22)
    assert (await join(api, "", "t")).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "none"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_names": ["x" * 30_000] * 40}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"subscribed_topic_names": ["t"] * 10_001}, ErrorCode.POLICY_VIOLATION),
    ],
)
async def test_bad_requests_are_refused(api: Api, fields: dict[str, Any], code: ErrorCode) -> None:
    response = await join(api, "a", "t", **fields)
    assert (response.error_code, bool(response.error_message)) == (code, True)
    assert (await api(ListGroupsRequest(), 5)).groups == []


async def test_a_group_goes_on_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    async with api_of_a_broker(SETTINGS, data_dir=tmp_path) as api:
        await coordinated(api, "t")
        await join(api, "a", "t")
        assert (await commit(api, "t", {0: 5}, member_id="a", generation_id_or_member_epoch=2)) == [0]
    async with api_of_a_broker(SETTINGS, data_dir=tmp_path) as api:
        await loaded(api)
        (group,) = await describe(api, "g")
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
        response = await beat(api, "a", 2, topic_partitions=owned(await ids_of(api), t=[0, 1]))
        assert (response.error_code, response.member_epoch) == (0, 2)
        assert await fetched(api) == {"t": {0: 5}}


def owned(ids: Mapping[str, UUID], **partitions: list[int]) -> list[Any]:
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=ids[name], partitions=numbers)
        for name, numbers in partitions.items()
    ]


async def test_changes_of_topics_are_seen(api: Api) -> None:
    assert (await join(api, "a", "t", "new")).member_epoch == 2
    await coordinated(api, "new")
    assert (await beat(api, "a", 2)).member_epoch == 3
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=3, assignments=None)
    await api(CreatePartitionsRequest(topics=[topic], timeout_ms=9000), 2)
    response = await beat(api, "a", 3)
    assert (response.member_epoch, await assigned(api, response)) == (4, {"new": [0, 1], "t": [0, 1, 2]})
    await api(DeleteTopicsRequest(topic_names=["new"], timeout_ms=9000), 5)
    response = await beat(api, "a", 4)
    assert (response.member_epoch, await assigned(api, response)) == (4, {"t": [0, 1, 2]}), "to be given up first"
    response = await beat(api, "a", 4, topic_partitions=owned(await ids_of(api), t=[0, 1, 2]))
    assert response.member_epoch == 5


async def test_an_expression_is_resolved(api: Api) -> None:
    assert (await join(api, "a", subscribed_topic_regex="t.*")).member_epoch == 1

    async def is_assigned() -> bool:
        response = await beat(api, "a", 1)
        return response.assignment is not None and await assigned(api, response) == {"t": [0, 1]}

    await until(is_assigned)
    (group,) = await describe(api, "g")
    assert [member.subscribed_topic_regex for member in group.members] == ["t.*"]


async def test_the_first_assignor_is_that_of_groups_whose_members_want_none() -> None:
    """Assignors may be named by Kafka's classes."""
    assignors = "org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform"
    async with api_of_a_broker({**SETTINGS, "group.consumer.assignors": assignors}) as api:
        await coordinated(api, "t")
        await join(api, "a", "t")
        assert [each.assignor_name for each in await describe(api, "g")] == ["range"]
        await join(api, "b", "t", server_assignor="uniform")
        assert [each.assignor_name for each in await describe(api, "g")] == ["uniform"]


async def test_a_group_has_at_most_the_configured_number_of_members() -> None:
    settings = {**SETTINGS, "group.consumer.max.size": 1, "group.consumer.heartbeat.interval.ms": 700}
    async with api_of_a_broker(settings) as api:
        await coordinated(api, "t")
        assert (await join(api, "a", "t")).heartbeat_interval_ms == 700
        assert (await join(api, "b", "t")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (await join(api, "a", "t")).error_code == 0


@pytest.mark.parametrize("setting", ["group.coordinator.rebalance.protocols", "odradek.initial.features"])
async def test_the_protocol_may_be_off(setting: str) -> None:
    value = "classic" if setting.startswith("group") else "group.version=0"
    async with api_of_a_broker({**SETTINGS, setting: value}) as api:
        await coordinated(api, "t")
        assert (await join(api, "a", "t")).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [each.error_code for each in await describe(api, "g")] == [ErrorCode.UNSUPPORTED_VERSION]
        assert await commit(api, "t", {0: 5}) == [0]
        assert await fetched(api) == {"t": {0: 5}}


# --- administration -----------------------------------------------------------------------------------------------


async def test_groups_are_described_listed_and_deleted(api: Api) -> None:
    await join(api, "a", "t", instance_id="i", rack_id="r")
    found, missing = await describe(api, "g", "none", "g")
    assert (found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name) == (
        "Stable",
        2,
        2,
        "uniform",
    )
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("a", "i", "r", 2)
    assert (member.client_host, member.subscribed_topic_names, member.member_type) == ("/127.0.0.1", ["t"], 1)
    for assignment in (member.assignment, member.target_assignment):
        assert [(each.topic_name, each.partitions) for each in assignment.topic_partitions] == [("t", [0, 1])]
    assert (missing.error_code, bool(missing.error_message)) == (ErrorCode.GROUP_ID_NOT_FOUND, True)
    (old,) = await describe(api, "g", version=0)
    assert old.members[0].member_type == -1

    listed = (await api(ListGroupsRequest(states_filter=["stable"], types_filter=["Consumer"]), 5)).groups
    assert [(each.group_id, each.group_type, each.protocol_type, each.group_state) for each in listed] == [
        ("g", "consumer", "consumer", "Stable")
    ]
    assert (await api(ListGroupsRequest(types_filter=["classic"]), 5)).groups == []
    (classic,) = (await api(DescribeGroupsRequest(groups=["g"]), 5)).groups
    assert (classic.error_code, classic.group_state) == (0, "Dead")

    assert await deleted(api) == ErrorCode.NON_EMPTY_GROUP
    await beat(api, "a", -1, instance_id="i")
    assert await deleted(api) == 0
    assert await deleted(api) == ErrorCode.GROUP_ID_NOT_FOUND


async def deleted(api: Api) -> int:
    (result,) = (await api(DeleteGroupsRequest(groups_names=["g"]), 2)).results
    return int(result.error_code)


async def test_offsets_of_subscribed_topics_are_not_deleted(api: Api) -> None:
    await join(api, "a", "t")
    member: dict[str, Any] = {"member_id": "a", "generation_id_or_member_epoch": 2}
    for topic in ("t", "u"):
        assert await commit(api, topic, {0: 5}, **member) == [0]
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=[partition]) for name in ("t", "u")]
    response = await api(OffsetDeleteRequest(group_id="g", topics=topics), 0)
    codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert codes == {"t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "u": 0}


# --- offsets ------------------------------------------------------------------------------------------------------


async def commit(api: Api, topic: str | UUID, offsets: dict[int, int], version: int = 9, **more: Any) -> list[int]:
    """Commits and returns the error codes in the order of the partitions. `topic`: an id from version 10 on."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    named = {"topic_id": topic} if isinstance(topic, UUID) else {"name": topic}
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            partitions=[partition(partition_index=p, committed_offset=o) for p, o in offsets.items()], **named
        )
    ]
    response = await api(OffsetCommitRequest(group_id="g", topics=topics, **more), version)
    assert [each.topic_id for each in response.topics] == [topic if isinstance(topic, UUID) else NOBODY]
    return [each.error_code for topic in response.topics for each in topic.partitions]


async def fetched(api: Api, **member: Any) -> dict[str, dict[int, int]] | int:
    """Returns all offsets, or the error of the group."""
    group = _Group(group_id="g", topics=None, **member)
    (found,) = (await api(OffsetFetchRequest(groups=[group]), 9)).groups
    if found.error_code:
        return int(found.error_code)
    return {each.name: {one.partition_index: one.committed_offset for one in each.partitions} for each in found.topics}


async def test_commits_bear_the_epoch_of_the_member(api: Api) -> None:
    await join(api, "a", "t")

    async def code(member_id: str, epoch: int, version: int = 9) -> int:
        (found,) = await commit(api, "t", {0: 5}, version, member_id=member_id, generation_id_or_member_epoch=epoch)
        return found

    assert await code("a", 2) == 0
    assert await code("a", 2, 8) == ErrorCode.UNSUPPORTED_VERSION
    assert await code("a", 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert await code("b", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await code("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await fetched(api, member_id="a", member_epoch=2) == {"t": {0: 5}}
    assert await fetched(api) == {"t": {0: 5}}
    assert await fetched(api, member_id="a", member_epoch=1) == ErrorCode.STALE_MEMBER_EPOCH
    assert await fetched(api, member_id="b", member_epoch=2) == ErrorCode.UNKNOWN_MEMBER_ID
    await beat(api, "a", -1)
    assert await code("", -1) == 0


async def test_an_older_epoch_commits_what_the_member_has_kept(api: Api) -> None:
    await join(api, "a", "t")
    assert (await join(api, "b", "t")).member_epoch == 3
    ids = await ids_of(api)
    (kept,) = (await assigned(api, await beat(api, "a", 2)) or {})["t"]
    other = 1 - kept
    member: dict[str, Any] = {"member_id": "a", "generation_id_or_member_epoch": 2}
    assert await commit(api, "t", {0: 5, 1: 5}, **member) == [0, 0], "it still has the one that it must give up"
    assert (await beat(api, "a", 2, topic_partitions=owned(ids, t=[kept]))).member_epoch == 3
    assert await commit(api, ids["t"], {kept: 6}, 10, **member) == [0]
    assert await commit(api, "t", {kept: 7, other: 7}, **member) == [ErrorCode.STALE_MEMBER_EPOCH] * 2
    assert await fetched(api) == {"t": {kept: 6, other: 5}}
    member["member_id"] = "b"
    assert await assigned(api, await beat(api, "b", 3)) == {"t": [other]}
    assert await commit(api, "t", {other: 8}, **member) == [ErrorCode.STALE_MEMBER_EPOCH], "it had nothing then"


async def test_an_older_epoch_commits_while_the_protocol_is_off(api: Api) -> None:
    await join(api, "a", "t")
    await join(api, "b", "t")
    (kept,) = (await assigned(api, await beat(api, "a", 2)) or {})["t"]
    assert (await beat(api, "a", 2, topic_partitions=owned(await ids_of(api), t=[kept]))).member_epoch == 3
    key = UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
    assert (await api(UpdateFeaturesRequest(feature_updates=[key]), 1)).error_code == 0
    assert await commit(api, "t", {kept: 5}, member_id="a", generation_id_or_member_epoch=2) == [0]
    stored = api.broker.coordinators.groups.shard_of("g").offsets.committed("g")
    assert stored["t"][kept].topic_id == NOBODY


async def test_topics_are_named_by_their_ids(api: Api) -> None:
    ids = await ids_of(api)
    assert await commit(api, ids["t"], {0: 5, 7: 5}, 10) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await commit(api, UNKNOWN, {0: 5, 1: 5}, 10) == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
    assert await commit(api, "u", {1: 6}) == [0]
    topics = [_Fetched(topic_id=each, partition_indexes=[0, 1]) for each in (ids["t"], UNKNOWN)]
    assert await fetched_by_id(api, topics) == {ids["t"]: [5, -1], UNKNOWN: [-1 - ErrorCode.UNKNOWN_TOPIC_ID] * 2}
    assert await fetched_by_id(api, None) == {ids["t"]: [5], ids["u"]: [6]}


async def fetched_by_id(api: Api, topics: Any) -> dict[UUID, list[int]]:
    """Returns offsets; -1 minus the error code where a partition has an error."""
    (group,) = (await api(OffsetFetchRequest(groups=[_Group(group_id="g", topics=topics)]), 10)).groups
    assert group.error_code == 0
    return {
        topic.topic_id: [-1 - one.error_code if one.error_code else one.committed_offset for one in topic.partitions]
        for topic in group.topics
    }


async def test_an_offset_of_a_former_topic_is_none(api: Api) -> None:
    """Offsets of a topic that was deleted while no broker coordinated the group stay."""
    ids = await ids_of(api)
    assert await commit(api, ids["t"], {0: 5}, 10) == [0]
    shard = api.broker.coordinators.groups.shard_of("g")
    shard.offsets.committed("g")["t"][0].topic_id = UNKNOWN
    topics = [_Fetched(topic_id=ids["t"], partition_indexes=[0])]
    assert await fetched_by_id(api, topics) == {ids["t"]: [-1]}
    assert await fetched(api) == {"t": {0: 5}}


async def test_names_and_ids_of_a_deleted_topic_have_kafkas_errors(api: Api) -> None:
    old = (await ids_of(api))["t"]
    await join(api, "a", "t")
    member: dict[str, Any] = {"member_id": "a", "generation_id_or_member_epoch": 2}
    assert await commit(api, old, {0: 5}, 10, **member) == [0]
    for again in (False, True):
        if again:
            await api(requests.create_topics("t", partitions=2), 5)
        else:
            await api(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 3)
        assert await commit(api, old, {0: 6}, 10, **member) == [ErrorCode.UNKNOWN_TOPIC_ID]
        topics = [_Fetched(topic_id=old, partition_indexes=[0])]
        assert await fetched_by_id(api, topics) == {old: [-1 - ErrorCode.UNKNOWN_TOPIC_ID]}
        produced = await api(producing_to(old), 13)
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        fetched_topic = FetchRequest.FetchTopic(topic_id=old, partitions=[FetchRequest.FetchPartition()])
        read = await api(FetchRequest(topics=[fetched_topic], session_epoch=-1), 18)
        assert read.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        asked = MetadataRequest.MetadataRequestTopic(topic_id=old, name=None)
        assert (await api(MetadataRequest(topics=[asked]), 13)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        named = [DescribeTopicPartitionsRequest.TopicRequest(name="t")]
        (described,) = (await api(DescribeTopicPartitionsRequest(topics=named), 0)).topics
        assert described.error_code == (0 if again else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        told = await beat(
            api, "a", member["generation_id_or_member_epoch"], topic_partitions=owned({"t": old}, t=[0, 1])
        )
        assert told.error_code == 0, "it still says that it owns the deleted one"
        member["generation_id_or_member_epoch"] = told.member_epoch
        (group,) = await describe(api, "g")
        assert old not in {each.topic_id for one in group.members for each in one.assignment.topic_partitions}
    told = await beat(api, "a", member["generation_id_or_member_epoch"], topic_partitions=[])
    new = (await ids_of(api))["t"]
    assert (new != old, await assigned(api, told)) == (True, {"t": [0, 1]})
    assert await commit(api, new, {0: 7}, 10, **{**member, "generation_id_or_member_epoch": told.member_epoch}) == [0]


def producing_to(topic_id: UUID) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=0, records=build_batch([Record(0, 0, None, b"v")]))
    topic = ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])


# --- access -------------------------------------------------------------------------------------------------------


async def test_what_a_client_may_not_do() -> None:
    authorizer = ScriptedAuthorizer()
    async with api_with(authorizer, {**SETTINGS, "offsets.topic.num.partitions": "1"}) as api:
        await coordinated(api, "t", "u")
        ids = await ids_of(api)
        authorizer.change(but(Question(Op.READ, On.GROUP, "g")))
        assert (await join(api, "a", "t")).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert (await beat(api, "a", -1)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        authorizer.change(but(Question(Op.DESCRIBE, On.TOPIC, "u")))
        assert (await join(api, "a", "t", "u")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await join(api, "a", subscribed_topic_regex="[tu]")).error_code == 0

        async def is_assigned() -> bool:
            return await assigned(api, await beat(api, "a", 1)) == {"t": [0, 1]}

        await until(is_assigned)
        authorizer.change(but(Question(Op.DESCRIBE, On.GROUP, "g")))
        assert [each.error_code for each in await describe(api, "g")] == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        authorizer.change(but(Question(Op.DESCRIBE, On.TOPIC, "t")))
        (hidden,) = await describe(api, "g")
        assert (hidden.error_code, hidden.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
        authorizer.change(everything)
        (seen,) = await describe(api, "g", include_authorized_operations=True)
        assert (seen.error_code, seen.authorized_operations > 0, len(seen.members)) == (0, True, 1)

        authorizer.change(but(Question(Op.READ, On.TOPIC, "t")))
        member: dict[str, Any] = {"member_id": "a", "generation_id_or_member_epoch": 2}
        assert await commit(api, ids["t"], {0: 5}, 10, **member) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert await commit(api, UNKNOWN, {0: 5}, 10, **member) == [ErrorCode.UNKNOWN_TOPIC_ID]
        authorizer.change(everything)
        assert await commit(api, ids["t"], {0: 5}, 10, **member) == [0]
        authorizer.change(but(Question(Op.DESCRIBE, On.TOPIC, "t")))
        topics = [_Fetched(topic_id=ids["t"], partition_indexes=[0])]
        denied = -1 - ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await fetched_by_id(api, topics) == {ids["t"]: [denied]}
        assert await fetched_by_id(api, None) == {}


async def test_a_new_topic_that_an_expression_matches_is_seen(api: Api) -> None:
    await api(requests.create_topics("t2", partitions=1), 5)
    assert (await join(api, "a", subscribed_topic_regex="t[0-9]")).error_code == 0

    async def is_assigned() -> bool:
        return await assigned(api, await beat(api, "a", 1)) == {"t2": [0]}

    await until(is_assigned)
