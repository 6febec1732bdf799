"""The journal of requests, and waiting for one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading

import pytest

from odradek.broker.security.sasl.client import ClientCredentials, tokens
from odradek.protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from odradek.protocol.messages.scram import AlterUserScramCredentialsRequest
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.protocol.schema import Message
from odradek.testing import BrokerThread, NoSuchRequest, in_process_broker, in_process_cluster
from odradek.testing.faults import journal
from odradek.testing.security import Security
from tests.testing.faults.test_selected_items import fetch
from tests.wire.blocking_client import Client
from tests.wire.requests import produce_to as produce


def test_the_journal_has_requests_and_responses_from_the_start() -> None:
    with BrokerThread(journal=True) as broker, Client(broker.bootstrap) as client:
        client.create("orders")
        client.ask(produce({"orders": [0]}), 9)
        created, produced = broker.requests
        assert (created.api, created.client_id, produced.api, produced.version) == ("CreateTopics", "raw", "Produce", 9)
        assert produced.body.topic_data[0].name == "orders"
        assert produced.response.responses[0].partition_responses[0].base_offset == 0
        assert produced.answered_ms is not None
        assert created.received_ms <= produced.received_ms <= produced.answered_ms
        document = produced.document()
        assert document["request"]["TopicData"][0]["Name"] == "orders"
        assert document["response"]["Responses"][0]["PartitionResponses"][0]["BaseOffset"] == 0


PASSWORD = "alice-secret"


def log_in(client: Client, mechanism: str) -> None:
    client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    login = tokens(ClientCredentials(mechanism, "alice", PASSWORD), b"nonce")
    token = next(login)
    with contextlib.suppress(StopIteration):
        while True:
            answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            assert answer.error_code == 0
            token = login.send(bytes(answer.auth_bytes))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_document_shows_no_login(mechanism: str) -> None:
    security = Security("SASL_PLAINTEXT", mechanism=mechanism, users={"alice": PASSWORD})
    with BrokerThread(journal=True, security=security) as broker:
        with Client(broker.bootstrap) as client:
            log_in(client, mechanism)
            client.ask(MetadataRequest(topics=None), 9)
        logins = [request for request in broker.requests if request.api == "SaslAuthenticate"]
        assert logins
        assert all(request.body.auth_bytes for request in logins), "a test can look at what was sent"
        for request in logins:
            document = request.document()
            assert document["request"]["AuthBytes"] == ""
            assert document["response"]["AuthBytes"] == ""
            assert PASSWORD not in repr(request)
        assert "Metadata" in [request.api for request in broker.requests]
        with pytest.raises(NoSuchRequest) as missed:
            broker.request(api="Produce", within=0.1)
        assert PASSWORD not in str(missed.value)


def secret_requests() -> list[tuple[Message, int]]:
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=PASSWORD.encode(), salted_password=PASSWORD.encode()
    )
    setting = "listener.name.outside.ssl.keystore.password"
    incremental = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4,
        resource_name="0",
        configs=[IncrementalAlterConfigsRequest.AlterableConfig(name=setting, value=PASSWORD)],
    )
    whole = AlterConfigsRequest.AlterConfigsResource(
        resource_type=4, resource_name="0", configs=[AlterConfigsRequest.AlterableConfig(name=setting, value=PASSWORD)]
    )
    topic = CreateTopicsRequest.CreatableTopic(
        name="orders",
        num_partitions=1,
        replication_factor=1,
        configs=[CreateTopicsRequest.CreatableTopicConfig(name="my.secret.key", value=PASSWORD)],
    )
    return [
        (AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0),
        (IncrementalAlterConfigsRequest(resources=[incremental], validate_only=True), 1),
        (AlterConfigsRequest(resources=[whole], validate_only=True), 2),
        (CreateTopicsRequest(topics=[topic], validate_only=True), 7),
    ]


def test_a_document_shows_no_secret_of_administrators() -> None:
    with BrokerThread(journal=True) as broker, Client(broker.bootstrap) as client:
        for request, version in secret_requests():
            client.ask(request, version)
        shown = [str(request.document()) for request in broker.requests]
        assert len(shown) == len(secret_requests())
        for text in shown:
            assert PASSWORD not in text
            assert base64.b64encode(PASSWORD.encode()).decode() not in text
        assert sum("(not recorded)" in text for text in shown) == 3


def test_the_journal_begins_with_its_first_use(broker: BrokerThread, client: Client) -> None:
    client.ask(MetadataRequest(topics=None), 9)
    assert list(broker.requests) == []
    client.ask(MetadataRequest(topics=None), 9)
    assert [request.api for request in broker.requests] == ["Metadata"]


def test_a_wait_that_begins_the_journal_says_so(broker: BrokerThread, client: Client) -> None:
    client.ask(produce({"orders": [0]}), 9)
    with pytest.raises(NoSuchRequest, match=r"began with this call; it has earlier requests .* journal=True"):
        broker.request(api="Produce", within=0.01)
    with pytest.raises(NoSuchRequest, match=r"The journal has 0 requests: none$"):
        broker.request(api="Produce", within=0.01)


def test_a_wait_returns_each_request_once(broker: BrokerThread, client: Client) -> None:
    assert len(broker.requests) == 0
    for topic in ("orders", "other", "orders"):
        client.ask(produce({topic: [0]}), 9)
    first, second = (broker.request(api="Produce", topic="orders") for _ in range(2))
    assert (first.number, second.number) == (1, 3)
    assert broker.request(api="Produce").number == 2
    with pytest.raises(NoSuchRequest) as missed:
        broker.request(api="Produce", topic="orders", within=0.1)
    assert str(missed.value) == (
        "no request(api='Produce', topic='orders') within 0.1 s. The journal has 3 requests: 3 Produce of 'raw'; "
        "3 of them were returned before"
    )


def test_a_wait_sees_a_request_that_comes_later_and_its_answer(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(api="Produce", hold=True)
    sending = threading.Timer(0.05, lambda: client.send(produce({"orders": [0]}), 9))
    sending.start()
    request = broker.request(api="Produce", topic="orders", partition=0)
    assert (request.response, request.faults) == (None, [fault.number])
    with pytest.raises(NoSuchRequest):
        broker.request(api="Produce", answered=True, within=0.05)
    fault.release()
    client.receive()
    client.ask(produce({"orders": [1]}), 9)
    assert broker.request(api="Produce", answered=True).response is not None
    sending.join()


def test_a_fetch_of_a_session_is_found_by_its_topics(broker: BrokerThread, client: Client) -> None:
    opened = client.ask(fetch("orders", [0], epoch=0), 12)
    assert len(broker.requests) == 0
    client.ask(fetch("orders", [], session=opened.session_id, epoch=1), 12)
    assert broker.request(api="Fetch", topic="orders").body.topics == []


def test_a_request_that_ends_the_connection_is_marked(broker: BrokerThread, client: Client) -> None:
    broker.faults.add(api="Produce", close="after")
    assert len(broker.requests) == 0
    client.send(produce({"orders": [0]}), 9)
    with pytest.raises(ConnectionError):
        client.raw.receive()
    ended = broker.request(api="Produce", answered=True)
    assert (ended.closed, ended.response) == (True, None)


def test_the_journal_is_bounded_by_requests_and_bytes(
    broker: BrokerThread, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST_REQUESTS", 5)
    requests = broker.requests
    for _ in range(8):
        client.ask(MetadataRequest(topics=None), 9)
    assert [request.number for request in requests] == [4, 5, 6, 7, 8]
    monkeypatch.setattr(journal, "MOST_BYTES", 10_000)
    client.ask(produce({"orders": [0]}, value=b"v" * 9_000), 9)
    client.ask(produce({"orders": [0]}, value=b"v" * 9_000), 9)
    assert [request.api for request in requests][-1] == "Produce"
    assert len(requests) == 1
    assert sum(len(request.frame) for request in requests) < 10_000
    requests.clear()
    client.ask(MetadataRequest(topics=None), 9)
    assert [request.api for request in requests] == ["Metadata"]


def test_large_answers_are_kept_and_sent_whole(broker: BrokerThread, client: Client) -> None:
    """Those from the disk are sent from the file otherwise."""
    client.ask(produce({"orders": [0]}, value=b"v" * 600_000), 9)
    asked = fetch("orders", [0])
    asked.topics[0].partitions[0].partition_max_bytes = 1_000_000
    assert len(broker.requests) == 0
    records = client.ask(asked, 12).responses[0].partitions[0].records
    assert len(records) > 600_000
    kept = broker.request(api="Fetch", answered=True).response.responses[0].partitions[0].records
    assert bytes(kept) == bytes(records)


async def test_a_wait_may_be_given_up_and_others_go_on() -> None:
    async with in_process_broker() as broker:
        waiting = [asyncio.create_task(broker.request(api="Metadata", within=30)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()

        def ask() -> None:
            with Client(broker.bootstrap) as client:
                client.ask(MetadataRequest(topics=None), 9)

        await asyncio.to_thread(ask)
        assert (await waiting[1]).api == "Metadata"
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]


async def test_an_unknown_api_is_refused_at_once() -> None:
    async with in_process_broker() as broker:
        with pytest.raises(ValueError, match="did you mean Metadata"):
            await broker.request(api="MetaData")


@pytest.mark.timeout(60)
async def test_the_requests_of_a_cluster_say_which_broker_has_received_them() -> None:
    async with in_process_cluster(brokers=2) as cluster:
        assert cluster.requests is not None
        await cluster.create_topic("orders", replication_factor=2)
        leader = await cluster.wait_for_leader("orders", 0)
        request = await cluster.request(api="Fetch", topic="orders")
        assert request.broker == leader
