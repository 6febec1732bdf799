"""Metadata over a socket. The error codes are those of Apache Kafka 3.9 in ZooKeeper mode."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo
from odradek.broker.metadata.new_topic import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.wire.api import Api, api_of_a_broker

ZERO = UUID(int=0)
NOT_ASKED = -(2**31)
Asked = MetadataRequest.MetadataRequestTopic


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker() as api:
        yield api


async def ask(api: Api, names: list[str] | None, version: int = 11, **fields: bool) -> MetadataResponse:
    topics = None if names is None else [Asked(name=name) for name in names]
    response: MetadataResponse = await api(MetadataRequest(topics=topics, **fields), version)
    return response


def codes(response: MetadataResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


@pytest.mark.parametrize("version", range(13))
async def test_a_topic_is_returned_with_the_fields_of_the_version(api: Api, version: int) -> None:
    await api.broker.controller.topics.create([NewTopic("t", 2)], timeout_ms=10_000)
    response = await ask(api, ["t"], version)
    node = api.broker.config.broker_id
    (broker,) = response.brokers
    assert (broker.node_id, f"{broker.host}:{broker.port}") == (node, api.broker.bootstrap)
    assert response.controller_id == (node if version >= 1 else -1)
    assert response.cluster_id == (api.broker.metadata.cluster_id if version >= 2 else None)
    (topic,) = response.topics
    assert (topic.name, topic.error_code, topic.is_internal) == ("t", 0, False)
    assert topic.topic_id == (api.broker.metadata.topic_id("t") if version >= 10 else ZERO)
    assert [one.partition_index for one in topic.partitions] == [0, 1]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (0, node)
        assert partition.leader_epoch == (0 if version >= 7 else -1)
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([node], [node], [])


async def test_null_returns_all_topics_and_an_empty_list_none_except_in_version_0(api: Api) -> None:
    await api.broker.controller.topics.create([NewTopic("a"), NewTopic("b")], timeout_ms=10_000)
    assert codes(await ask(api, None)) == [("a", 0), ("b", 0)]
    assert codes(await ask(api, [])) == []
    assert codes(await ask(api, [], 1)) == []
    assert codes(await ask(api, [], 0)) == [("a", 0), ("b", 0)]
    assert codes(await ask(api, ["b", "b"])) == [("b", 0)]


async def test_a_requested_topic_is_created_when_client_and_broker_allow_it(api: Api) -> None:
    assert codes(await ask(api, ["n"], allow_auto_topic_creation=False)) == [("n", 3)]
    for version in (0, 3):
        response = await ask(api, [f"old{version}"], version)
        assert codes(response) == [(f"old{version}", 0)]
    response = await ask(api, ["n", "m"])
    assert codes(response) == [("n", 0), ("m", 0)]
    assert all(topic.partitions[0].leader_id == api.broker.config.broker_id for topic in response.topics)


async def test_the_broker_can_forbid_creation() -> None:
    async with api_of_a_broker({"auto.create.topics.enable": "false"}) as api:
        assert codes(await ask(api, ["n"])) == [("n", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


async def test_created_topics_have_the_brokers_default_counts() -> None:
    async with api_of_a_broker({"num.partitions": "3"}) as api:
        response = await ask(api, ["n"])
        assert len(response.topics[0].partitions) == 3


async def test_a_topic_that_cannot_be_created_returns_the_reason(api: Api) -> None:
    await api.broker.controller.topics.create([NewTopic("c.d")], timeout_ms=10_000)
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    response = await ask(api, ["a/b", ".", "", "x" * 250, "c_d"])
    assert codes(response) == [(name, invalid) for name in ("a/b", ".", "", "x" * 250, "c_d")]
    response = await ask(api, ["a/b", "c_d"], allow_auto_topic_creation=False)
    assert codes(response) == [("a/b", invalid), ("c_d", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


async def test_requested_internal_topics_are_created_with_their_coordinators_settings(api: Api) -> None:
    response = await ask(api, ["__consumer_offsets"], allow_auto_topic_creation=False)
    assert codes(response) == [("__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert response.topics[0].is_internal
    response = await ask(api, ["__consumer_offsets"])
    assert codes(response) == [("__consumer_offsets", ErrorCode.NONE)]
    assert len(response.topics[0].partitions) == api.broker.config.offsets_topic_num_partitions
    assert api.broker.metadata.topic_config("__consumer_offsets")["cleanup.policy"] == "compact"


async def test_concurrent_requests_for_a_new_topic_all_get_it(api: Api) -> None:
    host, port = api.broker.bootstrap.split(":")
    from odradek.clients.network_client import NetworkClient

    async with await NetworkClient.connect(host, int(port)) as other:
        import asyncio

        request = MetadataRequest(topics=[Asked(name="n")])
        responses = await asyncio.gather(*(other.send(request, version=11) for _ in range(5)), ask(api, ["n"]))
    assert {response.topics[0].error_code for response in responses} == {0}
    assert len({response.topics[0].topic_id for response in responses}) == 1


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_and_null_names_are_refused_in_versions_that_do_not_support_them(api: Api, version: int) -> None:
    request = MetadataRequest(topics=[Asked(name=None), Asked(name="t", topic_id=UUID(int=5))])
    response = await api(request, version)
    assert codes(response) == [("", ErrorCode.INVALID_REQUEST), ("t", ErrorCode.INVALID_REQUEST)]


async def test_topics_are_found_by_their_ids(api: Api) -> None:
    await api.broker.controller.topics.create([NewTopic("t", 2), NewTopic("u")], timeout_ms=10_000)
    known, unknown = api.broker.metadata.topic_id("t"), UUID(int=5)
    asked = [Asked(name=None, topic_id=each) for each in (known, unknown, known, unknown)]
    response = await api(MetadataRequest(topics=asked, include_topic_authorized_operations=True), 12)
    found = {topic.topic_id: topic for topic in response.topics}
    assert len(response.topics) == len(found) == 2
    assert (found[known].name, found[known].error_code, len(found[known].partitions)) == ("t", 0, 2)
    assert found[known].topic_authorized_operations == 3576
    assert (found[unknown].name, found[unknown].error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert (found[unknown].partitions, found[unknown].topic_authorized_operations) == ([], NOT_ASKED)


async def test_names_do_not_count_beside_an_id(api: Api) -> None:
    await api.broker.controller.topics.create([NewTopic("t"), NewTopic("u")], timeout_ms=10_000)
    topic_id = api.broker.metadata.topic_id("t")
    both = Asked(name="u", topic_id=topic_id)
    others = [Asked(name="u"), Asked(name="new"), Asked(name=None)]
    assert codes(await api(MetadataRequest(topics=[both, *others]), 12)) == [("t", 0)]
    assert api.broker.metadata.topic("new") is None


async def test_no_topic_is_created_for_an_unknown_id(api: Api) -> None:
    response = await api(MetadataRequest(topics=[Asked(name="new", topic_id=UUID(int=5))]), 12)
    assert codes(response) == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert api.broker.metadata.topic_names() == []


async def test_a_topic_with_neither_name_nor_id_is_refused(api: Api) -> None:
    response = await api(MetadataRequest(topics=[Asked(name=None), Asked(name="t")]), 12)
    assert codes(response) == [("", ErrorCode.INVALID_REQUEST), ("t", ErrorCode.INVALID_REQUEST)]
    assert api.broker.metadata.topic("t") is None


async def test_authorized_operations_are_returned_on_request(api: Api) -> None:
    response = await ask(api, ["t"])
    assert response.topics[0].topic_authorized_operations == NOT_ASKED
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    response = await ask(api, ["t"], 10, **asked)
    assert (response.topics[0].topic_authorized_operations, response.cluster_authorized_operations) == (3576, 8096)
    response = await ask(api, ["missing/"], 11, include_topic_authorized_operations=True)
    assert response.topics[0].topic_authorized_operations == 3576


async def test_a_leader_without_an_address_on_the_listener_is_an_error_by_version(api: Api) -> None:
    await api.broker.controller.topics.create([NewTopic("t")], timeout_ms=10_000)
    node = api.broker.config.broker_id
    api.broker.metadata.put_broker(BrokerInfo(node, {"OTHER": BrokerEndpoint("OTHER", "h", 1)}))
    for version, code in [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)]:
        response = await ask(api, ["t"], version)
        (partition,) = response.topics[0].partitions
        assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (code, -1, [node])
        assert response.brokers == []
    (partition,) = (await ask(api, ["t"], 0)).topics[0].partitions
    assert (partition.error_code, partition.replica_nodes, partition.isr_nodes) == (
        ErrorCode.LEADER_NOT_AVAILABLE,
        [],
        [],
    )
