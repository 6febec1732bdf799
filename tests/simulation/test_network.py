from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any

import pytest

from tests.simulation.loop import Node, simulated_loop
from tests.simulation.network import Network
from tests.simulation.transport import WINDOW_BYTES

PORT = 9092


class Recorder(asyncio.Protocol):
    def __init__(self, *, reads: bool = True) -> None:
        self.data = b""
        self.ends: list[Exception | None] = []
        self.arrived_at: list[float] = []
        self.calls: list[str] = []
        self._reads = reads

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if not self._reads:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.arrived_at.append(asyncio.get_running_loop().time())

    def connection_lost(self, exc: Exception | None) -> None:
        self.ends.append(exc)

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")


class Place:
    """Two hosts, a and b; b listens."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = simulated_loop()
        self.events: list[tuple[str, str, str, bytes]] = []
        self.network = Network(self.loop, Random(seed), lambda *event: self.events.append(event))
        self.nodes: dict[str, Node] = {}
        for number, name in enumerate("ab", 1):
            self.network.add_host(name, f"10.0.0.{number}")
            self.start(name)
        self.servers: list[Recorder] = []
        self.reads = True
        self.listen()

    def start(self, name: str) -> None:
        number = self.nodes[name].number + 1 if name in self.nodes else 1
        self.nodes[name] = Node(name, number)
        self.network.started(self.nodes[name])

    def listen(self) -> None:
        async def listening() -> None:
            await self.loop.create_server(self._accept, "10.0.0.2", PORT)

        self.run("b", listening())

    def _accept(self) -> Recorder:
        self.servers.append(Recorder(reads=self.reads))
        return self.servers[-1]

    def run(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(self.loop.run_as(self.nodes[name], self.loop.create_task, coroutine))

    def connect(self, factory: Callable[[], Recorder] = Recorder) -> tuple[Recorder, Recorder]:
        async def connecting() -> Recorder:
            _, protocol = await self.loop.create_connection(factory, "10.0.0.2", PORT)
            assert isinstance(protocol, Recorder)
            return protocol

        client = self.run("a", connecting())
        return client, self.servers[-1]

    def kill(self, name: str, *, silently: bool = False) -> None:
        self.loop.kill(self.nodes[name])
        self.network.ended(self.nodes[name], silently=silently)


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    assert place.loop.failures == []
    place.loop.close()


def test_what_is_sent_arrives_later_in_order_and_in_chunks(place: Place) -> None:
    place.network.split_chance = 0.5
    client, server = place.connect()
    numbers = b"".join(b"%05d" % number for number in range(200))
    for start in range(0, len(numbers), 5):
        client.transport.write(numbers[start : start + 5])
    before = place.loop.time()
    assert server.data == b""
    place.loop.run_for(1)
    assert server.data == numbers
    assert server.arrived_at[0] > before
    assert len(server.arrived_at) > 200


def test_the_ends_know_each_others_addresses(place: Place) -> None:
    client, server = place.connect()
    assert client.transport.get_extra_info("peername") == ("10.0.0.2", PORT)
    assert server.transport.get_extra_info("peername") == client.transport.get_extra_info("sockname")
    assert server.transport.get_extra_info("socket") is None


def test_streams_work_on_the_network(place: Place) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(1_000_000))
        await writer.drain()
        writer.close()

    async def listening() -> None:
        await asyncio.start_server(echo, "10.0.0.2", 9093)

    async def calling() -> bytes:
        reader, writer = await asyncio.open_connection("10.0.0.2", 9093)
        writer.write(bytes(1_000_000))
        await writer.drain()
        data = await reader.read()
        writer.close()
        return data

    place.run("b", listening())
    assert place.run("a", calling()) == bytes(1_000_000)


def test_a_sender_is_paused_while_the_receiver_does_not_read(place: Place) -> None:
    place.reads = False
    client, server = place.connect()
    client.transport.write(bytes(WINDOW_BYTES + 100_000))
    place.loop.run_for(1)
    assert client.calls == ["pause"]
    assert client.transport.get_write_buffer_size() == 100_000
    assert server.data == b""
    place.loop.run_as(place.nodes["b"], server.transport.resume_reading)
    place.loop.run_for(1)
    assert client.calls == ["pause", "resume"]
    assert len(server.data) == WINDOW_BYTES + 100_000


def test_a_closed_connection_sends_what_was_written_first(place: Place) -> None:
    client, server = place.connect()
    client.transport.write(bytes(3 * WINDOW_BYTES))
    client.transport.close()
    place.loop.run_for(1)
    assert len(server.data) == 3 * WINDOW_BYTES
    assert (client.ends, server.ends) == ([None], [None])
    assert not place.network.connections


def test_an_aborted_connection_is_reset_at_the_other_end(place: Place) -> None:
    client, server = place.connect()
    client.transport.abort()
    place.loop.run_for(1)
    assert client.ends == [None]
    assert isinstance(server.ends[0], ConnectionResetError)
    assert not place.network.connections


def test_nothing_arrives_through_a_cut_until_it_heals(place: Place) -> None:
    client, server = place.connect()
    client.transport.write(b"before ")
    place.network.cut("a", "b")
    client.transport.write(b"during ")
    server.transport.write(b"back")
    place.loop.run_for(1)
    assert (server.data, client.data) == (b"", b"back"), "the cut is one-way"
    place.network.heal("a", "b")
    client.transport.write(b"after")
    place.loop.run_for(1)
    assert server.data == b"before during after"


def test_a_long_cut_ends_the_connection_of_the_sender(place: Place) -> None:
    client, server = place.connect()
    place.network.cut("a", "b")
    client.transport.write(b"lost")
    place.loop.run_for(20)
    assert isinstance(client.ends[0], TimeoutError)
    assert server.ends == [], "it has heard nothing"
    place.network.heal("a", "b")
    server.transport.write(b"hello")
    place.loop.run_for(1)
    assert isinstance(server.ends[0], ConnectionResetError)
    assert server.data == b""


def test_a_connection_waits_for_the_end_of_a_cut(place: Place) -> None:
    place.network.cut("b", "a")
    place.loop.call_later(3, place.network.heal, "b", "a")
    place.connect()
    assert place.loop.time() >= 3


def test_a_connection_through_a_long_cut_fails(place: Place) -> None:
    place.network.cut("a", "b")
    with pytest.raises(TimeoutError):
        place.connect()


def test_a_port_without_a_listener_refuses(place: Place) -> None:
    place.kill("b")
    with pytest.raises(ConnectionRefusedError):
        place.connect()


def test_a_killed_process_resets_its_connections(place: Place) -> None:
    client, server = place.connect()
    place.kill("b")
    place.loop.run_for(1)
    assert isinstance(client.ends[0], ConnectionResetError)
    assert server.ends == []
    assert not place.network.connections


def test_a_host_without_power_says_nothing_until_it_has_restarted(place: Place) -> None:
    client, _ = place.connect()
    place.kill("b", silently=True)
    client.transport.write(b"anybody?")
    place.loop.run_for(1)
    assert client.ends == []
    place.start("b")
    client.transport.write(b"anybody?")
    place.loop.run_for(1)
    assert isinstance(client.ends[0], ConnectionResetError)


def test_a_restarted_node_can_listen_on_its_address(place: Place) -> None:
    place.kill("b")
    place.start("b")
    place.listen()
    client, server = place.connect()
    client.transport.write(b"again")
    place.loop.run_for(1)
    assert server.data == b"again"


def test_two_listeners_cannot_share_an_address(place: Place) -> None:
    with pytest.raises(OSError, match="in use"):
        place.listen()


def test_all_connections_between_two_hosts_can_be_reset(place: Place) -> None:
    ends = [end for _ in range(3) for end in place.connect()]
    assert place.network.reset("b", "a") == 3
    place.loop.run_for(1)
    assert all(isinstance(end.ends[0], ConnectionResetError) for end in ends)


def test_a_slow_link_multiplies_delays(place: Place) -> None:
    client, server = place.connect()
    place.network.slow_down("a", "b", 1000)
    sent_at = place.loop.time()
    client.transport.write(b"slow")
    place.loop.run_for(10)
    assert server.arrived_at[0] - sent_at > 0.1


def test_a_paused_node_finds_everything_when_it_resumes(place: Place) -> None:
    client, server = place.connect()
    place.loop.pause(place.nodes["b"])
    for number in range(5):
        client.transport.write(b"%d" % number)
    place.loop.run_for(2)
    assert server.data == b""
    place.loop.resume(place.nodes["b"])
    place.loop.run_for(1)
    assert server.data == b"01234"


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_gives_the_same_events(seed: int) -> None:
    traces = []
    for _ in range(2):
        place = Place(seed)
        place.network.split_chance = 0.5
        client, server = place.connect()
        for number in range(50):
            client.transport.write(b"%d" % number)
            server.transport.write(b"%d" % number)
        place.loop.run_for(1)
        traces.append((place.events, server.arrived_at))
        place.loop.close()
    assert traces[0] == traces[1]
