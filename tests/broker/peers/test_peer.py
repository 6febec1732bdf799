import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.background.background import Background
from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo
from odradek.broker.peers import peer as peer_module
from odradek.broker.peers.inter_broker_protocol import INTER_BROKER_VERSIONS, version_to_send
from odradek.broker.peers.peers import Peers
from odradek.clients.network_client import Connect, NetworkClient
from odradek.clients.network_errors import Disconnected, NodeUnreachable, UnsupportedVersion
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.headers import RequestHeader
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.transactions import AddPartitionsToTxnRequest
from odradek.protocol.schema import Versions
from tests.broker.peers.scripted_broker import metadata, scripted
from tests.patience import until


class Nodes:
    """The registered brokers of a test, and `Peers` of broker 0 that reach them."""

    def __init__(self, background: Background, *, required: dict[ApiKey, int] | None = None) -> None:
        self.registered: dict[int, BrokerInfo] = {}
        self.background = background
        self.attempts: list[int] = []
        self.peers = Peers(
            self.registered.get,
            broker_id=0,
            listener="INTERNAL",
            spawn=background.spawn,
            connect_timeout_ms=10_000,
            connect=self.connecting,
            required=required or {},
        )

    def register(self, broker_id: int, port: int, epoch: int = -1) -> None:
        endpoint = BrokerEndpoint("INTERNAL", "127.0.0.1", port)
        self.registered[broker_id] = BrokerInfo(broker_id, {"INTERNAL": endpoint}, epoch=epoch)

    @property
    def connecting(self) -> Connect:
        async def connect(host: str, port: int, **options: Any) -> NetworkClient:
            self.attempts.append(port)
            return await NetworkClient.connect(host, port, **options)

        return connect


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    background = Background()
    nodes = Nodes(background)
    yield nodes
    await nodes.peers.close()
    await background.stop()


def silent(header: RequestHeader) -> bytes | None:
    """Answers ApiVersions, and no other request."""
    return None


async def free_port() -> int:
    async with scripted() as (port, _):
        return port


async def test_concurrent_callers_share_one_connection(nodes: Nodes) -> None:
    async with scripted(metadata) as (port, headers):
        nodes.register(1, port)
        peer = nodes.peers.peer(1, "fetcher-0")
        assert not peer.is_connected
        responses = await asyncio.gather(*(peer.send(MetadataRequest()) for _ in range(5)))
        assert len({response.cluster_id for response in responses}) == 5
        assert nodes.attempts == [port]
        assert {header.client_id for header in headers} == {"broker-0-fetcher-0"}
        assert peer.is_connected


async def test_a_purpose_has_a_connection_of_its_own(nodes: Nodes) -> None:
    async with scripted(metadata) as (port, _):
        nodes.register(1, port)
        assert nodes.peers.peer(1, "a") is nodes.peers.peer(1, "a")
        await nodes.peers.peer(1, "a").send(MetadataRequest())
        await nodes.peers.peer(1, "b").send(MetadataRequest())
        assert nodes.attempts == [port, port]


async def test_a_cancelled_caller_does_not_cancel_the_attempt_of_the_others(nodes: Nodes) -> None:
    async with scripted(metadata) as (port, _):
        nodes.register(1, port)
        peer = nodes.peers.peer(1, "a")
        first, second = (asyncio.create_task(peer.send(MetadataRequest())) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).cluster_id
        assert nodes.attempts == [port]


async def test_callers_of_a_failed_attempt_all_get_its_error(nodes: Nodes) -> None:
    nodes.register(1, await free_port())
    peer = nodes.peers.peer(1, "a")
    outcomes = await asyncio.gather(*(peer.send(MetadataRequest()) for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [NodeUnreachable] * 3
    assert len(nodes.attempts) == 1


async def test_the_delay_between_failed_attempts_doubles_up_to_a_second(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = []

    async def sleep(delay_s: float) -> None:
        delays.append(delay_s)

    peer = nodes.peers.peer(1, "a")
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "sleep", sleep)
        for _ in range(8):
            with pytest.raises(NodeUnreachable):
                await peer.send(MetadataRequest())
    expected = [0.05, 0.1, 0.2, 0.4, 0.8, 1, 1]
    assert all(slept <= delay + 0.001 for slept, delay in zip(delays, expected, strict=True))
    assert all(before < after for before, after in pairwise(delays[:6]))


async def test_a_new_address_is_tried_without_a_delay(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "FIRST_DELAY_MS", 60_000)
    nodes.register(1, await free_port())
    peer = nodes.peers.peer(1, "a")
    with pytest.raises(NodeUnreachable):
        await peer.send(MetadataRequest())
    async with scripted(metadata) as (port, _):
        waiting = asyncio.create_task(peer.send(MetadataRequest()))
        await asyncio.sleep(0)
        nodes.register(1, port)
        nodes.peers.refresh()
        assert (await waiting).cluster_id


async def test_the_controllers_connection_follows_a_broker_that_has_moved(nodes: Nodes) -> None:
    async with scripted(silent) as (old, _), scripted(metadata) as (new, _):
        endpoints = [{"INTERNAL": BrokerEndpoint("INTERNAL", "127.0.0.1", port)} for port in (old, new)]
        channel = nodes.peers.channel_to(BrokerInfo(1, endpoints[0], epoch=7))
        waiting = asyncio.create_task(channel.send(MetadataRequest()))
        await until(lambda: channel.is_connected)
        assert nodes.peers.channel_to(BrokerInfo(1, endpoints[1], epoch=7)) is channel
        with pytest.raises(Disconnected):
            await waiting
        assert (await channel.send(MetadataRequest())).cluster_id


@pytest.mark.parametrize("change", ["address", "epoch", "gone"])
async def test_another_registration_ends_the_connection_and_its_requests(nodes: Nodes, change: str) -> None:
    async with scripted(silent) as (old, _), scripted(metadata) as (new, _):
        nodes.register(1, old, epoch=7)
        peer = nodes.peers.peer(1, "a")
        waiting = asyncio.create_task(peer.send(MetadataRequest()))
        await until(lambda: peer.is_connected)
        nodes.peers.refresh()
        await asyncio.sleep(0)
        assert not waiting.done()
        if change == "gone":
            del nodes.registered[1]
        else:
            nodes.register(1, *((old, 8) if change == "epoch" else (new, 7)))
        assert not peer.is_connected
        nodes.peers.refresh()
        with pytest.raises(Disconnected, match=r"broker 1 has (another|no) registration now"):
            await waiting
        if change == "gone":
            with pytest.raises(NodeUnreachable, match="broker 1 is not registered with listener INTERNAL"):
                await peer.send(MetadataRequest())
        else:
            nodes.register(1, new, epoch=9)
            assert (await peer.send(MetadataRequest())).cluster_id


async def test_the_controllers_connection_goes_to_the_registration_that_it_was_given(nodes: Nodes) -> None:
    async with scripted(metadata) as (old, _), scripted(metadata) as (new, headers):
        endpoints = [{"INTERNAL": BrokerEndpoint("INTERNAL", "127.0.0.1", port)} for port in (old, new)]
        channel = nodes.peers.channel_to(BrokerInfo(1, endpoints[0], epoch=7))
        await channel.send(MetadataRequest())
        assert nodes.peers.channel_to(BrokerInfo(1, endpoints[1], epoch=8)) is channel
        await channel.send(MetadataRequest())
        assert nodes.attempts == [old, new]
        assert {header.client_id for header in headers} == {"broker-0-controller"}
        with pytest.raises(NodeUnreachable):
            await nodes.peers.peer(1, "a").send(MetadataRequest())


async def test_a_lost_connection_is_opened_again_by_the_next_request(nodes: Nodes) -> None:
    async with scripted(metadata) as (port, _):
        nodes.register(1, port)
        peer = nodes.peers.peer(1, "a")
        await peer.send(MetadataRequest())
    await until(lambda: not peer.is_connected)
    async with scripted(metadata) as (port, _):
        nodes.register(1, port)
        assert (await peer.send(MetadataRequest())).cluster_id


async def test_closing_ends_requests_in_flight_attempts_and_later_requests(nodes: Nodes) -> None:
    async with scripted(silent) as (port, _):
        nodes.register(1, port)
        nodes.register(2, port)
        in_flight = asyncio.create_task(nodes.peers.peer(1, "a").send(MetadataRequest()))
        await until(lambda: nodes.peers.peer(1, "a").is_connected)
        connecting = asyncio.create_task(nodes.peers.peer(2, "a").send(MetadataRequest()))
        await asyncio.sleep(0)
        await nodes.peers.close()
        for one in (in_flight, connecting, asyncio.create_task(nodes.peers.peer(1, "a").send(MetadataRequest()))):
            with pytest.raises(Disconnected, match="was closed"):
                await one


async def test_a_request_fails_if_the_background_ends_its_attempt(nodes: Nodes) -> None:
    nodes.register(1, await free_port())
    peer = nodes.peers.peer(1, "a")
    with pytest.raises(NodeUnreachable):
        await peer.send(MetadataRequest())
    waiting = asyncio.create_task(peer.send(MetadataRequest()))
    await asyncio.sleep(0)
    await nodes.background.stop()
    with pytest.raises(Disconnected):
        await waiting


async def test_requests_between_brokers_have_the_versions_of_the_protocol(nodes: Nodes) -> None:
    served = {ApiKey.METADATA: 4, ApiKey.LIST_OFFSETS: 9}
    async with scripted(served=served) as (port, headers):
        nodes.register(1, port)
        peer = nodes.peers.peer(1, "a")
        for number, request in enumerate((ListOffsetsRequest(), MetadataRequest()), 1):
            unanswered = asyncio.ensure_future(peer.send(request))
            await until(lambda sent=number: len(headers) > sent)
            unanswered.cancel()
        assert [(header.request_api_key, header.request_api_version) for header in headers[1:]] == [(2, 7), (3, 4)]
        with pytest.raises(UnsupportedVersion, match="does not serve AddPartitionsToTxn 4"):
            await peer.send(AddPartitionsToTxnRequest(), version=4)
        with pytest.raises(UnsupportedVersion, match=r"does not serve Metadata 11 \(only 0 to 4\)"):
            await peer.send(MetadataRequest(), version=11)
        assert peer.is_connected


async def test_a_broker_of_another_protocol_version_is_refused_and_named_in_the_log() -> None:
    background = Background()
    nodes = Nodes(background, required={ApiKey.METADATA: 5, ApiKey.LEADER_AND_ISR: 5, ApiKey.API_VERSIONS: 3})
    async with scripted(metadata) as (port, _):
        nodes.register(4, port)
        text = f"broker 4 (127.0.0.1:{port}) does not serve Metadata 5 (only 0 to 4), LeaderAndIsr 5"
        with capture_logs() as logs:
            for _ in range(2):
                with pytest.raises(UnsupportedVersion) as failure:
                    await nodes.peers.peer(4, "a").send(MetadataRequest())
                assert str(failure.value) == text
        event = "broker of another protocol version"
        assert logs == [{"event": event, "log_level": "error", "broker_id": 4, "error": text}]
    await nodes.peers.close()
    await background.stop()


async def test_an_outage_is_logged_when_it_begins_and_when_it_ends(nodes: Nodes) -> None:
    async with scripted(metadata) as (port, _):
        with capture_logs() as logs:
            for _ in range(2):
                with pytest.raises(NodeUnreachable):
                    await nodes.peers.peer(1, "a").send(MetadataRequest())
            nodes.register(1, port)
            for _ in range(2):
                await nodes.peers.peer(1, "a").send(MetadataRequest())
        assert [line["event"] for line in logs] == ["broker not reached", "broker reached again"]


def test_a_newer_version_goes_only_to_brokers_that_serve_it() -> None:
    markers = ApiKey.WRITE_TXN_MARKERS
    assert version_to_send(markers, {markers: Versions(0, 2)}) == 2
    assert version_to_send(markers, {markers: Versions(1, 1)}) == INTER_BROKER_VERSIONS[markers]
    assert version_to_send(markers, {}) == INTER_BROKER_VERSIONS[markers]
    assert version_to_send(ApiKey.FETCH, {ApiKey.FETCH: Versions(0, 18)}) == INTER_BROKER_VERSIONS[ApiKey.FETCH]
    assert version_to_send(ApiKey.METADATA, {ApiKey.METADATA: Versions(0, 12)}) is None
