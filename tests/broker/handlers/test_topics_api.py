"""CreateTopics, DeleteTopics and CreatePartitions over a socket. The error codes are those of Apache Kafka 3.9 in
ZooKeeper mode.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
)
from tests.wire.api import Api, api_of_a_broker

ZERO = UUID(int=0)
BROKER = 4
Topic = CreateTopicsRequest.CreatableTopic
Deletion = DeleteTopicsRequest.DeleteTopicState
More = CreatePartitionsRequest.CreatePartitionsTopic


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker() as api:
        yield api


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> Topic:
    entries = [
        CreateTopicsRequest.CreatableTopicConfig(name=config.replace("_", "."), value=value)
        for config, value in configs.items()
    ]
    return Topic(name=name, num_partitions=partitions, replication_factor=factor, configs=entries)


async def create(
    api: Api, *topics: Topic, version: int = 7, timeout_ms: int = 10_000, validate_only: bool = False
) -> list[CreateTopicsResponse.CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)
    response: CreateTopicsResponse = await api(request, version)
    return response.topics


async def delete(api: Api, *deletions: Deletion, version: int = 6, names: tuple[str, ...] = ()) -> list[tuple]:  # type: ignore[type-arg]
    request = DeleteTopicsRequest(topics=list(deletions), topic_names=list(names), timeout_ms=10_000)
    return [(one.name, one.topic_id, one.error_code) for one in (await api(request, version)).responses]


async def names(api: Api) -> list[str]:
    response = await api(MetadataRequest(topics=None), 11)
    return [one.name for one in response.topics]


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("version", range(8))
async def test_a_created_topic_is_described_with_the_fields_of_the_version(api: Api, version: int) -> None:
    (result,) = await create(api, topic("t", 3, retention_ms="5"), version=version)
    assert (result.name, result.error_code, result.error_message or None) == ("t", 0, None)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {config.name: (config.value, config.config_source) for config in result.configs or []}
        assert configs["retention.ms"] == ("5", 1)
        assert configs["segment.bytes"] == ("1073741824", 5)
        assert len(configs) >= 30
    assert (result.topic_id != ZERO) == (version >= 7)
    assert await names(api) == ["t"]


async def test_a_created_topic_is_described_with_the_present_settings_of_the_broker(api: Api) -> None:
    async def inherited(name: str) -> tuple[str | None, int]:
        (result,) = await create(api, topic(name))
        return next((one.value, one.config_source) for one in result.configs or [] if one.name == "segment.bytes")

    assert await inherited("before") == ("1073741824", 5)
    for value in ("1073741824", "4000"):
        item = IncrementalAlterConfigsRequest.AlterableConfig(name="log.segment.bytes", value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=BROKER, configs=[item])
        await api(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert await inherited(f"after-{value}") == (value, 3)


async def test_a_failed_topic_has_no_details(api: Api) -> None:
    (result,) = await create(api, topic("a/b", retention_ms="5"))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (17, -1, -1)
    assert (result.configs, result.topic_id, result.topic_config_error_code) == ([], ZERO, 0)
    assert result.error_message


async def test_counts_of_minus_one_mean_the_brokers_defaults(api: Api) -> None:
    (result,) = await create(api, topic("t", -1, -1))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 1, 1)


async def test_a_topic_named_twice_fails_each_time_and_the_others_do_not(api: Api) -> None:
    results = await create(api, topic("twice"), topic("twice"), topic("once"))
    invalid = ErrorCode.INVALID_REQUEST
    assert [(one.name, one.error_code) for one in results] == [("twice", invalid), ("twice", invalid), ("once", 0)]
    assert await names(api) == ["once"]


async def test_the_metadata_topic_of_kraft_is_reserved(api: Api) -> None:
    (result,) = await create(api, topic("__cluster_metadata"))
    assert result.error_code == ErrorCode.INVALID_REQUEST


async def test_a_null_setting_is_refused(api: Api) -> None:
    (result,) = await create(api, topic("t", retention_ms=None))
    assert result.error_code == ErrorCode.INVALID_CONFIG


async def test_replicas_can_be_assigned_and_the_last_of_two_assignments_applies(api: Api) -> None:
    node = api.broker.config.broker_id

    def assigned(*partitions: tuple[int, list[int]]) -> Topic:
        made = topic("t", -1, -1)
        made.assignments = [
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in partitions
        ]
        return made

    for partitions in [[(0, [node, node])], [(0, [node]), (2, [node])], [(0, [node + 1])], [(1, [node])]]:
        (result,) = await create(api, assigned(*partitions))
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    (result,) = await create(api, assigned((0, [node + 1]), (1, [node]), (0, [node])))
    assert (result.error_code, result.num_partitions) == (0, 2)


async def test_validate_only_returns_the_result_and_creates_nothing(api: Api) -> None:
    good, bad = await create(api, topic("t", 4), topic("a/b"), validate_only=True)
    assert (good.error_code, good.num_partitions, good.topic_id) == (0, 4, ZERO)
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await names(api) == []


async def test_a_timeout_of_zero_times_out_although_the_change_has_begun(api: Api) -> None:
    await create(api, topic("t"))
    results = await create(api, topic("t"), topic("n"), timeout_ms=0)
    assert [one.error_code for one in results] == [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT]
    request = CreatePartitionsRequest(topics=[More(name="n", count=2, assignments=None)], timeout_ms=10_000)
    response = await api(request, 3)  # runs after the creation
    assert [one.error_code for one in response.results] == [0]


async def test_more_than_ten_thousand_partitions_in_one_request_are_refused_as_a_whole(api: Api) -> None:
    results = await create(api, topic("a", 5000), topic("b", 5001))
    assert [one.error_code for one in results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert await names(api) == []


@pytest.mark.parametrize("version", range(6))
async def test_topics_are_deleted_by_name(api: Api, version: int) -> None:
    await create(api, topic("t"), topic("kept"))
    deleted = await delete(api, version=version, names=("t", "missing", "t"))
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(name, code) for name, _, code in deleted] == [("t", 0), ("missing", missing), ("t", 0)]
    assert await names(api) == ["kept"]


async def test_topics_are_deleted_by_id(api: Api) -> None:
    (result,) = await create(api, topic("t"))
    unknown = uuid4()
    deleted = await delete(api, Deletion(topic_id=result.topic_id), Deletion(topic_id=unknown), Deletion(name="t"))
    assert deleted == [("t", result.topic_id, 0), (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID), ("t", ZERO, 0)]
    assert await names(api) == []


async def test_a_name_and_an_id_together_refuse_the_whole_request(api: Api) -> None:
    (result, _) = await create(api, topic("t"), topic("u"))
    deleted = await delete(api, Deletion(name="u"), Deletion(name="t", topic_id=result.topic_id))
    assert [code for _, _, code in deleted] == [ErrorCode.INVALID_REQUEST] * 2
    assert await names(api) == ["t", "u"]
    assert [code for *_, code in await delete(api, Deletion(), Deletion(name="u"))] == [ErrorCode.INVALID_REQUEST, 0]


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
async def test_deletion_can_be_switched_off(version: int, code: ErrorCode) -> None:
    async with api_of_a_broker({"delete.topic.enable": "false"}) as api:
        await create(api, topic("t"))
        assert await delete(api, version=version, names=("t",)) == [("t", ZERO, code)]
        assert await names(api) == ["t"]


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added_per_topic_with_separate_results(api: Api, version: int) -> None:
    await create(api, topic("t"), topic("u"), topic("w"))
    topics = [
        More(name="t", count=3, assignments=None),
        More(name="u", count=2, assignments=None),
        More(name="u", count=3, assignments=None),
        More(name="w", count=1, assignments=None),
        More(name="missing", count=2, assignments=None),
    ]
    response = await api(CreatePartitionsRequest(topics=topics, timeout_ms=10_000), version)
    assert {one.name: one.error_code for one in response.results} == {
        "t": 0,
        "u": ErrorCode.INVALID_REQUEST,
        "w": ErrorCode.INVALID_PARTITIONS,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    metadata = await api(MetadataRequest(topics=None), 11)
    assert {one.name: len(one.partitions) for one in metadata.topics} == {"t": 3, "u": 1, "w": 1}


async def test_topics_survive_a_restart_and_deleted_ones_do_not(tmp_path: Path) -> None:
    async with api_of_a_broker(data_dir=tmp_path) as api:
        results = await create(api, topic("kept", 2, retention_ms="77"), topic("gone"))
        await delete(api, Deletion(name="gone"))
    async with api_of_a_broker(data_dir=tmp_path) as api:
        response = await api(MetadataRequest(topics=None), 11)
        assert [(one.name, one.topic_id, len(one.partitions)) for one in response.topics] == [
            ("kept", results[0].topic_id, 2)
        ]
        assert api.broker.metadata.topic_config("kept") == {"retention.ms": "77"}
    assert "gone-0" not in names_in(tmp_path)


async def test_the_folder_of_another_topic_of_the_same_name_is_moved_aside_and_kept(tmp_path: Path) -> None:
    async with api_of_a_broker(data_dir=tmp_path) as api:
        await create(api, topic("t"))
    for name in ("metadata.journal", "metadata.snapshot"):
        (tmp_path / name).unlink(missing_ok=True)
    before = names_in(tmp_path / "t-0")
    async with api_of_a_broker(data_dir=tmp_path) as api:
        assert await names(api) == []
        await create(api, topic("t"))
        described = (await api(MetadataRequest(topics=None), 9)).topics[0]
        assert described.partitions[0].error_code == ErrorCode.NONE
    (stray,) = [name for name in names_in(tmp_path) if name.endswith("-stray")]
    assert names_in(tmp_path / stray) == before
