"""Requests that brokers send each other: which listener serves them, and to whom ApiVersions lists them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.background.background import Background
from odradek.broker.controller.embedded_store import EmbeddedMetadataStore
from odradek.broker.controller.state import NewTopic
from odradek.broker.peers.inter_broker_protocol import BROKER_SOFTWARE
from odradek.broker.peers.network_client import NetworkClient
from odradek.broker.peers.network_errors import Disconnected
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_bound import MAX_PARTITIONS_PER_REQUEST
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.testing import in_process_broker
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.protocol.messages.transactions import AddPartitionsToTxnRequest
from odradek.protocol.schema import Versions
from odradek.storage.files import OsFiles
from tests.broker.handlers.api_client import Api
from tests.broker.handlers.test_transactions_api import SMALL, add, end, new_producer, until_coordinated
from tests.patience import until

LISTENERS = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker whose metadata store is not its own, as in a cluster."""
    background = Background()
    (tmp_path / "store").mkdir()
    store = EmbeddedMetadataStore(str(tmp_path / "store"), OsFiles(), run_blocking=background.run_in_thread)
    texts = {name: str(value) for name, value in SMALL.items()}
    config = BrokerConfig.single_node({**texts, **LISTENERS, "log.dirs": str(tmp_path / "logs")})
    broker = Broker(config, metadata_store=store)
    await broker.start()
    yield broker
    await broker.stop()
    await background.stop()


async def connected(broker: Broker, listener: str, software: str = "odradek") -> NetworkClient:
    endpoint: Endpoint = next(endpoint for endpoint in broker.endpoints if endpoint.name == listener)
    return await NetworkClient.connect("127.0.0.1", endpoint.port, software_name=software)


def verification(name: str, producer: tuple[int, int], topic: str, *partitions: int, verify_only: bool = True) -> Any:
    return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=verify_only,
        topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )


async def test_only_a_broker_on_the_inter_broker_listener_is_shown_requests_between_brokers(broker: Broker) -> None:
    shown = {}
    for listener in ("CLIENTS", "BROKERS"):
        for software in ("odradek", BROKER_SOFTWARE):
            async with await connected(broker, listener, software) as client:
                shown[listener, software] = client.versions
    for_brokers = shown.pop(("BROKERS", BROKER_SOFTWARE))
    assert for_brokers[ApiKey.ADD_PARTITIONS_TO_TXN] == Versions(0, 4)
    for_clients = {row.key: row.advertised for row in broker.api_table.client_rows()}
    assert for_clients[ApiKey.ADD_PARTITIONS_TO_TXN] == Versions(0, 3)
    assert all(versions == for_clients for versions in shown.values())
    assert {key: for_brokers[key] for key in for_clients if key != ApiKey.ADD_PARTITIONS_TO_TXN} == {
        key: versions for key, versions in for_clients.items() if key != ApiKey.ADD_PARTITIONS_TO_TXN
    }


async def test_a_request_between_brokers_ends_a_connection_of_another_listener(broker: Broker) -> None:
    request = AddPartitionsToTxnRequest(transactions=[verification("t", (1, 0), "orders", 0)])
    with capture_logs() as logs:
        async with await connected(broker, "BROKERS") as client:
            assert (await client.send(request, version=4)).error_code == 0
            async with await connected(broker, "CLIENTS", BROKER_SOFTWARE) as other:
                with pytest.raises(Disconnected):
                    await other.send(request, version=4)
            assert (await client.send(request, version=4)).error_code == 0
    assert [line["api"] for line in logs if line["event"] == "API between brokers only"] == ["ADD_PARTITIONS_TO_TXN"]


async def test_only_a_broker_on_the_inter_broker_listener_may_fetch_more_partitions(broker: Broker) -> None:
    """It may name as many more as this broker hosts."""
    hosted = 5
    (created,) = await broker.controller.create_topics([NewTopic("t", hosted, 1)], timeout_ms=10_000)
    assert not isinstance(created, Exception)
    await until(lambda: len(broker.replica_manager.partitions) == hosted)

    def of(replica_id: int, count: int) -> FetchRequest:
        partitions = [FetchRequest.FetchPartition(partition=number) for number in range(count)]
        topics = [FetchRequest.FetchTopic(topic="t", partitions=partitions)]
        return FetchRequest(replica_id=replica_id, session_epoch=-1, topics=topics)

    refused = {}
    for listener in ("CLIENTS", "BROKERS"):
        async with await connected(broker, listener) as client:
            for replica_id in (-1, 1):
                for more in (hosted, hosted + 1):
                    answer = await client.send(of(replica_id, MAX_PARTITIONS_PER_REQUEST + more), version=12)
                    (topic,) = answer.responses
                    codes = {data.error_code for data in topic.partitions}
                    refused[listener, replica_id, more] = codes == {ErrorCode.POLICY_VIOLATION}
    assert not refused.pop(("BROKERS", 1, hosted))
    assert set(refused.values()) == {True}


async def test_a_broker_without_others_serves_no_requests_between_brokers() -> None:
    async with in_process_broker() as broker, await connected(broker, "PLAINTEXT", BROKER_SOFTWARE) as client:
        assert client.versions[ApiKey.ADD_PARTITIONS_TO_TXN] == Versions(0, 3)
        with pytest.raises(Disconnected):
            await client.send(AddPartitionsToTxnRequest(), version=4)


async def test_another_broker_verifies_which_partitions_are_in_an_open_transaction(broker: Broker) -> None:
    async def verified(*transactions: Any) -> dict[tuple[str, int], int]:
        answer = await client.send(AddPartitionsToTxnRequest(transactions=list(transactions)), version=4)
        assert answer.error_code == 0
        return {
            (result.transactional_id, partition.partition_index): partition.partition_error_code
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }

    async with await connected(broker, "BROKERS") as client:
        api = Api(broker, client)
        topic = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
        await api(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        await until_coordinated(api)
        producer = await new_producer(api)
        await add(api, producer, orders=[1])
        late = (producer[0], producer[1] + 1)
        not_in_it, unknown = ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING
        asked = (verification("t", producer, "orders", 0, 1), verification("u", producer, "orders", 1))
        assert await verified(*asked) == {("t", 0): not_in_it, ("t", 1): 0, ("u", 1): unknown}
        assert await verified(verification("t", late, "orders", 1)) == {("t", 1): ErrorCode.INVALID_PRODUCER_EPOCH}
        await end(api, producer)
        assert set(await verified(verification("t", producer, "orders", 1))) == {("t", 1)}
        assert (await verified(verification("t", producer, "orders", 1)))["t", 1] != 0


async def test_another_broker_cannot_add_partitions_to_a_transaction(broker: Broker) -> None:
    request = AddPartitionsToTxnRequest(transactions=[verification("t", (1, 0), "orders", 0, verify_only=False)])
    async with await connected(broker, "BROKERS") as client:
        answer = await client.send(request, version=4)
        assert (answer.error_code, answer.results_by_transaction) == (ErrorCode.INVALID_REQUEST, [])
