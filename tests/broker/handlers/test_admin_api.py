"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments and the ACL APIs over a socket."""

from collections.abc import AsyncIterator

import pytest

from odradek.broker.metadata.new_topic import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from tests.wire.api import Api, api_of_a_broker

Named = list[tuple[str, list[int]]]


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker() as api:
        await api.broker.controller.topics.create([NewTopic("t", 2), NewTopic("u")], timeout_ms=10_000)
        yield api


async def elect(
    api: Api, named: Named | None, version: int = 2, election_type: int = 0
) -> dict[tuple[str, int], ErrorCode]:
    topics = None
    if named is not None:
        topics = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=numbers) for name, numbers in named]
    response = await api(ElectLeadersRequest(topic_partitions=topics, election_type=election_type), version)
    return {
        (result.topic, one.partition_id): ErrorCode(one.error_code)
        for result in response.replica_election_results
        for one in result.partition_result
    }


@pytest.mark.parametrize("version", range(3))
async def test_a_partition_with_a_live_leader_needs_no_election(api: Api, version: int) -> None:
    not_needed, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    outcome = await elect(api, [("t", [0, 1, 0, 7]), ("none", [0])], version)
    assert outcome == {("t", 0): not_needed, ("t", 1): not_needed, ("t", 7): unknown, ("none", 0): unknown}
    assert await elect(api, None, version) == {}
    assert await elect(api, [], version) == {}


async def test_an_unclean_election_is_not_needed_either_and_unknown_types_are_refused(api: Api) -> None:
    assert await elect(api, [("t", [0])], election_type=1) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    assert await elect(api, [("t", [0])], election_type=7) == {("t", 0): ErrorCode.INVALID_REQUEST}


async def alter(api: Api, *reassignments: tuple[str, int, list[int] | None]) -> dict[tuple[str, int], ErrorCode]:
    topics = [
        AlterPartitionReassignmentsRequest.ReassignableTopic(
            name=topic,
            partitions=[
                AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=number, replicas=replicas)
            ],
        )
        for topic, number, replicas in reassignments
    ]
    response = await api(AlterPartitionReassignmentsRequest(topics=topics), 0)
    assert response.error_code == 0
    return {
        (result.name, one.partition_index): ErrorCode(one.error_code)
        for result in response.responses
        for one in result.partitions
    }


async def leader_epochs(api: Api) -> list[int]:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
    (topic,) = (await api(request, 9)).topics
    return [one.leader_epoch for one in sorted(topic.partitions, key=lambda one: int(one.partition_index))]


async def test_a_reassignment_to_itself_is_complete_before_the_response(api: Api) -> None:
    node = api.broker.broker_id
    outcome = await alter(api, ("t", 0, [node]), ("u", 0, [node]))
    assert set(outcome.values()) == {ErrorCode.NONE}
    assert await leader_epochs(api) == [1, 0]
    for topics in (None, [ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name="t")]):
        assert (await api(ListPartitionReassignmentsRequest(topics=topics), 0)).topics == []


async def test_invalid_reassignments_return_the_reason_and_change_nothing(api: Api) -> None:
    node = api.broker.broker_id
    invalid, none_under_way = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    for replicas in ([], [-1], [node, node], [node + 1], [node, node + 1]):
        assert await alter(api, ("t", 0, replicas)) == {("t", 0): invalid}
    assert await alter(api, ("t", 0, None), ("none", 0, None)) == {
        ("t", 0): none_under_way,
        ("none", 0): none_under_way,
    }
    assert await alter(api, ("t", 9, [node])) == {("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await alter(api) == {}
    assert await leader_epochs(api) == [0, 0]


async def test_the_last_of_two_reassignments_of_a_partition_applies(api: Api) -> None:
    node = api.broker.broker_id
    assert await alter(api, ("t", 0, [node]), ("t", 0, None)) == {("t", 0): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    assert await alter(api, ("t", 0, [99]), ("t", 0, [node])) == {("t", 0): ErrorCode.NONE}


@pytest.mark.parametrize("version", range(4))
async def test_acls_need_an_authorizer(api: Api, version: int) -> None:
    disabled = ErrorCode.SECURITY_DISABLED
    assert (await api(DescribeAclsRequest(resource_type_filter=1), version)).error_code == disabled
    creation = CreateAclsRequest.AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*")
    results = (await api(CreateAclsRequest(creations=[creation, creation]), version)).results
    assert [result.error_code for result in results] == [disabled, disabled]
    results = (await api(DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter()]), version)).filter_results
    assert [(result.error_code, result.matching_acls) for result in results] == [(disabled, [])]
