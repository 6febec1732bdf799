"""What waits in the queue of the system: clients that have gone cost nothing, and addresses take turns."""

import asyncio
import errno
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import structlog

from benchmarks.crowds import client_hello
from odradek.broker.background.background import Background
from odradek.broker.network import arrivals
from odradek.broker.network.arrivals import BEGUN_PER_ADDRESS, BEGUN_PER_TURN, LEAST_TAKEN, MOST_TAKEN, taken_after
from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.listener_tls import ListenerTls
from odradek.broker.settings.listeners import Listener
from tests.broker.network.echo_server import ECHO, SILENT, Bench, BothSides, echo_server, request
from tests.broker.network.tls_sides import both_sides
from tests.table_settings import of_table

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
RESET = struct.pack("ii", 1, 0)
HELLO = client_hello()


@asynccontextmanager
async def not_started(tls: BothSides | None = None) -> AsyncIterator[Bench]:
    """Yields a server that listens, and has not begun to take connections."""
    background = Background()
    echo, server = echo_server(of_table(ConnectionLimits), background, None if tls is None else tls.listener)
    protocol = "PLAINTEXT" if tls is None else "SSL"
    [endpoint] = await server.bind([Listener(protocol, protocol, HERE, 0, HERE, 0)])
    for sockets in server.duplicated_sockets().values():
        for listening in sockets:
            listening.listen(server.limits.listen_backlog)
            listening.close()
    bench = Bench(echo, server, endpoint, None if tls is None else tls.client)
    try:
        yield bench
    finally:
        for client in bench.clients:
            await client.close()
        await server.stop(100)
        await background.stop()
    assert not server.connections


@pytest.fixture
def peers() -> Iterator[list[socket.socket]]:
    peers: list[socket.socket] = []
    yield peers
    for peer in peers:
        peer.close()


def connected(bench: Bench, address: str, data: bytes = b"") -> socket.socket:
    peer = socket.create_connection((HERE, bench.endpoint.port), 20, (address, 0))
    if data:
        peer.sendall(data)
    return peer


def gone(bench: Bench, data: bytes, how: str) -> None:
    peer = connected(bench, ELSEWHERE, data)
    if how == "reset":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    peer.close()


def count_sessions(tls: ListenerTls, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Returns the list to which each new TLS session is added."""
    made: list[object] = []
    before = ListenerTls.new_session

    def new_session(self: ListenerTls, *buffers: object) -> object:
        made.append(self)
        return before(self, *buffers)  # type: ignore[arg-type]

    monkeypatch.setattr(ListenerTls, "new_session", new_session)
    return made


@pytest.mark.parametrize("how", ["closed", "reset"])
@pytest.mark.parametrize("data", [b"", HELLO, b"garbage"])
async def test_clients_that_have_gone_cost_no_connection_and_no_tls(
    data: bytes, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = both_sides()
    made = count_sessions(tls.listener, monkeypatch)
    async with not_started(tls) as bench:
        for _ in range(MOST_TAKEN + 100):
            gone(bench, data, how)
        await bench.server.start()
        client = await bench.connect()
        client.send(request(ECHO, 1))
        assert await client.answer() == (1, b"")
        assert bench.server.arrivals is not None
        assert bench.server.arrivals.gone == MOST_TAKEN + 100
        assert bench.server.counters.accepted == 1
        assert len(made) == 1


async def test_a_request_counts_although_its_client_has_gone() -> None:
    async with not_started() as bench:
        for number in range(100):
            gone(bench, request(SILENT, number), "closed")
            gone(bench, b"", "closed")
            gone(bench, b"", "reset")
        await bench.server.start()
        await bench.until(lambda: len(bench.echo.handled) == 100)
        assert sorted(bench.echo.handled) == list(range(100))
        assert bench.server.arrivals is not None
        assert bench.server.arrivals.gone == 200
        await bench.until(lambda: not bench.server.connections)


async def test_one_client_does_not_wait_for_all_of_another_address(peers: list[socket.socket]) -> None:
    async with not_started() as bench:
        peers += [connected(bench, ELSEWHERE) for _ in range(800)]
        peers.append(connected(bench, HERE))
        await bench.server.start()
        await bench.until(lambda: bench.server.counters.accepted == 801)
        [number] = [each.info.number for each in bench.server.connections if each.info.client_host == HERE]
        turns = -(-801 // LEAST_TAKEN) + 1
        assert number <= turns * BEGUN_PER_ADDRESS + BEGUN_PER_TURN < 800 / 2


@pytest.mark.parametrize(
    ("addresses", "most"), [(1, BEGUN_PER_ADDRESS), (3, 3 * BEGUN_PER_ADDRESS), (40, BEGUN_PER_TURN)]
)
async def test_a_turn_begins_few_of_each_address_and_not_many_of_all(
    addresses: int, most: int, peers: list[socket.socket]
) -> None:
    async with not_started() as bench:
        peers += [connected(bench, f"127.0.0.{2 + number % addresses}") for number in range(60)]
        await bench.server.start()
        in_turns = []
        while bench.server.counters.accepted < len(peers):
            before = bench.server.counters.accepted
            await asyncio.sleep(0)
            in_turns.append(bench.server.counters.accepted - before)
        assert max(in_turns) == most


def test_a_longer_turn_takes_more_from_the_queue_of_the_system() -> None:
    assert [taken_after(turn_ms) for turn_ms in (0, 10, 30, 1000)] == [LEAST_TAKEN, LEAST_TAKEN, 150, MOST_TAKEN]


async def test_only_so_many_of_one_address_wait_in_the_line(
    peers: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with not_started() as bench:
        for number in range(40):
            peers.append(connected(bench, ELSEWHERE))
            if number % 10 == 9:
                peers.append(connected(bench, HERE))
        monkeypatch.setattr(arrivals, "MOST_WAITING", 30)
        with structlog.testing.capture_logs() as logs:
            await bench.server.start()
            await bench.until(lambda: bench.server.counters.accepted == 44)
        assert bench.server.counters.refused == 10
        assert {entry["event"] for entry in logs} == {"too many connections from one address wait"}
        assert sum(each.info.client_host == HERE for each in bench.server.connections) == 4


async def test_a_client_that_goes_before_its_first_step_costs_no_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    tls = both_sides()
    made = count_sessions(tls.listener, monkeypatch)
    async with not_started(tls) as bench:
        await bench.server.start()
        for number in range(1, 21):
            peer = connected(bench, ELSEWHERE)
            await bench.until(lambda number=number: bench.server.counters.accepted == number)  # type: ignore[misc]
            peer.sendall(HELLO)
            peer.close()  # the loop has not run since the hello
        await bench.until(lambda: bench.server.counters.closed == 20)
        assert made == []
        assert bench.server.handshakes is not None
        assert bench.server.handshakes.failed == 20
        assert len(bench.server.handshakes) == 0


def test_a_broker_that_is_killed_closes_what_is_no_connection_yet(peers: list[socket.socket]) -> None:
    loop = asyncio.new_event_loop()
    context = not_started()
    bench = loop.run_until_complete(context.__aenter__())
    peers += [connected(bench, ELSEWHERE) for _ in range(6 * BEGUN_PER_TURN)]
    loop.run_until_complete(bench.server.start())
    loop.run_until_complete(asyncio.sleep(0))
    assert bench.server.counters.accepted < len(peers) - BEGUN_PER_TURN
    bench.server.abandon()
    begun = asyncio.all_tasks(loop)
    for task in begun:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*begun, return_exceptions=True))
    assert sum(is_closed(peer) for peer in peers) == len(peers) - len(bench.server.connections)
    loop.run_until_complete(context.__aexit__(None, None, None))
    loop.close()


def is_closed(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return not peer.recv(1)
    except BlockingIOError:
        return False


async def test_a_process_without_descriptors_takes_connections_again_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's answer is scripted: a process without descriptors could not go on with the test."""
    failures = 2
    accept = socket.socket.accept

    def exhausted(self: socket.socket) -> tuple[socket.socket, object]:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", exhausted)
    with structlog.testing.capture_logs() as logs:
        client = await bench.connect()
        client.send(request(ECHO, 1))
        assert await client.answer() == (1, b"")
    assert [entry["event"] for entry in logs] == ["no connection can be accepted"] * 2
