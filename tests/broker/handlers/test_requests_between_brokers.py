"""Requests that brokers send each other: which listener serves them, and to whom ApiVersions lists them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.peers.inter_broker_protocol import BROKER_SOFTWARE
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_bound import MAX_PARTITIONS_PER_REQUEST
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from odradek.clients.network_client import NetworkClient
from odradek.clients.network_errors import Disconnected
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.producers import AllocateProducerIdsRequest
from odradek.protocol.messages.replica_control import StopReplicaRequest, UpdateMetadataRequest
from odradek.protocol.schema import Versions
from odradek.testing import in_process_broker
from tests.broker.handlers.test_transactions_api import SMALL
from tests.patience import until

LISTENERS = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker that shares its metadata store, as in a cluster."""
    store = SharedStore(session_timeout_ms=6000).session("1")
    texts = {name: str(value) for name, value in SMALL.items()}
    config = BrokerConfig.single_node({**texts, **LISTENERS, "log.dirs": str(tmp_path / "logs")})
    broker = Broker(config, new_metadata_store=lambda *_: store)
    await broker.start()
    yield broker
    await broker.stop()


async def connected(broker: Broker, listener: str, software: str = "odradek") -> NetworkClient:
    endpoint: Endpoint = next(endpoint for endpoint in broker.endpoints if endpoint.name == listener)
    return await NetworkClient.connect("127.0.0.1", endpoint.port, software_name=software)


async def test_only_the_inter_broker_listener_shows_requests_between_brokers(broker: Broker) -> None:
    """To all: Apache's brokers call themselves as Apache's clients do."""
    for_clients = {row.key: row.served for row in broker.api_table.client_rows()}
    for software in ("apache-kafka-java", BROKER_SOFTWARE):
        async with await connected(broker, "CLIENTS", software) as client:
            assert client.versions == for_clients
        async with await connected(broker, "BROKERS", software) as client:
            assert client.versions[ApiKey.ALLOCATE_PRODUCER_IDS] == Versions(0, 0)
            assert {key: client.versions[key] for key in for_clients} == for_clients


async def test_a_request_between_brokers_ends_a_connection_of_another_listener(broker: Broker) -> None:
    request = AllocateProducerIdsRequest(broker_id=broker.config.broker_id, broker_epoch=-2)
    with capture_logs() as logs:
        async with await connected(broker, "BROKERS") as client:
            assert (await client.send(request, version=0)).error_code == ErrorCode.STALE_BROKER_EPOCH
            async with await connected(broker, "CLIENTS", BROKER_SOFTWARE) as other:
                with pytest.raises(Disconnected):
                    await other.send(request, version=0)
            assert (await client.send(request, version=0)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert [line["api"] for line in logs if line["event"] == "API between brokers only"] == ["ALLOCATE_PRODUCER_IDS"]


async def test_a_broker_of_another_protocol_version_is_logged_by_its_client_id(broker: Broker) -> None:
    """Apache's controllers send their broker id as client id, and UpdateMetadata 8 from Kafka 3.9's protocol on. They
    send it again ten times a second.
    """
    endpoint: Endpoint = next(endpoint for endpoint in broker.endpoints if endpoint.name == "BROKERS")
    update = UpdateMetadataRequest(topic_states=[], live_brokers=[])
    stop = StopReplicaRequest(topic_states=[])
    with capture_logs() as logs:
        for client_id, request, version in [("5", update, 8)] * 3 + [("5", stop, 4), ("6", update, 8)] * 2:
            async with await NetworkClient.connect("127.0.0.1", endpoint.port, client_id=client_id) as client:
                with pytest.raises(Disconnected):
                    await client.send(request, version=version)
    named = [
        (line["client_id"], line["api"], line["api_version"], line["served"])
        for line in logs
        if line["event"] == "broker of another protocol version"
    ]
    assert named == [("5", "UPDATE_METADATA", 8, 7), ("5", "STOP_REPLICA", 4, 3), ("6", "UPDATE_METADATA", 8, 7)]
    assert {line["log_level"] for line in logs if "client_id" in line} == {"warning"}


@pytest.mark.parametrize("version", [12, 14, 15, 17])
async def test_only_a_broker_on_the_inter_broker_listener_may_fetch_more_partitions(
    broker: Broker, version: int
) -> None:
    """It may name as many more as this broker hosts. From version 15 on its id stands in a structure (KIP-903)."""
    hosted = 5
    (created,) = await broker.controller.topics.create([NewTopic("t", hosted, 1)], timeout_ms=10_000)
    assert not isinstance(created, Exception)
    await until(lambda: len(broker.replica_manager.partitions) == hosted)
    topic_id = broker.metadata.topic_id("t")

    def of(replica_id: int, count: int) -> FetchRequest:
        partitions = [FetchRequest.FetchPartition(partition=number) for number in range(count)]
        topics = [FetchRequest.FetchTopic(topic="t", topic_id=topic_id, partitions=partitions)]
        request = FetchRequest(session_epoch=-1, topics=topics)
        if version >= 15:
            request.replica_state = FetchRequest.ReplicaState(replica_id=replica_id)
        else:
            request.replica_id = replica_id
        return request

    refused = {}
    for listener in ("CLIENTS", "BROKERS"):
        async with await connected(broker, listener) as client:
            for replica_id in (-1, 1):
                for more in (hosted, hosted + 1):
                    answer = await client.send(of(replica_id, MAX_PARTITIONS_PER_REQUEST + more), version=version)
                    codes = {data.error_code for topic in answer.responses for data in topic.partitions}
                    if version >= 13 and answer.error_code:
                        assert not codes
                        codes = {answer.error_code}
                    refused[listener, replica_id, more] = codes == {ErrorCode.POLICY_VIOLATION}
    assert not refused.pop(("BROKERS", 1, hosted))
    assert set(refused.values()) == {True}


async def test_a_broker_without_others_serves_no_requests_between_brokers() -> None:
    async with in_process_broker() as broker, await connected(broker, "PLAINTEXT", BROKER_SOFTWARE) as client:
        assert ApiKey.ALLOCATE_PRODUCER_IDS not in client.versions
        with pytest.raises(Disconnected):
            await client.send(AllocateProducerIdsRequest(), version=0)
