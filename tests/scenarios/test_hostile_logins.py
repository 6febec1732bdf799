"""Clients that hold memory, connections and time before they log in, and frames that nobody finishes: others are
served, and not only after a periodic check has ended the attackers. Most tests have none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import pytest
import structlog.testing

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.network.socket_server import SocketServer
from odradek.broker.server import Broker
from odradek.protocol.compiler import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import ProduceResponse
from odradek.protocol.messages.sasl import SaslAuthenticateRequest
from odradek.testing import InProcessBroker, in_process_broker
from odradek.testing.security import Security
from tests.broker.handlers.sasl_broker import ALICE, SETTINGS
from tests.patience import until
from tests.scenarios.test_hostile_frames import produce_frame
from tests.wire.frames import framed, request_bytes
from tests.wire.raw_client import RawClient, raw_client

LIMIT = 4 << 20
BEFORE_LOGIN = 1 << 20
TIMEOUT_S = 30
ATTACKERS = 24
GREEDY, OTHER = "127.0.0.2", "127.0.0.3"
"""Addresses of this machine."""
BOUNDS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "socket.request.max.bytes": str(LIMIT),
    "queued.max.request.bytes": str(2 * LIMIT),
    "odradek.max.queued.bytes.before.login": str(BEFORE_LOGIN),
}
UNFINISHED_TOKEN = request_bytes(SaslAuthenticateRequest(auth_bytes=bytes(499_900)), 2)[:495_000]
UNFINISHED_FRAME = LIMIT.to_bytes(4, "big") + bytes(LIMIT - 1)


@pytest.fixture
def no_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing ends by a deadline or by a periodic check."""
    monkeypatch.setattr(SocketServer, "sweep", lambda server: None)


@contextlib.asynccontextmanager
async def broker_of(settings: Mapping[str, str] = BOUNDS) -> AsyncIterator[InProcessBroker]:
    async with in_process_broker({**SETTINGS, **settings}, time="virtual") as broker:
        await broker.controller.topics.create([NewTopic("felt", 1, 1)], timeout_ms=5000)
        yield broker


class Crowd:
    """Clients that connect and stay until the end of the test."""

    def __init__(self, broker: Broker, ends: contextlib.AsyncExitStack) -> None:
        self._ports = {endpoint.name: endpoint.port for endpoint in broker.endpoints}
        self._ends = ends

    async def connect(self, listener: str, address: str = "127.0.0.1") -> RawClient:
        return await self._ends.enter_async_context(raw_client(self._ports[listener], address))

    async def stranger(self, address: str = "127.0.0.1") -> RawClient:
        """One that has chosen its mechanism."""
        client = await self.connect("SASL_PLAINTEXT", address)
        assert (await client.handshake()).error_code == ErrorCode.NONE
        return client

    async def alice(self, address: str = "127.0.0.1") -> RawClient:
        """One that has logged in."""
        client = await self.stranger(address)
        assert (await client.token(ALICE)).error_code == ErrorCode.NONE
        return client


@contextlib.asynccontextmanager
async def crowd_of(broker: Broker) -> AsyncIterator[Crowd]:
    async with contextlib.AsyncExitStack() as ends:
        yield Crowd(broker, ends)


async def is_produced(client: RawClient, size: int) -> bool:
    client.send(framed(produce_frame(size)))
    frame = await client.frame()
    if frame is None:
        return False
    error: int = decode(ProduceResponse, 9, frame, 5).responses[0].partition_responses[0].error_code
    return error == ErrorCode.NONE


async def attack(broker: Broker, attackers: list[RawClient], beginning: bytes) -> None:
    """Returns when some of them are not read any more, and the others have come to the end of what they send."""
    for client in attackers:
        client.send(beginning)
    server = broker.socket_server
    await until(lambda: len(server.blocked) >= 2)
    before = -1
    while before != server.counters.bytes_in:
        before = server.counters.bytes_in
        await asyncio.sleep(0.05)


@pytest.mark.usefixtures("no_checks")
async def test_frames_that_nobody_finishes_before_a_login_delay_nobody_who_has_logged_in() -> None:
    async with broker_of() as broker, crowd_of(broker) as crowd:
        alice, anonymous = await crowd.alice(), await crowd.connect("PLAINTEXT")
        attackers = [await crowd.stranger() for _ in range(ATTACKERS)]
        await attack(broker, attackers, UNFINISHED_TOKEN)
        for client in (alice, anonymous):
            assert await is_produced(client, 60_000)
            assert await is_produced(client, 900_000)
        assert len(broker.socket_server.connections) > ATTACKERS // 2, "most attackers wait"


@pytest.mark.usefixtures("no_checks")
async def test_the_frames_of_all_strangers_share_a_small_bound() -> None:
    async with broker_of() as broker, crowd_of(broker) as crowd:
        attackers = [await crowd.stranger() for _ in range(ATTACKERS)]
        before = broker.socket_server.counters.bytes_in
        await attack(broker, attackers, UNFINISHED_TOKEN)
        assert BEFORE_LOGIN < broker.socket_server.queues.before_login.total <= 2 * BEFORE_LOGIN
        assert broker.socket_server.counters.bytes_in - before <= 2 * BEFORE_LOGIN


@pytest.mark.usefixtures("no_checks")
async def test_a_login_in_two_pieces_succeeds_although_strangers_have_used_up_their_memory() -> None:
    async with broker_of() as broker, crowd_of(broker) as crowd:
        attackers = [await crowd.stranger() for _ in range(ATTACKERS)]
        await attack(broker, attackers, UNFINISHED_TOKEN)
        alice = await crowd.stranger()
        token = request_bytes(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
        read = broker.socket_server.counters.bytes_in
        alice.send(token[:20])
        await until(lambda: broker.socket_server.counters.bytes_in >= read + 20)
        alice.send(token[20:])
        assert await alice.frame() is not None
        assert await is_produced(alice, 60_000)


@pytest.mark.usefixtures("no_checks")
async def test_frames_that_one_address_does_not_finish_do_not_delay_other_addresses() -> None:
    async with broker_of() as broker, crowd_of(broker) as crowd:
        greedy = [await crowd.connect("PLAINTEXT", GREEDY) for _ in range(4)]
        other, near = await crowd.connect("PLAINTEXT", OTHER), await crowd.connect("PLAINTEXT", GREEDY)
        await attack(broker, greedy, UNFINISHED_FRAME)
        assert await is_produced(other, 60_000)
        assert await is_produced(other, 900_000)
        assert await is_produced(near, 60_000), "small requests of the same address"
        assert len(broker.socket_server.connections) == len(greedy) + 2


async def test_the_address_that_holds_most_is_the_first_whose_unfinished_frames_end() -> None:
    async with broker_of() as broker, crowd_of(broker) as crowd:
        other = await crowd.connect("PLAINTEXT", OTHER)
        whole = framed(produce_frame(900_000))
        other.send(whole[:500_000])
        await until(lambda: broker.socket_server.counters.bytes_in == 500_000)
        greedy = [await crowd.connect("PLAINTEXT", GREEDY) for _ in range(4)]
        await attack(broker, greedy, UNFINISHED_FRAME)
        queue = broker.socket_server.queues.anonymous
        await broker.advance_until(lambda: not queue.is_too_much, within=10)
        assert len(broker.socket_server.connections) < 5
        other.send(whole[500_000:])
        assert await other.frame() is not None


async def test_a_client_that_does_not_log_in_is_closed_at_the_deadline() -> None:
    """It has sent nothing, or chosen its mechanism, or sent the beginning of a token."""
    async with broker_of() as broker, crowd_of(broker) as crowd:
        alice = await crowd.alice()
        strangers = [await crowd.connect("SASL_PLAINTEXT"), await crowd.stranger(), await crowd.stranger()]
        strangers[2].send(UNFINISHED_TOKEN)
        await broker.advance(TIMEOUT_S - 1)
        assert len(broker.socket_server.connections) == 4
        with structlog.testing.capture_logs() as logs:
            await broker.advance(2)
            assert [await stranger.frame() for stranger in strangers] == [None] * 3
        assert [entry["event"] for entry in logs if "login" in entry["event"]] == ["login takes too long"] * 3
        assert await is_produced(alice, 100)


async def test_a_failed_login_is_answered_after_its_delay_also_beyond_the_deadline() -> None:
    delay_s = 2 * TIMEOUT_S
    async with (
        broker_of({**BOUNDS, "connection.failed.authentication.delay.ms": str(delay_s * 1000)}) as broker,
        crowd_of(broker) as crowd,
    ):
        stranger = await crowd.stranger()
        answer = asyncio.create_task(stranger.token(b"\0alice\0wrong-secret"))
        await until(lambda: broker.socket_server.blocked)
        await broker.advance(delay_s - 1)
        assert not answer.done()
        await broker.advance(2)
        assert (await answer).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_the_deadline_of_a_login_holds_when_only_its_tls_handshake_is_complete() -> None:
    security = Security("SASL_SSL")
    async with in_process_broker(security=security, time="virtual") as broker:
        tls = security.of_client().tls
        async with raw_client(broker.endpoints[0].port, ssl=tls, server_hostname="localhost") as stranger:
            await broker.advance(TIMEOUT_S - 1)
            assert len(broker.socket_server.connections) == 1
            await broker.advance(2)
            assert await stranger.frame() is None


@pytest.mark.parametrize("has_descriptors", [True, False])
@pytest.mark.usefixtures("no_checks")
async def test_strangers_make_room_for_a_client_that_logs_in(has_descriptors: bool) -> None:
    """The address with most strangers ends its oldest, and one that has logged in stays."""
    async with broker_of() as broker, crowd_of(broker) as crowd:
        server = broker.socket_server
        modest = await crowd.stranger(OTHER)
        first = await crowd.alice(GREEDY)
        greedy = [await crowd.stranger(GREEDY) for _ in range(3)]
        if has_descriptors:
            server.limits = server.limits._replace(max_connections=5)
        else:
            newest = list(server.connections)[-1].transport.get_extra_info("socket").fileno()
            server.limits = server.limits._replace(connection_descriptors=newest + 1)
        second = await crowd.alice()
        assert await greedy[0].frame() is None
        await until(lambda: len(server.connections) == 5)
        for client in (first, second):
            assert await is_produced(client, 100)
        for stranger in (modest, *greedy[1:]):
            assert (await stranger.token(ALICE)).error_code == ErrorCode.NONE


@pytest.mark.usefixtures("no_checks")
async def test_a_new_client_is_refused_when_all_others_have_logged_in() -> None:
    async with broker_of({**BOUNDS, "max.connections": "2"}) as broker, crowd_of(broker) as crowd:
        users = [await crowd.alice(), await crowd.alice()]
        refused = await crowd.connect("SASL_PLAINTEXT")
        assert await refused.frame() is None
        for client in users:
            assert await is_produced(client, 100)
