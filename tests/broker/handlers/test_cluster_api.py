"""DescribeCluster, DescribeLogDirs, InitProducerId and SASL over a socket."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from odradek.broker.metadata.new_topic import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.cluster import DescribeClusterRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.log_dirs import DescribeLogDirsRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from odradek.testing import BrokerThread
from tests.wire.api import Api, api_of_a_broker


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker() as api:
        yield api


async def test_the_cluster_is_described(api: Api) -> None:
    node = api.broker.config.broker_id
    response = await api(DescribeClusterRequest(), 0)
    assert (response.error_code, response.controller_id) == (0, node)
    assert response.cluster_id == api.broker.metadata.cluster_id
    assert [(one.broker_id, f"{one.host}:{one.port}") for one in response.brokers] == [(node, api.broker.bootstrap)]
    assert response.cluster_authorized_operations == -(2**31)
    response = await api(DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    assert response.cluster_authorized_operations == 8096
    response = await api(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(one.broker_id, one.is_fenced) for one in response.brokers] == [(node, False)]


def test_kafka_python_describes_the_cluster() -> None:
    """It reads a field that version 0 of DescribeCluster lacks."""
    with BrokerThread() as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        described = admin.describe_cluster()
        admin.close()
        assert described["controller_id"] == broker.broker.config.broker_id
        assert described["cluster_id"] == broker.broker.metadata.cluster_id


@pytest.mark.parametrize("version", range(6))
async def test_log_directories_name_the_partitions_asked_for(api: Api, version: int) -> None:
    await api.broker.controller.topics.create([NewTopic("t", 2), NewTopic("u")], timeout_ms=10_000)

    async def partitions(asked: list[tuple[str, list[int]]] | None) -> list[tuple[str, list[int]]]:
        topics = None
        if asked is not None:
            topics = [DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=p) for name, p in asked]
        (directory,) = (await api(DescribeLogDirsRequest(topics=topics), version)).results
        assert (directory.error_code, directory.log_dir) == (0, api.broker.config.log_dirs[0])
        return [(topic.name, [one.partition_index for one in topic.partitions]) for topic in directory.topics]

    assert await partitions(None) == [("t", [0, 1]), ("u", [0])]
    assert await partitions([("t", [1, 99]), ("missing", [0])]) == [("t", [1])]
    assert await partitions([]) == []


async def test_log_directories_have_the_space_of_their_file_system_from_version_4_on(api: Api) -> None:
    request = DescribeLogDirsRequest(topics=[])
    (directory,) = (await api(request, 3)).results
    assert (directory.total_bytes, directory.usable_bytes) == (-1, -1)
    response = await api(request, 4)
    (directory,) = response.results
    space = os.statvfs(directory.log_dir)
    assert (response.error_code, directory.total_bytes) == (0, space.f_blocks * space.f_frsize)
    assert 0 < directory.usable_bytes < directory.total_bytes
    assert abs(directory.usable_bytes - space.f_bavail * space.f_frsize) < directory.total_bytes / 10


async def test_only_the_endpoints_of_brokers_are_described(api: Api) -> None:
    codes = {}
    for kind in (1, 2, 0, 3, -1):
        response = await api(DescribeClusterRequest(endpoint_type=kind), 1)
        assert response.endpoint_type == 1
        assert bool(response.brokers) == (response.error_code == 0)
        codes[kind] = response.error_code
    unsupported = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    assert codes == {1: 0, 2: ErrorCode.MISMATCHED_ENDPOINT_TYPE, 0: unsupported, 3: unsupported, -1: unsupported}


@pytest.mark.parametrize("version", range(7))
async def test_no_broker_coordinates_share_groups(api: Api, version: int) -> None:
    """Before version 6 their type is unknown. Groups are the type of version 0, which has no field for it."""
    for kind in (2, 3, -1) if version else ():
        response = await api(FindCoordinatorRequest(key="g", coordinator_keys=["g"], key_type=kind), version)
        (found,) = response.coordinators if version >= 4 else [response]
        share = kind == 2 and version >= 6
        assert found.error_code == (ErrorCode.COORDINATOR_NOT_AVAILABLE if share else ErrorCode.INVALID_REQUEST)
        assert (found.node_id, found.host, found.port) == (-1, "", -1)
    assert api.broker.metadata.topic_names() == []


@pytest.mark.parametrize("version", range(6))
async def test_every_producer_gets_a_different_id(api: Api, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    responses = [await api(request, version) for _ in range(3)]
    assert [(one.error_code, one.producer_id, one.producer_epoch) for one in responses] == [(0, n, 0) for n in range(3)]


async def test_producer_ids_are_not_allocated_again_after_a_restart(tmp_path: Path) -> None:
    request, given = InitProducerIdRequest(transactional_id=None), []
    for _ in range(3):
        async with api_of_a_broker(data_dir=tmp_path) as api:
            given.append((await api(request, 4)).producer_id)
    assert len(set(given)) == 3


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "", "transaction_timeout_ms": 1000}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "x", "transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": "x", "transaction_timeout_ms": 10**9}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": "x", "transaction_timeout_ms": 1000}, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_an_invalid_init_producer_id_is_refused(api: Api, fields: dict[str, Any], code: ErrorCode) -> None:
    response = await api(InitProducerIdRequest(**fields), 4)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)


async def test_a_plain_listener_has_no_sasl(api: Api) -> None:
    for version in (0, 1):
        response = await api(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    for version in (0, 1, 2):
        response = await api(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version)
        assert (response.error_code, response.auth_bytes) == (ErrorCode.ILLEGAL_SASL_STATE, b"")
        assert response.error_message
