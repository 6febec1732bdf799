"""A broker that serves clients what an older release of Kafka served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from odradek.broker.handlers.api_table import api_table
from odradek.broker.handlers.releases import table_of, versions_in
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.settings.config import ConfigError
from odradek.broker.settings.odradek import RELEASES
from odradek.cli.__main__ import main
from odradek.clients.network_errors import NetworkError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import versioned_version
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.cluster import DescribeClusterRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.records import Compression
from odradek.protocol.schema import Message
from odradek.testing import in_process_broker, in_process_cluster
from tests.beside_kafka.documents import batch
from tests.clients.recording.test_recorded_clients import coordinators_serve
from tests.wire import requests
from tests.wire.frames import request_bytes, response_of
from tests.wire.raw_client import raw_client
from tests.wire.records import connect, values

VECTOR = Path(__file__).parent.parent.parent / "vectors" / "api_versions_of_releases.json"
"""By release and API key: the lowest and the highest version that a broker listed, from `ApiKeys` of the released
kafka-clients.
"""
BETWEEN_BROKERS = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ENVELOPE,
    ApiKey.ALLOCATE_PRODUCER_IDS,
}
"""Clients do not ask these, which releases before 4.0 listed."""


OWN = ""
"""The broker's own APIs and versions."""


def settings_of(release: str) -> dict[str, str]:
    return {} if release == OWN else {"odradek.as.version": release}


async def ask(bootstrap: str, request: Message, version: int) -> Any:
    async with await connect(bootstrap, timeout_ms=10_000) as client:
        return await client.send(request, version=version)


def listed_here(release: str) -> dict[ApiKey, tuple[int, int]]:
    """What a broker lists as this release: what both have."""
    released = versions_in(release)
    return {
        row.key: (
            max(row.served.lowest, released[row.key].lowest),
            min(row.served.highest, released[row.key].highest),
        )
        for row in api_table().client_rows()
        if row.key in released
    }


async def listed_by(bootstrap: str) -> dict[ApiKey, tuple[int, int]]:
    answer = await ask(bootstrap, ApiVersionsRequest(), 0)
    return {ApiKey(each.api_key): (each.min_version, each.max_version) for each in answer.api_keys}


@pytest.mark.parametrize("release", RELEASES)
def test_the_table_is_that_of_the_released_clients(release: str) -> None:
    released = {ApiKey(int(key)): tuple(versions) for key, versions in json.loads(VECTOR.read_text())[release].items()}
    assert versions_in(release) == {key: each for key, each in released.items() if key not in BETWEEN_BROKERS}
    assert {row.key: row.served for row in table_of(release, api_table()).client_rows()} == listed_here(release)


def test_each_release_has_its_column() -> None:
    assert list(json.loads(VECTOR.read_text())) == list(RELEASES)


@pytest.mark.parametrize("release", RELEASES)
async def test_a_broker_lists_what_the_release_served(release: str) -> None:
    async with in_process_broker(odradek_as_version=release) as broker:
        assert await listed_by(broker.bootstrap) == listed_here(release)


async def test_a_version_that_4_0_has_removed_ends_the_connection() -> None:
    create = requests.create_topics("t", partitions=1, replicas=1)
    async with in_process_broker(odradek_as_version="4.0") as broker:
        with pytest.raises(NetworkError):
            await ask(broker.bootstrap, create, 1)
        assert (await ask(broker.bootstrap, create, 2)).topics[0].error_code == ErrorCode.NONE


async def test_an_api_or_version_that_came_later_ends_the_connection() -> None:
    metadata = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    async with in_process_broker(odradek_as_version="2.0") as broker:
        await ask(broker.bootstrap, metadata, 6)
        for request, version in ((metadata, 7), (DescribeClusterRequest(), 0)):
            with pytest.raises(NetworkError):
                await ask(broker.bootstrap, request, version)


@pytest.mark.parametrize("release", ["0.11", "2.4", "3.0", "4.4"])
async def test_brokers_of_a_cluster_replicate_in_their_own_versions(release: str) -> None:
    settings = {"default.replication.factor": "2", "min.insync.replicas": "2"}
    async with in_process_cluster(2, settings, odradek_as_version=release) as cluster:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", request_timeout_ms=20_000)
        async with producer:
            assert (await producer.send_and_wait("orders", b"an order")).offset == 0
        for bootstrap in cluster.bootstrap.split(","):
            listed = await listed_by(bootstrap)
            assert {key: listed[key] for key in listed_here(release)} == listed_here(release)


@pytest.mark.parametrize(("release", "ranges"), [("2.3", []), ("2.4", [(ApiKey.API_VERSIONS, 3)])])
async def test_only_releases_since_2_4_answer_too_new_an_api_versions_with_their_range(
    release: str, ranges: list[tuple[ApiKey, int]]
) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    async with in_process_broker(odradek_as_version=release) as broker, raw_client(broker.endpoints[0].port) as client:
        client.send(request_bytes(request, 4))
        frame = await client.frame()
    assert frame is not None
    answer = response_of(frame, request, 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.max_version) for each in answer.api_keys] == ranges


@pytest.mark.parametrize(("release", "text"), [("2.2", None), ("2.3", "NONE"), (OWN, "NONE")])
async def test_only_releases_since_2_3_have_a_text_for_no_error(release: str, text: str | None) -> None:
    few = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    async with in_process_broker(settings_of(release) | few) as broker:
        await coordinators_serve(broker.bootstrap)
        answer = await ask(broker.bootstrap, FindCoordinatorRequest(key="any"), 1)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, text)


@pytest.mark.parametrize(("release", "epoch"), [("2.6", -1), ("2.7", 0), (OWN, 0)])
async def test_only_releases_since_2_7_have_an_epoch_of_features(release: str, epoch: int) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    async with in_process_broker(settings_of(release)) as broker:
        answer = await ask(broker.bootstrap, request, 3)
    assert answer.finalized_features_epoch == epoch
    assert bool(answer.finalized_features) == bool(answer.supported_features) == (release == OWN)


@pytest.mark.parametrize(("release", "versions"), [("3.9", (3, 0)), ("4.4", (4, 1)), (OWN, (4, 1))])
async def test_releases_before_4_0_store_coordinators_records_as_3_9_does(
    release: str, versions: tuple[int, int]
) -> None:
    few = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    async with in_process_broker(settings_of(release) | few) as broker:
        await broker.controller.topics.create([NewTopic("t", 1, 1)], timeout_ms=10_000)
        await coordinators_serve(broker.bootstrap)
        answer = await ask(broker.bootstrap, requests.commit("g", "t", 0, 5), 7)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        answer = await ask(broker.bootstrap, requests.init("id"), 3)
        assert answer.error_code == ErrorCode.NONE
        stored = [await values(broker.bootstrap, topic) for topic in (GROUP_TOPIC, TRANSACTION_TOPIC)]
    assert tuple(versioned_version(records[-1]) for records in stored) == versions


@pytest.mark.parametrize(
    ("counts", "refusal"),
    [
        ((-1, 1), ErrorCode.INVALID_PARTITIONS),
        ((1, -1), ErrorCode.INVALID_REPLICATION_FACTOR),
        ((-1, -1), ErrorCode.INVALID_PARTITIONS),
    ],
)
async def test_a_topic_has_default_counts_since_2_4(counts: tuple[int, int], refusal: ErrorCode) -> None:
    for release, code in (("2.3", refusal), ("2.4", ErrorCode.NONE), (OWN, ErrorCode.NONE)):
        async with in_process_broker(settings_of(release)) as broker:
            answer = await ask(
                broker.bootstrap, requests.create_topics("t", partitions=counts[0], replicas=counts[1]), 3
            )
        assert answer.topics[0].error_code == code


@pytest.mark.parametrize(
    ("topic", "records", "codes"),
    [
        ("plain", batch(b"v", compression=Compression.ZSTD), {"2.0": -1, "2.1": 76, OWN: 76}),
        ("keyed", batch(b"v", key=None), {"2.3": 2, "2.4": 87, OWN: 87}),
        ("plain", batch(b"v"), {"1.0": 0}),
        ("nowhere", batch(b"v"), {"1.0": 3}),
    ],
    ids=["zstd", "no key", "valid", "no topic"],
)
async def test_a_refused_batch_gets_a_code_of_the_release(topic: str, records: bytes, codes: dict[str, int]) -> None:
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    for release, code in codes.items():
        async with in_process_broker(settings_of(release)) as broker:
            new = [NewTopic("plain", 1, 1), NewTopic("keyed", 1, 1, configs={"cleanup.policy": "compact"})]
            await broker.controller.topics.create(new, timeout_ms=10_000)
            answer = await ask(broker.bootstrap, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), 3)
        assert answer.responses[0].partition_responses[0].error_code == code, release


async def test_a_topic_with_assigned_replicas_has_no_counts_in_any_release() -> None:
    async with in_process_broker(odradek_as_version="1.0") as broker:
        answer = await ask(broker.bootstrap, requests.create_assigned("t", [0]), 2)
    assert answer.topics[0].error_code == ErrorCode.NONE


async def test_an_unknown_release_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"odradek\.as\.version=0\.10 is not one of 0\.11, 1\.0, "):
        async with in_process_broker(odradek_as_version="0.10"):
            pass


def test_the_option_takes_only_releases(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--as-version", "0.10"])
    assert "--as-version" in capsys.readouterr().err
