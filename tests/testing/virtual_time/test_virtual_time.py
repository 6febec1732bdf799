"""Virtual time itself: it flows, stands, jumps from deadline to deadline, and waits for what is under way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.testing.network import Network
from odradek.testing.node_loop import NodeLoop, node_loop
from odradek.testing.virtual_time import advance
from odradek.testing.virtual_time.advance import Advance, AdvanceFailed
from odradek.testing.virtual_time.virtual_time import VirtualTime
from tests.patience import until

HOST = "127.0.0.1"
DAY_S = 86_400


@pytest.fixture
async def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
async def nodes(time: VirtualTime) -> AsyncIterator[list[NodeLoop]]:
    """Two nodes in the same network."""
    network = Network()
    loops = [node_loop(number, network, time) for number in (1, 2)]
    for loop in loops:
        time.belongs_to(loop)
    yield loops
    for loop in loops:
        loop.end()
        await loop.all_gone()


async def pass_by(time: VirtualTime, seconds: float, **options: Any) -> None:
    await Advance(time, time.now_us + round(seconds * 1e6), **options).run()


def start(node: NodeLoop, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Starts a task of the node, and lets it come to its first wait."""
    return node.call(node.create_task, coroutine)


async def test_time_flows_as_wall_time_until_it_is_advanced_and_goes_on_from_there(
    time: VirtualTime, nodes: list[NodeLoop]
) -> None:
    before, date = time.now_ms(), time.wall_ms()
    await asyncio.wait_for(nodes[0].run(asyncio.sleep(0.02)), 20)
    assert before + 20 <= time.now_ms() < before + 20_000
    await pass_by(time, DAY_S)
    assert before + DAY_S * 1000 + 20 <= time.now_ms() < before + DAY_S * 1000 + 20_000
    assert time.wall_ms() - date == time.now_ms() - before
    await asyncio.wait_for(nodes[0].run(asyncio.sleep(0.02)), 20)


async def test_deadlines_of_all_nodes_are_met_in_order_and_at_their_moment(
    time: VirtualTime, nodes: list[NodeLoop]
) -> None:
    seen: list[tuple[int, float]] = []

    async def wait(node: int, delays: list[float]) -> None:
        for delay in delays:
            await asyncio.sleep(delay)
            seen.append((node, round(asyncio.get_running_loop().time() - begun, 6)))

    time.stand()
    begun = time.time()
    tasks = [start(nodes[0], wait(1, [10, 10, 0.5])), start(nodes[1], wait(2, [5, 5.000001, DAY_S]))]
    await pass_by(time, 30)
    assert seen == [(2, 5.0), (1, 10.0), (2, 10.000001), (1, 20.0), (1, 20.5)]
    assert round(time.time() - begun) == 30
    await pass_by(time, DAY_S)
    assert seen[5:] == [(2, DAY_S + 10.000001)]
    assert all(task.done() for task in tasks)


async def test_everything_of_a_moment_happens_before_the_next_one(time: VirtualTime, nodes: list[NodeLoop]) -> None:
    """What happens at one moment in turns, threads and a child process, and on the other node, takes no time."""
    seen: list[str] = []
    child = "import sys\nfor line in sys.stdin: print('heard', line, end='', flush=True)"

    async def work() -> None:
        await asyncio.sleep(60)
        for _ in range(500):
            await asyncio.sleep(0)
        seen.append("turns")
        release = threading.Timer(0.05, event.set)
        release.start()
        assert await asyncio.get_running_loop().run_in_executor(None, event.wait, 20)
        seen.append("thread")
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", child, stdin=PIPE, stdout=PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"this\n")
        seen.append((await process.stdout.readline()).decode().strip())
        process.stdin.close()
        await process.stdout.read()
        await process.wait()
        seen.append("process")
        at.append(time.now_us)

    async def next_deadline() -> None:
        await asyncio.sleep(60.000002)
        seen.append("later")

    event, at = threading.Event(), list[int]()
    time.stand()
    begun = time.now_us
    start(nodes[0], work())
    start(nodes[1], next_deadline())
    await pass_by(time, 61)
    assert seen == ["turns", "thread", "heard this", "process", "later"]
    assert at == [begun + 60_000_000]


async def echo_server(node: NodeLoop) -> tuple[Any, int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    server = await node.run(asyncio.start_server(answer, HOST, 0))
    return server, server.sockets[0].getsockname()[1]


async def test_bytes_and_ends_of_connections_between_nodes_take_no_time(
    time: VirtualTime, nodes: list[NodeLoop]
) -> None:
    _, port = await echo_server(nodes[1])
    took: list[int] = []

    async def talk() -> None:
        for size in (1, 3_000_000):
            await asyncio.sleep(60)
            begun = time.now_us
            reader, writer = await asyncio.open_connection(HOST, port)
            for _ in range(3):
                writer.write(bytes(size))
                async with asyncio.timeout(5):
                    await reader.readexactly(size)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
            took.append(time.now_us - begun)

    talking = start(nodes[0], talk())
    await pass_by(time, 3600)
    talking.result()
    assert took == [0, 0]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_file_that_a_node_sends_takes_no_time(
    time: VirtualTime, nodes: list[NodeLoop], in_thread: bool, tmp_path: Path
) -> None:
    """It goes past the transport, so nobody can count it there."""
    (tmp_path / "file").write_bytes(b"x")
    took: list[int] = []

    async def send_a_file(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        for _minute in range(3):
            await asyncio.sleep(60)
            with (
                socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as own,
                (tmp_path / "file").open("rb") as file,
            ):
                writable = asyncio.Event()
                send = partial(os.sendfile, own.fileno(), file.fileno(), 0, 1)
                loop.add_writer(own, _sends, loop, own, writable, None if in_thread else send)
                await writable.wait()
                if in_thread:
                    await loop.run_in_executor(None, send)
        writer.close()

    server = await nodes[1].run(asyncio.start_server(send_a_file, HOST, 0))

    async def receive() -> None:
        reader, writer = await asyncio.open_connection(HOST, server.sockets[0].getsockname()[1])
        begun = time.now_us
        for minute in range(1, 4):
            await reader.readexactly(1)
            took.append(time.now_us - begun - minute * 60_000_000)
        writer.close()

    time.stand()
    receiving = start(nodes[0], receive())
    await pass_by(time, 3600)
    receiving.result()
    assert took == [0, 0, 0]


def _sends(
    loop: asyncio.AbstractEventLoop, own: socket.socket, writable: asyncio.Event, send: Callable[[], int] | None
) -> None:
    loop.remove_writer(own)
    writable.set()
    if send is not None:
        send()


async def test_what_a_cut_holds_back_is_not_waited_for(time: VirtualTime, nodes: list[NodeLoop]) -> None:
    _, port = await echo_server(nodes[1])
    outcomes: list[str] = []

    async def talk() -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        await asyncio.sleep(60)
        writer.write(b"x")
        begun = time.now_us
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                await reader.read(1)
                outcomes.append("answered")
        outcomes.append(f"{(time.now_us - begun) / 1e6:g} s")
        writer.close()

    start(nodes[0], talk())
    await pass_by(time, 1)
    nodes[0].network.cut(1, 2)
    await pass_by(time, 3600)
    assert outcomes == ["30 s"]


async def test_a_paused_node_is_not_waited_for_and_catches_up_when_it_is_resumed(
    time: VirtualTime, nodes: list[NodeLoop]
) -> None:
    seen: list[int] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(time.now_ms())

    start(nodes[0], tick())
    await pass_by(time, 10)
    assert len(seen) in (9, 10)
    nodes[0].pause()
    count = len(seen)
    await pass_by(time, 100)
    assert len(seen) == count
    nodes[0].resume()
    await pass_by(time, 10)
    assert count + 9 <= len(seen) <= count + 11


async def test_a_client_that_does_not_read_is_not_waited_for(time: VirtualTime, nodes: list[NodeLoop]) -> None:
    closed: list[float] = []

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(20_000_000))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(50):
                await writer.drain()
        closed.append(time.time())
        writer.transport.abort()

    server = await nodes[0].run(asyncio.start_server(flood, HOST, 0))
    with socket.create_connection(server.sockets[0].getsockname()):
        await until(lambda: nodes[0].gates)
        begun = time.time()
        await pass_by(time, 60)
    assert 49 < closed[0] - begun < 51


async def test_cancelled_timers_are_forgotten(time: VirtualTime, nodes: list[NodeLoop]) -> None:
    for _ in range(10_000):
        nodes[0].call_later(DAY_S, os.getpid).cancel()
    assert len(time._timers) < 300
    await pass_by(time, 1)


async def test_an_error_of_the_end_of_an_advance_passes_and_time_flows_again(
    time: VirtualTime, nodes: list[NodeLoop]
) -> None:
    def fail() -> bool:
        raise LookupError("the condition")

    with pytest.raises(LookupError, match="the condition"):
        await pass_by(time, 60, is_over=fail)
    await asyncio.wait_for(nodes[0].run(asyncio.sleep(0.01)), 20)


async def test_a_cancelled_advance_lets_time_flow_again(time: VirtualTime, nodes: list[NodeLoop]) -> None:
    event = threading.Event()
    blocked = start(nodes[0], _in_thread(event))
    advancing = asyncio.create_task(pass_by(time, 60))
    await asyncio.sleep(0)
    advancing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await advancing
    event.set()
    await asyncio.wait_for(nodes[0].run(_done(blocked)), 20)


async def _in_thread(event: threading.Event) -> None:
    await asyncio.get_running_loop().run_in_executor(None, event.wait, 20)


async def _done(task: asyncio.Task[Any]) -> None:
    await task
    await asyncio.sleep(0.01)


async def test_a_thread_that_does_not_end_is_reported(time: VirtualTime, nodes: list[NodeLoop]) -> None:
    event = threading.Event()
    start(nodes[1], _in_thread(event))
    with pytest.raises(
        AdvanceFailed, match=r"stopped 0\.000 s after .*: for \d+ s of wall time, broker 2 waits for a "
    ):
        await pass_by(time, 60, patience_s=0.05)
    event.set()


async def test_a_loop_without_end_is_reported(
    time: VirtualTime, nodes: list[NodeLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advance, "TURNS_OF_A_MOMENT", 1000)

    async def spin() -> None:
        await asyncio.sleep(30)
        while True:  # noqa: ASYNC110 - it spins
            await asyncio.sleep(0)

    time.stand()
    start(nodes[0], spin())
    with pytest.raises(AdvanceFailed, match=r"stopped 30\.000 s after .*: the brokers have taken 1,000 turns"):
        await pass_by(time, 60)


async def test_what_else_runs_on_the_loop_goes_on_during_an_advance(time: VirtualTime, nodes: list[NodeLoop]) -> None:
    async def tick() -> None:
        while True:  # noqa: ASYNC110 - it ticks
            await asyncio.sleep(0.01)

    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    start(nodes[0], tick())
    other = asyncio.create_task(others())
    await pass_by(time, 30)
    other.cancel()
    assert turns > 100


async def test_moments_are_whole_milliseconds_on_every_loop(time: VirtualTime) -> None:
    """As the brokers count: what has waited for 30 s has not waited for 29.9995."""
    for _ in range(100):
        assert time.now_us % 1000 == 0
        await asyncio.sleep(0.0001)
