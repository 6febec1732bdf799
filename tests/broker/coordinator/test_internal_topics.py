"""FindCoordinator and the internal topics that it creates."""

import errno
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.coordinator.internal_topics import group_log_settings, transaction_log_settings
from odradek.broker.coordinator.runtime.runtime import RuntimeSettings, partition_for
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.broker.metadata.new_topic import NewPartitions
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.files import File, OsFiles
from tests.wire.api import Api, api_of_a_broker

NOT_YET = ErrorCode.COORDINATOR_NOT_AVAILABLE
FEW = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 4}


class FullDisk(OsFiles):
    """Refuses to create files while the disk is full."""

    full = False

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> File:
        if self.full and create and not os.path.exists(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super().open(path, create=create, exclusive=exclusive)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker(FEW) as api:
        yield api


async def find(api: Api, key: str = "g", key_type: int = 0, version: int = 3) -> Any:
    return await api(FindCoordinatorRequest(key=key, key_type=key_type), version)


async def found(api: Api, key_type: int = 0) -> Any:
    """Retries as clients do until there is a coordinator. Other errors end the wait."""
    while True:
        response = await find(api, key_type=key_type)
        if response.error_code != NOT_YET:
            return response


@pytest.mark.parametrize("version", range(5))
async def test_the_first_find_coordinator_creates_the_topic_and_a_retry_finds_the_coordinator(
    api: Api, version: int
) -> None:
    for key_type, topic in enumerate((GROUP_TOPIC, TRANSACTION_TOPIC)[: 2 if version else 1]):
        asked = FindCoordinatorRequest(key="g", key_type=key_type, coordinator_keys=["g"] if version == 4 else [])
        response = await api(asked, version)
        first = response.coordinators[0] if version == 4 else response
        assert (first.error_code, first.node_id, first.host, first.port) == (NOT_YET, -1, "", -1)
        await found(api, key_type)
        created = api.broker.metadata.topic(topic)
        assert created is not None
        assert len(created.partitions) == 3 + key_type
        response = await api(asked, version)
        answer = response.coordinators[0] if version == 4 else response
        assert (answer.error_code, answer.node_id) == (0, api.broker.config.broker_id)
        assert f"{answer.host}:{answer.port}" == api.broker.bootstrap


async def test_the_topics_are_created_as_kafka_creates_them() -> None:
    settings = {
        "offsets.topic.num.partitions": 7,
        "offsets.topic.segment.bytes": 2_000_000,
        "transaction.state.log.segment.bytes": 3_000_000,
        "transaction.state.log.min.isr": 4,
        "transaction.state.log.num.partitions": 50,
    }
    async with api_of_a_broker(settings) as api:
        await found(api)
        metadata = api.broker.metadata
        topic = metadata.topic(GROUP_TOPIC)
        assert topic is not None
        assert (len(topic.partitions), topic.replication_factor, topic.is_internal) == (7, 1, True)
        assert metadata.topic(TRANSACTION_TOPIC) is None
        assert dict(metadata.topic_config(GROUP_TOPIC)) == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "2000000",
        }
        await found(api, 1)
        topic = metadata.topic(TRANSACTION_TOPIC)
        assert topic is not None
        assert (len(topic.partitions), topic.replication_factor, topic.is_internal) == (50, 1, True)
        assert dict(metadata.topic_config(TRANSACTION_TOPIC)) == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "4",
            "segment.bytes": "3000000",
            "unclean.leader.election.enable": "false",
        }


async def test_concurrent_find_coordinator_requests_create_one_topic(api: Api) -> None:
    keys = [f"group {number}" for number in range(100)]
    response = await api(FindCoordinatorRequest(coordinator_keys=keys, key_type=0), 4)
    assert [one.error_code for one in response.coordinators] == [NOT_YET] * 100
    with capture_logs() as lines:
        await found(api)
    response = await api(FindCoordinatorRequest(coordinator_keys=keys, key_type=0), 4)
    assert [(one.key, one.error_code, one.error_message) for one in response.coordinators] == [
        (key, 0, "") for key in keys
    ]
    assert [line for line in lines if line["log_level"] == "error"] == []


@pytest.mark.parametrize("key_type", [2, 5, -1])
async def test_there_are_two_kinds_of_coordinators(api: Api, key_type: int) -> None:
    response = await find(api, key_type=key_type)
    assert (response.error_code, response.node_id, response.host, response.port) == (42, -1, "", -1)
    response = await api(FindCoordinatorRequest(coordinator_keys=["a"], key_type=key_type), 4)
    assert [(one.error_code, one.node_id, one.port) for one in response.coordinators] == [(42, -1, -1)]
    assert (await api(FindCoordinatorRequest(coordinator_keys=[], key_type=0), 4)).coordinators == []


@pytest.mark.parametrize("key", ["", "ü", "x" * 32_000])
async def test_any_id_has_a_coordinator(api: Api, key: str) -> None:
    await found(api)
    assert (await find(api, key)).error_code == 0


@pytest.mark.parametrize(
    ("setting", "topic", "key_type"),
    [
        ("offsets.topic.replication.factor", GROUP_TOPIC, 0),
        ("transaction.state.log.replication.factor", TRANSACTION_TOPIC, 1),
    ],
)
async def test_a_replication_factor_above_the_number_of_brokers_makes_the_coordinator_unavailable(
    setting: str, topic: str, key_type: int
) -> None:
    async with api_of_a_broker({**FEW, setting: 3}) as api:
        for _ in range(3):
            with capture_logs() as lines:
                assert (await find(api, key_type=key_type)).error_code == NOT_YET
                with pytest.raises(ProtocolError) as error:
                    await api.broker.coordinators.internal_topics.ensure(topic)
            assert error.value.code == NOT_YET
            (line, *_) = [line for line in lines if line["event"] == "internal topic not created"]
            assert (line["topic"], line["replication_factor"]) == (topic, 3)
        assert api.broker.metadata.topic(topic) is None
        await found(api, 1 - key_type)


def test_the_runtimes_follow_the_settings() -> None:
    config = BrokerConfig.single_node(
        {
            "offsets.load.buffer.size": "1234",
            "offsets.commit.timeout.ms": "2345",
            "offsets.commit.required.acks": "1",
            "offsets.topic.compression.codec": "3",
            "transaction.state.log.load.buffer.size": "3456",
        }
    )
    assert group_log_settings(config) == RuntimeSettings(GROUP_TOPIC, 1234, 2345, 1, 3)
    assert transaction_log_settings(config)[:2] == (TRANSACTION_TOPIC, 3456)
    assert transaction_log_settings(config)[3:] == (-1, 0, True, True)


async def test_a_full_disk_delays_the_coordinator_until_there_is_space() -> None:
    files = FullDisk()
    async with api_of_a_broker(FEW, files=files) as api:
        files.full = True
        await api.broker.coordinators.internal_topics.ensure(GROUP_TOPIC)
        assert (await find(api)).error_code == NOT_YET
        files.full = False
        assert (await found(api)).error_code == 0


async def test_a_partition_that_cannot_be_opened_has_no_coordinator(tmp_path: Path) -> None:
    async with api_of_a_broker(FEW, data_dir=tmp_path) as api:
        await found(api)
    lost = partition_for("g", 3)
    folder = tmp_path / f"{GROUP_TOPIC}-{lost}"
    shutil.rmtree(folder)
    folder.touch()
    async with api_of_a_broker(FEW, data_dir=tmp_path) as api:
        assert TopicPartition(GROUP_TOPIC, lost) in api.broker.replica_manager.partitions.offline
        assert (await find(api, "g")).error_code == NOT_YET
        other = next(key for key in "abcdef" if partition_for(key, 3) != lost)
        assert (await find(api, other)).error_code == 0


def partitions_of_ids(api: Api) -> set[int]:
    return {api.broker.coordinators.groups.runtime.partition_for(key) for key in "abcdefghij"}


async def test_ids_keep_their_partitions_until_the_next_start_when_the_topic_gains_partitions(tmp_path: Path) -> None:
    async with api_of_a_broker(FEW, data_dir=tmp_path) as api:
        await found(api)
        more_partitions = NewPartitions(GROUP_TOPIC, 5)
        assert await api.broker.controller.topics.add_partitions([more_partitions], timeout_ms=10_000) == [None]
        assert partitions_of_ids(api) == set(range(3))
        assert len(api.broker.coordinators.groups.runtime.shards()) == 5
    async with api_of_a_broker(FEW, data_dir=tmp_path) as api:
        assert partitions_of_ids(api) == set(range(5))


async def test_a_deleted_internal_topic_is_created_again(api: Api) -> None:
    await found(api)
    first = api.broker.metadata.topic_id(GROUP_TOPIC)
    await api.broker.controller.topics.delete([GROUP_TOPIC], timeout_ms=10_000)
    assert (await find(api)).error_code == NOT_YET
    await found(api)
    assert api.broker.metadata.topic_id(GROUP_TOPIC) != first


async def test_the_coordinators_stop_with_the_broker(tmp_path: Path) -> None:
    async with api_of_a_broker(FEW, data_dir=tmp_path) as api:
        await found(api)
        runtimes = api.broker.coordinators.runtimes
        assert {runtime.settings.topic for runtime in runtimes} == {GROUP_TOPIC, TRANSACTION_TOPIC}
        assert not any(runtime.is_stopping for runtime in runtimes)
    assert all(runtime.is_stopping for runtime in runtimes)
    assert [runtime.shards() for runtime in runtimes] == [[], []]
