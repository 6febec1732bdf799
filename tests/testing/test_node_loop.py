"""The event loop of one node: it runs as any loop, is held by a pause, and is silent after its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import sys
import threading
import time
import warnings
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from odradek.testing.network import Network
from odradek.testing.node_loop import NodeEnded, NodeLoop, node_loop
from tests.patience import soon, until

HOST = "127.0.0.1"


@pytest.fixture
async def network() -> Network:
    return Network()


@pytest.fixture
async def node(network: Network) -> AsyncIterator[NodeLoop]:
    loop = node_loop(1, network)
    yield loop
    loop.end()
    await loop.all_gone()


async def turns(count: int = 5) -> None:
    """Lets the loops run."""
    for _ in range(count):
        await asyncio.sleep(0)


def on(node: NodeLoop, function: Callable[..., Any], *args: Any) -> Any:
    return node.call(function, *args)


# --- as any loop


async def test_a_coroutine_runs_with_the_node_as_its_loop_and_returns_its_result(node: NodeLoop) -> None:
    async def who() -> asyncio.AbstractEventLoop:
        await asyncio.sleep(0.001)
        async with asyncio.timeout(5):
            await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0))])
        return asyncio.get_running_loop()

    assert await node.run(who()) is node
    assert asyncio.get_running_loop() is not node


async def test_exceptions_and_cancellations_pass_in_both_directions(node: NodeLoop) -> None:
    async def fail() -> None:
        raise LookupError("here")

    with pytest.raises(LookupError, match="here"):
        await node.run(fail())
    was_cancelled: list[bool] = []

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            was_cancelled.append(True)
            raise

    waiting = asyncio.create_task(node.run(wait()))
    await turns()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await turns()
    assert was_cancelled == [True]


async def test_callbacks_run_in_the_order_of_their_calls_and_cancelled_ones_never(node: NodeLoop) -> None:
    ran: list[str] = []
    for name in "abc":
        handle = node.call_soon(ran.append, name)
        if name == "b":
            handle.cancel()
    begun = node.time()
    node.call_at(begun + 0.02, ran.append, "late")
    node.call_at(begun + 0.01, ran.append, "timed")
    node.call_later(0.01, ran.append, "never").cancel()
    await until(lambda: "late" in ran)
    assert ran == ["a", "c", "timed", "late"]


async def test_equal_timers_are_cancelled_one_by_one(node: NodeLoop) -> None:
    ran: list[str] = []
    when = node.time() + 0.01
    node.call_at(when, ran.append, "x")
    node.call_at(when, ran.append, "x").cancel()
    node.call_at(when + 0.01, ran.append, "end")
    await until(lambda: "end" in ran)
    assert ran == ["x", "end"]


async def test_a_failing_callback_is_reported_and_the_next_one_runs(node: NodeLoop) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    ran: list[str] = []
    node.call_soon(lambda: 1 / 0)
    node.call_soon(ran.append, "next")
    await until(lambda: ran)
    assert isinstance(reported[0]["exception"], ZeroDivisionError)


async def test_threads_deliver_their_results_to_the_node(node: NodeLoop) -> None:
    async def work() -> tuple[int, str]:
        def fail() -> None:
            raise OSError("disk")

        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as executor:
            number = await loop.run_in_executor(executor, lambda: 7)
            try:
                await loop.run_in_executor(executor, fail)
            except OSError as error:
                return number, str(error)
        return number, ""

    assert await node.run(work()) == (7, "disk")


async def test_another_thread_can_call_back(node: NodeLoop) -> None:
    called: list[bool] = []
    thread = threading.Thread(target=lambda: node.call_soon_threadsafe(called.append, True))
    thread.start()
    await until(lambda: called)
    thread.join()


async def test_streams_and_child_processes_work(node: NodeLoop) -> None:
    async def upper() -> bytes:
        process = await asyncio.create_subprocess_exec("tr", "a-z", "A-Z", stdin=PIPE, stdout=PIPE)
        out, _ = await process.communicate(b"hello")
        assert await process.wait() == 0
        return out

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def through_a_server() -> bytes:
        server = await asyncio.start_server(echo, HOST, 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"line\n")
        line = await reader.readline()
        writer.close()
        server.close()
        await server.wait_closed()
        return line

    assert await node.run(upper()) == b"HELLO"
    assert await node.run(through_a_server()) == b"line\n"


# --- a pause


async def test_what_falls_due_in_a_pause_runs_afterwards_in_order(node: NodeLoop) -> None:
    ran: list[str] = []
    node.call_soon(ran.append, "soon")
    node.call_later(0.02, ran.append, "second timer")
    node.call_later(0.01, ran.append, "first timer")
    cancelled = node.call_later(0.01, ran.append, "never")
    node.pause()
    await asyncio.sleep(0.05)
    assert ran == []
    cancelled.cancel()
    node.resume()
    await until(lambda: len(ran) == 3)
    assert ran == ["soon", "first timer", "second timer"]


async def test_a_pause_by_the_node_itself_holds_what_comes_after_the_callback(node: NodeLoop) -> None:
    ran: list[str] = []
    node.call_soon(node.pause)
    node.call_soon(ran.append, "after")
    await turns()
    assert ran == []
    node.resume()
    await turns()
    assert ran == ["after"]


async def test_the_result_of_a_thread_waits_for_the_end_of_the_pause(node: NodeLoop) -> None:
    go, done = threading.Event(), threading.Event()

    async def work() -> str:
        with ThreadPoolExecutor(1) as executor:
            result: str = await asyncio.get_running_loop().run_in_executor(executor, block)
        return result

    def block() -> str:
        go.wait(20)
        done.set()
        return "result"

    working = asyncio.create_task(node.run(work()))
    await turns()
    node.pause()
    go.set()
    await until(done.is_set)
    await asyncio.sleep(0.02)
    assert not working.done()
    node.resume()
    assert await working == "result"


class Recorder(asyncio.Protocol):
    """Notes what happens to a connection."""

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.events.append(data.decode())

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


async def serve(node: NodeLoop, events: list[str]) -> tuple[str, int]:
    """Serves on the node; returns the address."""

    async def listen() -> tuple[str, int]:
        server = await asyncio.get_running_loop().create_server(lambda: Recorder(events), HOST, 0)
        name = server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    return await node.run(listen())


async def test_connections_to_a_paused_node_are_accepted_and_served_after_the_pause(node: NodeLoop) -> None:
    events: list[str] = []
    address = await serve(node, events)
    before, writer_before = await asyncio.open_connection(*address)
    await until(lambda: events == ["made"])
    node.pause()
    writer_before.write(b"first")
    during, writer_during = await asyncio.open_connection(*address)
    writer_during.write(b"second")
    _, writer_gone = await asyncio.open_connection(*address)
    writer_gone.write(b"third")
    writer_gone.close()
    await writer_gone.wait_closed()
    await asyncio.sleep(0.05)
    assert events == ["made"]
    node.resume()
    await until(lambda: len(events) == 8)
    assert sorted(events) == sorted(["made", "made", "made", "first", "second", "third", "eof", "lost"])
    assert events.index("second") > 2, "a connection is made before it is read"
    for reader, writer in ((before, writer_before), (during, writer_during)):
        assert not reader.at_eof()
        writer.close()
        await writer.wait_closed()


async def test_a_paused_node_takes_connections_of_a_socket_of_its_own_after_the_pause(node: NodeLoop) -> None:
    events: list[str] = []
    with socket.create_server((HOST, 0)) as listening:
        listening.setblocking(False)

        async def take(peer: socket.socket) -> None:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: Recorder(events), peer)

        def arrived() -> None:
            assert asyncio.get_running_loop() is node
            tasks.append(node.create_task(take(listening.accept()[0])))

        tasks: list[asyncio.Task[None]] = []
        node.add_reader(listening.fileno(), arrived)
        node.pause()
        _, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(b"first")
        await asyncio.sleep(0.05)
        assert events == []
        node.resume()
        await until(lambda: events == ["made", "first"])
        assert node.remove_reader(listening.fileno())
        assert not node.remove_reader(listening.fileno())
        writer.close()
        await writer.wait_closed()


async def test_a_node_that_has_ended_takes_no_connection(node: NodeLoop) -> None:
    with socket.create_server((HOST, 0)) as listening:
        node.add_reader(listening.fileno(), pytest.fail)
        node.end()
        _, writer = await asyncio.open_connection(*listening.getsockname())
        await asyncio.sleep(0.05)
        writer.close()
        await writer.wait_closed()


class BufferedRecorder(asyncio.BufferedProtocol):
    """The same, with a buffer of its own. As a connection of a broker does, it uses its transport when it reads."""

    transport: Any

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.buffer = bytearray(8)

    connection_made = Recorder.connection_made
    eof_received = Recorder.eof_received
    connection_lost = Recorder.connection_lost

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert not self.transport.is_closing()
        self.events.append(self.buffer[:nbytes].decode())


@pytest.mark.parametrize("recorder", [Recorder, BufferedRecorder])
@pytest.mark.parametrize("turns_of_the_pause", range(5))
async def test_bytes_that_arrive_together_with_their_connection_are_not_read_during_a_pause(
    node: NodeLoop, recorder: type[Recorder | BufferedRecorder], turns_of_the_pause: int
) -> None:
    connections: list[list[str]] = []
    all_accepted = asyncio.Event()

    def protocol() -> Recorder | BufferedRecorder:
        connections.append([])
        if len(connections) == 10:
            all_accepted.set()
        return recorder(connections[-1])

    async def listen() -> tuple[str, int]:
        server = await asyncio.get_running_loop().create_server(protocol, HOST, 0)
        name = server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    address = await node.run(listen())
    node.pause()
    clients = [socket.create_connection(address) for _ in range(10)]
    for number, client in enumerate(clients):
        client.sendall(b"longer than the buffer, ")
        if number % 2:
            client.sendall(b"and the rest")
            client.shutdown(socket.SHUT_WR)
    await all_accepted.wait()
    await turns(turns_of_the_pause**4)
    assert connections == [[]] * 10
    node.resume()
    for client in clients[::2]:
        client.sendall(b"and the rest")
    whole = "madelonger than the buffer, and the rest"
    await until(lambda: sorted(map("".join, connections)) == [whole] * 5 + [whole + "eoflost"] * 5)
    for client in clients:
        client.close()


async def test_a_node_that_does_not_want_to_read_does_not_after_a_pause(node: NodeLoop) -> None:
    events: list[str] = []
    recorder = Recorder(events)

    async def listen() -> tuple[str, int]:
        server = await asyncio.get_running_loop().create_server(lambda: recorder, HOST, 0)
        name = server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    _, writer = await asyncio.open_connection(*await node.run(listen()))
    await until(lambda: events)
    on(node, recorder.transport.pause_reading)
    writer.write(b"data")
    node.pause()
    node.resume()
    await asyncio.sleep(0.02)
    assert events == ["made"]
    node.pause()
    on(node, recorder.transport.resume_reading)
    await asyncio.sleep(0.02)
    assert events == ["made"]
    node.resume()
    await until(lambda: "data" in events)
    writer.close()
    await writer.wait_closed()


async def test_a_writer_callback_is_held_by_a_pause(node: NodeLoop) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    calls: list[float] = []
    on(node, node.add_writer, ours, lambda: calls.append(time.monotonic()))
    await until(lambda: calls)
    node.pause()
    seen = len(calls)
    await asyncio.sleep(0.02)
    assert len(calls) == seen
    node.resume()
    await until(lambda: len(calls) > seen)
    assert on(node, node.remove_writer, ours)
    seen = len(calls)
    await turns()
    assert len(calls) == seen
    ours.close()
    theirs.close()


# --- the end


async def test_nothing_of_the_node_runs_after_its_end(node: NodeLoop, recwarn: pytest.WarningsRecorder) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    ran: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(0.01)
            ran.append("work")
        finally:
            ran.append("finally")
            asyncio.get_running_loop().call_soon(ran.append, "never")
            asyncio.ensure_future(asyncio.sleep(0))  # noqa: RUF006

    on(node, node.create_task, work())
    await turns()
    on(node, node.create_task, work())  # does not begin
    node.call_soon(ran.append, "soon")
    node.call_later(0.01, ran.append, "later")
    node.end()
    assert ran == ["finally"]
    assert on(node, node.run_in_executor, None, lambda: ran.append("thread")).done() is False
    await asyncio.sleep(0.03)
    node.call_soon(ran.append, "too late")
    node.notify(ran.append, "too late")
    await turns()
    gc.collect()
    assert ran == ["finally"]
    assert reported == []
    assert [str(warning.message) for warning in recwarn] == []


async def test_nobody_asks_for_a_coroutine_whose_task_had_not_begun_at_the_end(
    node: NodeLoop, recwarn: pytest.WarningsRecorder
) -> None:
    """As the one that makes a response, when the request came last before the broker was killed."""

    async def making() -> None:
        raise AssertionError

    def park() -> None:
        inner = making()

        async def run() -> None:
            await inner

        asyncio.ensure_future(run())  # noqa: RUF006

    on(node, park)
    node.end()
    await turns()
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


async def test_the_end_of_a_node_ends_the_wait_for_its_coroutines(node: NodeLoop) -> None:
    waiting = asyncio.create_task(node.run(asyncio.sleep(60)))
    await turns()
    node.end()
    with pytest.raises(NodeEnded, match="node 1 has ended"):
        await waiting
    with pytest.raises(NodeEnded):
        await node.run(asyncio.sleep(0))


async def test_the_end_closes_connections_and_listeners_but_tells_the_node_nothing(node: NodeLoop) -> None:
    events: list[str] = []
    address = await serve(node, events)
    reader, writer = await asyncio.open_connection(*address)
    await until(lambda: events == ["made"])
    node.end()
    await node.all_gone()
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)
    assert events == ["made"]


async def test_an_end_by_the_node_itself_takes_effect_at_its_next_wait(node: NodeLoop) -> None:
    ran: list[str] = []

    async def work() -> None:
        node.end()
        ran.append("goes on")
        await asyncio.sleep(0)
        ran.append("never")

    with pytest.raises(NodeEnded):
        await node.run(work())
    await turns()
    assert ran == ["goes on"]


async def test_a_thread_of_an_ended_node_is_waited_for_and_its_result_is_lost(node: NodeLoop) -> None:
    go, ran = threading.Event(), list[str]()

    async def work(executor: ThreadPoolExecutor) -> None:
        await asyncio.get_running_loop().run_in_executor(executor, go.wait, 20)
        ran.append("never")

    executor = ThreadPoolExecutor(1)
    on(node, node.create_task, work(executor))
    await turns()
    node.end()
    gone = asyncio.create_task(node.all_gone())
    await turns()
    assert not gone.done()
    go.set()
    await gone
    executor.shutdown()
    assert ran == []


async def test_a_connection_that_is_established_after_the_end_is_closed(node: NodeLoop) -> None:
    accepted: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    server = await asyncio.start_server(lambda *streams: accepted.append(streams), HOST, 0)
    address = server.sockets[0].getsockname()
    events: list[str] = []

    async def connect() -> None:
        await asyncio.get_running_loop().create_connection(lambda: Recorder(events), *address)

    on(node, node.create_task, connect())
    await asyncio.sleep(0)
    node.end()
    await turns(50)
    for reader, writer in accepted:
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    assert events == []
    server.close()
    await server.wait_closed()


async def test_a_connection_that_is_given_up_right_after_it_was_made_is_not_waited_for(node: NodeLoop) -> None:
    with socket.create_server((HOST, 0)) as listening:

        class GivesUp(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                connecting.cancel()

        async def connect() -> None:
            await asyncio.get_running_loop().create_connection(GivesUp, *listening.getsockname())

        connecting = on(node, node.create_task, connect())
        await until(connecting.done)
        assert connecting.cancelled()
        node.end()
        async with asyncio.timeout(30):
            await node.all_gone()


async def test_a_server_that_the_node_has_not_heard_of_yet_is_closed_at_the_end(node: NodeLoop) -> None:
    async def serve() -> None:
        await asyncio.get_running_loop().create_server(asyncio.Protocol, HOST, port)

    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    on(node, node.create_task, serve())
    await soon(lambda: node.pending)
    node.pause()  # the result is held
    await until(lambda: not node.pending)
    node.end()
    await turns()
    socket.create_server((HOST, port)).close()


async def test_child_processes_end_with_the_node(node: NodeLoop) -> None:
    async def start() -> int:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(60)", stdin=PIPE)
        return process.pid

    process_id = await node.run(start())
    node.end()

    def has_ended() -> bool:
        try:
            return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    await until(has_ended)
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # nobody waits for the process any more


async def test_asynchronous_generators_that_are_dropped_are_closed_by_the_node_unless_it_has_ended(
    node: NodeLoop,
) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    closed: list[asyncio.AbstractEventLoop] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(0)
        finally:
            closed.append(asyncio.get_running_loop())

    async def first() -> int:
        async for number in numbers():
            return number
        return 0

    async def count() -> None:
        async for _ in numbers():
            pass

    assert await node.run(first()) == 1
    gc.collect()
    await until(lambda: closed)
    on(node, node.create_task, count())
    await turns()
    node.end()
    gc.collect()
    await turns()
    assert closed in ([node], [node, node]), "Python 3.13 closes those of closed coroutines, too"
    assert reported == []
