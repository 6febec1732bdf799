import asyncio
from typing import Any

import pytest

from odradek.clients.network_client import NetworkClient
from odradek.clients.network_errors import Disconnected, NodeUnreachable, RequestTimedOut, UnsupportedVersion
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.headers import RequestHeader
from odradek.protocol.messages.api_versions import ApiVersionsResponse
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.schema import Versions
from odradek.testing import in_process_broker
from tests.broker.peers.scripted_broker import ApiVersion, api_versions, correlated, metadata, scripted
from tests.patience import until


async def test_the_highest_common_version_is_used() -> None:
    async with scripted(metadata) as (port, headers), await NetworkClient.connect("127.0.0.1", port) as client:
        assert client.versions[ApiKey.METADATA] == Versions(0, 4)
        await client.send(MetadataRequest())
        await client.send(MetadataRequest(), version=2)
        assert [header.request_api_version for header in headers] == [3, 4, 2]
        assert headers[1].client_id == "odradek"
        with pytest.raises(UnsupportedVersion, match="does not serve PRODUCE"):
            await client.send(ProduceRequest())


async def test_a_version_with_topic_ids_alone_is_used_only_if_the_caller_names_it() -> None:
    served = {ApiKey.API_VERSIONS: 4, ApiKey.PRODUCE: 13, ApiKey.OFFSET_FETCH: 10, ApiKey.OFFSET_COMMIT: 7}
    async with scripted(served=served) as (port, _), await NetworkClient.connect("127.0.0.1", port) as client:
        assert [client.version_for(key) for key in (ApiKey.PRODUCE, ApiKey.OFFSET_FETCH)] == [12, 9]
        assert client.version_for(ApiKey.OFFSET_COMMIT) == 7


async def test_responses_reach_their_callers_in_order() -> None:
    async with scripted(metadata) as (port, headers), await NetworkClient.connect("127.0.0.1", port) as client:
        responses = await asyncio.gather(*(client.send(MetadataRequest()) for _ in range(20)))
        expected = [f"answer to {header.correlation_id}" for header in headers[1:]]
        assert [response.cluster_id for response in responses] == expected
        assert len(set(expected)) == 20


async def test_a_refused_api_versions_is_repeated_in_the_returned_version() -> None:
    def answer(header: RequestHeader) -> bytes | None:
        if header.request_api_key == ApiKey.API_VERSIONS and header.request_api_version > 1:
            refusal = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, max_version=1)]
            )
            return correlated(header, encode(refusal, 0))
        return None

    async with scripted(answer) as (port, headers), await NetworkClient.connect("127.0.0.1", port) as client:
        assert [header.request_api_version for header in headers] == [3, 1]
        assert client.version_for(ApiKey.METADATA) == 4


async def test_version_ranges_without_overlap_are_named_in_the_error() -> None:
    def answer(header: RequestHeader) -> bytes | None:
        future = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=900, max_version=901)])
        return correlated(header, encode(future, 3))

    async with scripted(answer) as (port, _), await NetworkClient.connect("127.0.0.1", port) as client:
        with pytest.raises(UnsupportedVersion, match="METADATA"):
            await client.send(MetadataRequest())


async def test_a_request_timeout_closes_the_connection_and_fails_all_later_requests() -> None:
    async with scripted() as (port, _), await NetworkClient.connect("127.0.0.1", port) as client:
        slow = [asyncio.create_task(client.send(MetadataRequest(), timeout_ms=limit)) for limit in (20, 30_000)]
        outcomes = await asyncio.gather(*slow, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [RequestTimedOut, RequestTimedOut]
        assert not client.is_connected
        with pytest.raises(RequestTimedOut):
            await client.send(MetadataRequest())


async def test_a_cancelled_request_does_not_affect_other_responses() -> None:
    held: list[bytes] = []

    def answer(header: RequestHeader) -> bytes | None:
        reply = metadata(header)
        if reply is not None and header.correlation_id < 3:
            held.append(reply)
            return None
        return b"".join(held) + reply if reply is not None else None

    async with scripted(answer) as (port, _), await NetworkClient.connect("127.0.0.1", port) as client:
        cancelled = asyncio.create_task(client.send(MetadataRequest()))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        response = await client.send(MetadataRequest())
        assert response.cluster_id == "answer to 3"
        assert client.is_connected


@pytest.mark.parametrize(
    "nonsense",
    [
        (5).to_bytes(4, "big") + b"\x7f\x00\x00\x00\x00",
        (-1).to_bytes(4, "big", signed=True),
        (2**31 - 1).to_bytes(4, "big"),
        (2).to_bytes(4, "big") + b"\x00\x00",
    ],
    ids=["another request's response", "a negative length", "a length above the limit", "half a header"],
)
async def test_an_undecodable_response_closes_the_connection(nonsense: bytes) -> None:
    def answer(header: RequestHeader) -> bytes | None:
        return nonsense if header.request_api_key == ApiKey.METADATA else None

    async with scripted(answer) as (port, _), await NetworkClient.connect("127.0.0.1", port) as client:
        with pytest.raises(Disconnected, match="invalid response"):
            await client.send(MetadataRequest())
        assert not client.is_connected


async def test_a_response_cut_anywhere_closes_the_connection() -> None:
    body = encode(MetadataResponse(cluster_id="x", topics=[MetadataResponse.MetadataResponseTopic(name="t")]), 4)
    for cut in range(len(body)):

        def answer(header: RequestHeader, cut: int = cut) -> bytes | None:
            return correlated(header, body[:cut]) if header.request_api_key == ApiKey.METADATA else None

        async with scripted(answer) as (port, _), await NetworkClient.connect("127.0.0.1", port) as client:
            with pytest.raises(Disconnected):
                await client.send(MetadataRequest())


async def test_responses_larger_than_a_read_arrive_whole_and_in_order() -> None:
    def response(correlation_id: int) -> FetchResponse:
        records = correlation_id.to_bytes(4, "big") * (1 << 18)
        partitions = [FetchResponse.PartitionData(partition_index=index, records=records) for index in range(10)]
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=partitions)])

    def answer(header: RequestHeader) -> bytes | None:
        if header.request_api_key != ApiKey.FETCH:
            return metadata(header)
        return correlated(header, b"\0" + encode(response(header.correlation_id), 12))

    served = {ApiKey.FETCH: 12, ApiKey.METADATA: 4, ApiKey.API_VERSIONS: 3}
    async with scripted(answer, served=served) as (port, _), await NetworkClient.connect("127.0.0.1", port) as client:
        requests = (FetchRequest(), MetadataRequest(), FetchRequest())
        first, second, third = await asyncio.gather(*map(client.send, requests))
        assert (first, third) == (response(2), response(4))
        assert second.cluster_id == "answer to 3"


async def test_an_unexpected_response_closes_the_connection() -> None:
    def answer(header: RequestHeader) -> bytes | None:
        return api_versions(header) * 2 if header.request_api_key == ApiKey.API_VERSIONS else None

    async with scripted(answer) as (port, _), await NetworkClient.connect("127.0.0.1", port) as client:
        with pytest.raises(Disconnected):
            await client.send(MetadataRequest())


async def test_closing_the_client_fails_waiting_requests() -> None:
    async with scripted() as (port, _):
        client = await NetworkClient.connect("127.0.0.1", port)
        waiting = asyncio.create_task(client.send(MetadataRequest()))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(Disconnected, match="was closed"):
            await waiting
        await client.close()


async def test_a_connection_closed_by_the_broker_fails_waiting_requests() -> None:
    async with in_process_broker() as broker:
        host, port = broker.bootstrap.split(":")
        client = await NetworkClient.connect(host, int(port))
        await broker.stop()
        with pytest.raises(Disconnected):
            await client.send(MetadataRequest())
        await client.close()


async def test_a_request_between_the_brokers_end_of_the_connection_and_its_notice_fails() -> None:
    class Hasty(NetworkClient):
        """Sends when the other side has ended the connection, before the connection is lost."""

        sent: asyncio.Task[Any] | None = None

        def eof_received(self) -> None:
            self.sent = asyncio.ensure_future(self.send(MetadataRequest()))

    async with in_process_broker() as broker:
        host, port = broker.bootstrap.split(":")
        client = await Hasty.connect(host, int(port))
        assert isinstance(client, Hasty)
        await broker.stop()
        await until(lambda: client.sent is not None)
        assert client.sent is not None
        assert not client.is_connected
        with pytest.raises(Disconnected, match="closed the connection"):
            await client.sent
        await client.close()


async def test_an_unreachable_broker_is_an_error_with_its_address() -> None:
    async with scripted() as (port, _):
        pass
    with pytest.raises(NodeUnreachable, match=rf"cannot connect to 127\.0\.0\.1:{port}: Connection refused"):
        await NetworkClient.connect("127.0.0.1", port)


async def test_connecting_to_a_broker_that_does_not_respond_times_out() -> None:
    async with scripted(lambda _: b"") as (port, _):
        with pytest.raises(RequestTimedOut, match="did not answer API_VERSIONS in 30 ms"):
            await NetworkClient.connect("127.0.0.1", port, timeout_ms=30)


async def test_the_client_can_query_a_real_broker() -> None:
    async with in_process_broker() as broker:
        host, port = broker.bootstrap.split(":")
        async with await NetworkClient.connect(host, int(port), client_id="test") as client:
            response = await client.send(MetadataRequest(topics=None))
            assert [(node.host, node.port) for node in response.brokers] == [(host, int(port))]


MANY = 20_000


def many_topics(header: RequestHeader) -> bytes | None:
    """Answers the first request with very many topics, and all later ones with none."""
    if header.request_api_key != ApiKey.METADATA:
        return None
    count = MANY if header.correlation_id == 2 else 0
    topics = [MetadataResponse.MetadataResponseTopic(name=f"topic-{number}") for number in range(count)]
    return correlated(header, encode(MetadataResponse(topics=topics), header.request_api_version))


async def test_other_tasks_run_while_a_long_request_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    write = NetworkClient._write

    def noted(client: NetworkClient, api_key: int, api_version: int, body: list[Any]) -> int:
        written.append(api_version)
        return write(client, api_key, api_version, body)

    monkeypatch.setattr(NetworkClient, "_write", noted)
    topics = [MetadataRequest.MetadataRequestTopic(name=f"topic-{number}") for number in range(MANY)]
    async with scripted(metadata) as (port, headers), await NetworkClient.connect("127.0.0.1", port) as client:
        requests = {2: MetadataRequest(topics=topics), 1: MetadataRequest()}
        calls = [asyncio.create_task(client.send(each, version=version)) for version, each in requests.items()]
        for _ in range(3):
            await asyncio.sleep(0)
            assert written == [3]
        await asyncio.gather(*calls)
        assert [header.request_api_version for header in headers] == written == [3, 2, 1]


async def test_a_short_response_is_returned_after_the_long_one_before_it() -> None:
    ended = []
    async with scripted(many_topics) as (port, _), await NetworkClient.connect("127.0.0.1", port) as client:
        calls = [asyncio.create_task(client.send(MetadataRequest())) for _ in range(2)]
        for call in calls:
            call.add_done_callback(lambda done: ended.append(len(done.result().topics)))
        await asyncio.wait(calls)
    assert ended == [MANY, 0]


async def test_a_long_response_that_cannot_be_decoded_ends_the_connection() -> None:
    def answer(header: RequestHeader) -> bytes | None:
        whole = many_topics(header)
        return None if whole is None else correlated(header, whole[8:-1])

    async with scripted(answer) as (port, _), await NetworkClient.connect("127.0.0.1", port) as client:
        with pytest.raises(Disconnected, match="invalid response"):
            await client.send(MetadataRequest())
        assert not client.is_connected
