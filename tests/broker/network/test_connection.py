"""The connection on real sockets, with a small dispatcher in place of the APIs (echo_server.py)."""

import asyncio
import socket
import struct
from collections.abc import Callable
from functools import partial

import pytest
import structlog.testing

from odradek.broker.background.background import Background
from odradek.broker.network.connection import Connection
from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.large_frame import PIECE_BYTES, TURN_BYTES
from odradek.broker.network.rounds import SCRATCH_BYTES
from odradek.broker.network.socket_server import BindError
from odradek.broker.requests.request_bound import LARGE_FRAME_BYTES
from odradek.broker.requests.request_context import CloseConnection, ConnectionInfo, Part, PendingResponse
from odradek.broker.settings.listeners import Listener
from odradek.timer import ManualClock
from tests.broker.network.echo_server import (
    BIG,
    CLOSE,
    ECHO,
    HOLD_ALL,
    HOLD_SAME,
    LENGTH,
    PARK,
    PIECES,
    SILENT,
    THROTTLE,
    Bench,
    Echo,
    answer,
    echo_server,
    request,
)
from tests.scenarios.turns_of_a_loop import PROMISED_MS
from tests.table_settings import of_table

Answer = list[Part] | PendingResponse | None


async def test_a_request_is_answered(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(ECHO, 1, b"hello"))
    assert await client.answer() == (1, b"hello")


async def test_a_response_of_more_than_a_million_pieces_arrives(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(PIECES, 1, (1 << 20).to_bytes(4, "big")) + request(ECHO, 2, b"next"))
    assert await client.answer() == (1, b"." * (1 << 20))
    assert await client.answer() == (2, b"next")


async def test_frames_may_arrive_byte_by_byte(bench: Bench) -> None:
    client = await bench.connect()
    for byte in request(ECHO, 1, b"slow") + request(ECHO, 2, b"ly"):
        client.send(bytes([byte]))
        await client.writer.drain()
        await asyncio.sleep(0)
    assert [await client.answer() for _ in range(2)] == [(1, b"slow"), (2, b"ly")]


async def test_a_frame_split_anywhere_is_reassembled(bench: Bench) -> None:
    client = await bench.connect()
    two = request(ECHO, 1, b"a" * 50) + request(ECHO, 2, b"b" * 50)
    for cut in range(1, len(two)):
        client.send(two[:cut])
        await asyncio.sleep(0.0005)
        client.send(two[cut:])
        assert [await client.answer() for _ in range(2)] == [(1, b"a" * 50), (2, b"b" * 50)]


@pytest.mark.parametrize("size", [65527, 65528, 65529, 262144, 1048568, 1048576 + 8, 5_000_000])
async def test_large_frames_arrive_complete_between_small_ones(bench: Bench, size: int) -> None:
    client = await bench.connect()
    payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    client.send(request(ECHO, 1, b"before") + request(ECHO, 2, payload) + request(ECHO, 3, b"after"))
    assert await client.answer() == (1, b"before")
    assert await client.answer() == (2, payload)
    assert await client.answer() == (3, b"after")


async def test_the_response_of_a_large_request_is_written_before_the_next_request_is_handled(bench: Bench) -> None:
    written: list[int] = []

    class Watching(Echo):
        def dispatch(self, frame: bytes, connection: ConnectionInfo, now_ms: int) -> Answer:
            written.append(bench.server.rounds.counters.bytes_out)
            return super().dispatch(frame, connection, now_ms)

    bench.server.rounds.dispatch = Watching().dispatch
    client = await bench.connect()
    client.send(request(ECHO, 0))
    assert await client.answer() == (0, b"")
    (connection,) = bench.server.connections
    before = bench.server.rounds.counters.bytes_out
    large = request(ECHO, 1, bytes(LARGE_FRAME_BYTES))
    answered = LARGE_FRAME_BYTES + 8
    read = large + large + request(ECHO, 2)
    connection.get_buffer(-1)[: len(read)] = read
    connection.buffer_updated(len(read))
    assert [len((await client.answer())[1]) for _ in range(3)] == [LARGE_FRAME_BYTES, LARGE_FRAME_BYTES, 0]
    assert [size - before for size in written[1:]] == [0, answered, 2 * answered]


async def test_one_scratch_buffer_serves_clients_that_interleave_their_pieces(bench: Bench) -> None:
    clients = [await bench.connect() for _ in range(8)]
    frames = [request(ECHO, number, bytes([number]) * 1000) for number in range(8)]
    for start_of_piece in range(0, len(frames[0]), 100):
        for client, frame in zip(clients, frames, strict=True):
            client.send(frame[start_of_piece : start_of_piece + 100])
        await asyncio.sleep(0.001)
    for number, client in enumerate(clients):
        assert await client.answer() == (number, bytes([number]) * 1000)


async def test_pipelined_requests_are_answered_in_order(bench: Bench) -> None:
    client = await bench.connect()
    client.send(b"".join(request(ECHO, number, b"%d" % number) for number in range(5000)))
    assert [await client.answer() for _ in range(5000)] == [(number, b"%d" % number) for number in range(5000)]


class Slow(Echo):
    """Each request takes 4 ms. `longest_ms`: of all turns of the loop from `watch` on."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.clock = bench.server.rounds.clock = ManualClock()
        self.longest_ms = 0
        self._turn_began_ms: int | None = None
        bench.server.rounds.dispatch = self.dispatch

    def dispatch(self, frame: bytes, connection: ConnectionInfo, now_ms: int) -> Answer:
        self.clock.advance(4)
        return super().dispatch(frame, connection, now_ms)

    def watch(self) -> None:
        now_ms = self.clock.now_ms()
        if self._turn_began_ms is not None:
            self.longest_ms = max(self.longest_ms, now_ms - self._turn_began_ms)
        self._turn_began_ms = now_ms
        asyncio.get_running_loop().call_soon(self.watch)


async def test_a_long_pipeline_of_slow_requests_does_not_block_other_clients(bench: Bench) -> None:
    echo = Slow(bench)
    hog, other = await bench.connect(), await bench.connect()
    hog.send(b"".join(request(ECHO, number) for number in range(2000)))
    await bench.until(lambda: bool(echo.handled))
    other.send(request(ECHO, 9999))
    assert await other.answer() == (9999, b"")
    assert len(echo.handled) < 1000
    assert [(await hog.answer())[0] for _ in range(2000)] == list(range(2000))


@pytest.mark.parametrize("size", [10, LARGE_FRAME_BYTES, 2 * LARGE_FRAME_BYTES, 2 * SCRATCH_BYTES])
async def test_connections_together_do_not_take_a_long_turn(bench: Bench, size: int) -> None:
    slow = Slow(bench)
    clients = [await bench.connect() for _ in range(40)]
    payload = bytes(range(256)) * (size // 256)
    for client in clients:
        client.send(b"".join(request(ECHO, number, payload) for number in range(4)))
    slow.watch()
    for client in clients:
        assert [await client.answer() for _ in range(4)] == [(number, payload) for number in range(4)]
    assert slow.longest_ms < PROMISED_MS


async def test_a_client_that_comes_later_is_served_before_many_that_have_more(bench: Bench) -> None:
    slow = Slow(bench)
    hogs = [await bench.connect() for _ in range(40)]
    other = await bench.connect()
    for hog in hogs:
        hog.send(b"".join(request(ECHO, number) for number in range(100)))
    await bench.until(lambda: len(slow.handled) > 100)
    other.send(request(ECHO, 9999))
    assert await other.answer() == (9999, b"")
    assert len(slow.handled) < 1000


async def test_requests_after_a_parked_one_are_handled_but_answered_after_it(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(PARK, 1) + request(ECHO, 2) + request(PARK, 3) + request(SILENT, 4) + request(ECHO, 5))
    await bench.until(lambda: bench.echo.handled == [1, 2, 3, 4, 5])
    second, first = bench.echo.parked[1], bench.echo.parked[0]
    second.complete(b"three")
    await asyncio.sleep(0.01)
    first.complete(b"one")
    assert [await client.answer() for _ in range(4)] == [(1, b"one"), (2, b""), (3, b"three"), (5, b"")]


async def test_a_parked_request_may_be_answered_before_its_handler_returns(bench: Bench) -> None:
    class Settled(Echo):
        def dispatch(self, frame: bytes, connection: ConnectionInfo, now_ms: int) -> PendingResponse:
            pending = PendingResponse()
            pending.complete(b"early")
            pending.park(0, len(frame), lambda done: answer(7, done.result()))
            return pending

    bench.server.rounds.dispatch = Settled().dispatch
    client = await bench.connect()
    client.send(request(ECHO, 7))
    assert await client.answer() == (7, b"early")


async def test_a_request_that_holds_all_others_is_answered_before_the_next_is_handled(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(HOLD_ALL, 1) + request(ECHO, 2))
    await bench.until(lambda: bool(bench.echo.parked))
    await asyncio.sleep(0.02)
    assert bench.echo.handled == [1]
    bench.echo.parked[0].complete(b"now")
    assert [await client.answer() for _ in range(2)] == [(1, b"now"), (2, b"")]


async def test_a_request_that_holds_its_own_api_does_not_hold_other_apis(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(HOLD_SAME, 1) + request(ECHO, 2) + request(HOLD_SAME, 3) + request(ECHO, 4))
    await bench.until(lambda: bench.echo.handled == [1, 2])
    await asyncio.sleep(0.02)
    assert bench.echo.handled == [1, 2]
    bench.echo.parked[0].complete(b"")
    await bench.until(lambda: bench.echo.handled == [1, 2, 3, 4])
    bench.echo.parked[1].complete(b"")
    assert [(await client.answer())[0] for _ in range(4)] == [1, 2, 3, 4]


async def test_a_large_frame_can_be_held(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(HOLD_ALL, 1))
    await bench.until(lambda: bool(bench.echo.parked))
    client.send(request(LENGTH, 2, bytes(3_000_000)) + request(ECHO, 3))
    await asyncio.sleep(0.05)
    assert bench.echo.handled == [1]
    bench.echo.parked[0].complete(b"")
    assert [await client.answer() for _ in range(3)] == [(1, b""), (2, b"3000000"), (3, b"")]


async def test_a_throttled_connection_is_answered_at_once_and_then_muted(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(THROTTLE, 1, (60).to_bytes(4, "big")) + request(ECHO, 2))
    assert (await client.answer())[0] == 1
    assert bench.echo.handled == [1]
    assert (await client.answer())[0] == 2


async def test_the_throttle_that_ends_last_applies(bench: Bench) -> None:
    clock = bench.server.rounds.clock = ManualClock()
    timers: list[tuple[float, Callable[[], object]]] = []

    def call_later(delay_s: float, callback: Callable[..., object], *args: object) -> None:
        timers.append((delay_s, partial(callback, *args)))

    bench.server.call_later = call_later  # type: ignore[method-assign]
    client = await bench.connect()
    client.send(request(PARK, 1) + request(PARK, 2) + request(PARK, 3))
    await bench.until(lambda: len(bench.echo.parked) == 3)
    [connection] = bench.server.connections
    for pending, throttle_ms in zip(bench.echo.parked, (100, 5000, 200), strict=True):
        connection.info.throttle_ms = throttle_ms
        pending.complete(b"")
    client.send(request(ECHO, 4))
    assert [(await client.answer())[0] for _ in range(3)] == [1, 2, 3]
    for delay_s, ends in sorted(timers, key=lambda timer: timer[0]):
        assert 4 not in bench.echo.handled, "the last throttle has not ended"
        clock.advance(round(delay_s * 1000))
        ends()
        await bench.settle()
    assert delay_s == 5
    assert (await client.answer())[0] == 4


async def test_more_than_the_bounded_number_in_flight_is_not_handled(bench: Bench) -> None:
    client = await bench.connect()
    more = of_table(ConnectionLimits).max_in_flight_requests + 100
    client.send(b"".join(request(PARK, number) for number in range(more)))
    await bench.until(lambda: len(bench.echo.handled) >= of_table(ConnectionLimits).max_in_flight_requests)
    await asyncio.sleep(0.02)
    assert len(bench.echo.handled) == of_table(ConnectionLimits).max_in_flight_requests
    for number in range(more):
        await bench.until(lambda number=number: len(bench.echo.parked) > number)  # type: ignore[misc]
        bench.echo.parked[number].complete(b"")
    assert [(await client.answer())[0] for _ in range(more)] == list(range(more))


async def test_more_than_the_bounded_bytes_in_flight_is_not_handled(bench: Bench) -> None:
    client = await bench.connect()
    for number in range(68):
        client.send(request(PARK, number, bytes(1_000_000)))
    client.send(request(PARK, 68))
    await bench.until(lambda: len(bench.echo.handled) >= 68)
    await asyncio.sleep(0.05)
    assert len(bench.echo.handled) == 68
    client.writer.transport.abort()
    await bench.sweep_until(lambda: bench.echo.abandoned == 68)


@pytest.mark.parametrize("length", [-1, -2147483648, 0, 7, 104857601, 2147483647])
async def test_an_invalid_length_closes_the_connection_with_one_log_line(bench: Bench, length: int) -> None:
    client = await bench.connect()
    with structlog.testing.capture_logs() as logs:
        client.send(request(ECHO, 1) + struct.pack(">i", length) + b"rubbish")
        assert await client.answer() == (1, b"")
        assert await client.is_closed()
    assert [entry["length"] for entry in logs] == [length]


async def test_a_length_prefix_alone_reserves_no_memory(bench: Bench) -> None:
    client = await bench.connect()
    client.send(struct.pack(">i", 104857600) + b"\0\0\0\0")
    await bench.until(lambda: bench.server.counters.bytes_in == 8)
    [connection] = bench.server.connections
    assert len(connection.get_buffer(-1)) <= 4096
    client.send(bytes(2_000_000))
    await bench.until(lambda: bench.server.counters.bytes_in == 2_000_008)
    assert connection._large is not None
    assert len(connection._large._piece) == PIECE_BYTES, "the received bytes justify larger pieces"


async def test_reading_a_large_frame_pauses_while_it_must_wait(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(HOLD_ALL, 1))
    await bench.until(lambda: bool(bench.echo.parked))
    client.send(request(LENGTH, 2, bytes(3_000_000)))
    await bench.until(lambda: bool(bench.server.blocked))
    await bench.settle()
    assert bench.server.counters.bytes_in < 1_000_000
    bench.echo.parked[0].complete(b"")
    assert [await client.answer() for _ in range(2)] == [(1, b""), (2, b"3000000")]


@pytest.mark.parametrize("limits", [of_table(ConnectionLimits, max_queued_bytes=1_000_000)])
async def test_memory_held_by_all_connections_is_counted_and_freed(bench: Bench) -> None:
    first, second = await bench.connect(), await bench.connect()
    whole = request(LENGTH, 1, bytes(900_000))
    first.send(whole[:800_000])
    await bench.until(lambda: bench.server.counters.bytes_in == 800_000)
    assert 800_000 <= bench.server.queues.anonymous.total <= 2 * 800_000
    second.send(whole)
    await bench.until(lambda: bench.server.queues.anonymous.is_too_much)
    first.send(whole[800_000:])
    assert await first.answer() == (1, b"900000")
    assert await second.answer() == (1, b"900000")
    assert bench.server.queues.anonymous.total == 0


@pytest.mark.parametrize("limits", [of_table(ConnectionLimits, max_queued_bytes=1_000_000)])
async def test_a_large_request_is_counted_until_answered_and_does_not_close_its_connection(bench: Bench) -> None:
    client, other = await bench.connect(), await bench.connect()
    client.send(request(PARK, 1, bytes(1_200_000)))
    await bench.until(lambda: bool(bench.echo.parked))
    assert bench.server.queues.anonymous.total >= 1_200_000
    other.send(request(LENGTH, 2, bytes(500_000)))
    counters = bench.server.counters
    while len(bench.echo.handled) < 2:
        before = counters.bytes_in
        bench.server.sweep()
        await bench.until(lambda before=before: counters.bytes_in > before)  # type: ignore[misc]
    assert await other.answer() == (2, b"500000")
    bench.echo.parked[0].complete(b"")
    assert await client.answer() == (1, b"")
    assert bench.server.queues.anonymous.total == 0


@pytest.mark.parametrize(
    "limits", [of_table(ConnectionLimits, max_request_bytes=200_000, max_other_request_bytes=100_000)], ids=["limits"]
)
@pytest.mark.parametrize(
    ("todo", "size", "is_answered"),
    [
        (ECHO, 200_000, True),
        (ECHO, 200_001, False),
        (LENGTH, 100_000, True),
        (LENGTH, 100_001, False),
    ],
)
async def test_the_first_api_may_send_longer_frames_than_the_others(
    bench: Bench, todo: int, size: int, is_answered: bool
) -> None:
    """Produce's key is 0, as is ECHO."""
    client = await bench.connect()
    client.send(request(todo, 1, bytes(size - 8)))
    if is_answered:
        assert (await client.answer())[0] == 1
    else:
        assert await client.is_closed()


async def test_connections_do_not_use_the_reserved_descriptors(bench: Bench) -> None:
    first = await bench.connect()
    first.send(request(ECHO, 1))
    assert await first.answer() == (1, b"")
    [connection] = bench.server.connections
    taken = connection.transport.get_extra_info("socket").fileno()
    bench.server.limits = bench.server.limits._replace(connection_descriptors=taken + 1)
    with structlog.testing.capture_logs() as logs:
        assert await (await bench.connect()).is_closed()
    assert [(entry["event"], entry["limit"]) for entry in logs] == [("too many connections", "RLIMIT_NOFILE")]
    assert bench.server.counters.refused == 1
    first.send(request(ECHO, 2))
    assert await first.answer() == (2, b"")


async def test_a_close_waits_for_the_previous_responses(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(PARK, 1) + request(CLOSE, 2) + request(ECHO, 3))
    await bench.until(lambda: 2 in bench.echo.handled)
    bench.echo.parked[0].complete(b"first")
    assert await client.answer() == (1, b"first")
    assert await client.is_closed()
    assert bench.echo.handled == [1, 2]


async def test_a_parked_request_may_close_the_connection(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(PARK, 1) + request(PARK, 2))
    await bench.until(lambda: len(bench.echo.parked) == 2)
    bench.echo.parked[1].fail(CloseConnection("later"))
    bench.echo.parked[0].complete(b"first")
    assert await client.answer() == (1, b"first")
    assert await client.is_closed()


async def test_a_half_closed_connection_closes_after_its_parked_requests(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(PARK, 1) + request(PARK, 2))
    await bench.until(lambda: len(bench.echo.parked) == 2)
    client.writer.write_eof()
    assert await client.is_closed()
    assert bench.echo.abandoned == 2
    await bench.until(lambda: not bench.server.connections)


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="needs Linux's POLLRDHUP")
async def test_a_half_closed_connection_closes_although_reading_is_paused(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(HOLD_ALL, 1) + request(ECHO, 2))
    await bench.until(lambda: len(bench.server.blocked) == 1)
    bench.server.sweep()
    assert len(bench.server.connections) == 1
    client.writer.write_eof()
    await asyncio.sleep(0.02)
    bench.server.sweep()
    assert await client.is_closed()
    assert bench.echo.abandoned == 1
    assert bench.echo.handled == [1]


async def test_a_client_that_does_not_read_is_not_read_from(bench: Bench) -> None:
    client = await bench.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.send(b"".join(request(BIG, number, (1_000_000).to_bytes(4, "big")) for number in range(200)))
    await bench.until(lambda: len(bench.server.blocked) == 1)
    await asyncio.sleep(0.1)
    assert len(bench.echo.handled) < 50
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for number in range(200):
        assert (await client.answer())[0] == number


async def test_too_many_unread_response_bytes_close_the_connection(bench: Bench) -> None:
    client = await bench.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.send(b"".join(request(PARK, number) for number in range(20)))
    await bench.until(lambda: len(bench.echo.parked) == 20)
    with structlog.testing.capture_logs() as logs:
        for pending in bench.echo.parked:
            pending.complete(bytes(20_000_000))
            await asyncio.sleep(0.01)
        await bench.until(lambda: not bench.server.connections)
    assert [entry["event"] for entry in logs] == ["client does not read responses"]


@pytest.mark.parametrize("limits", [of_table(ConnectionLimits, max_unread_bytes_of_all=40_000_000)])
async def test_many_clients_that_do_not_read_are_closed_before_their_responses_fill_the_memory(bench: Bench) -> None:
    sloths = [await bench.connect() for _ in range(5)]
    for sloth in sloths:
        sloth.writer.transport.pause_reading()  # type: ignore[attr-defined]
        sloth.send(request(BIG, 1, (20_000_000).to_bytes(4, "big")))
    await bench.until(lambda: len(bench.server.not_read_by) == 5)
    await asyncio.sleep(0.2)
    with structlog.testing.capture_logs() as logs:
        await bench.sweep_until(lambda: len(bench.server.connections) <= 3)
    assert {entry["event"] for entry in logs} == {"client does not read responses"}
    left = sum(connection.transport.get_write_buffer_size() for connection in bench.server.connections)
    assert 0 < left <= 40_000_000
    reader = await bench.connect()
    reader.send(request(ECHO, 7))
    assert await reader.answer() == (7, b"")
    await reader.close()
    sloths[-1].writer.transport.resume_reading()  # type: ignore[attr-defined]
    assert (await sloths[-1].answer())[0] == 1


@pytest.mark.parametrize("limits", [of_table(ConnectionLimits, max_unread_bytes_of_all=40_000_000)])
async def test_the_address_with_most_unread_bytes_is_the_first_whose_connections_are_closed(bench: Bench) -> None:
    other = await bench.connect("127.0.0.2")
    sloths = [other, *[await bench.connect() for _ in range(2)]]
    for sloth in sloths:
        sloth.writer.transport.pause_reading()  # type: ignore[attr-defined]
        sloth.send(request(BIG, 1, (20_000_000).to_bytes(4, "big")))
        await bench.until(lambda sloth=sloth: len(bench.server.not_read_by) == sloths.index(sloth) + 1)  # type: ignore[misc]
    unread, before = bench.unread(), [0]
    while unread != before:  # what the system takes of the responses is not idle
        await bench.settle()
        unread, before = bench.unread(), unread
    await bench.sweep_until(lambda: len(bench.server.connections) < 3)
    assert [connection.info.client_host for connection in bench.server.connections] == ["127.0.0.2", "127.0.0.1"]
    other.writer.transport.resume_reading()  # type: ignore[attr-defined]
    assert (await other.answer())[0] == 1


@pytest.mark.parametrize("limits", [of_table(ConnectionLimits, idle_ms=50)])
async def test_idle_connections_are_expired_and_waiting_ones_are_not(bench: Bench) -> None:
    idle = await bench.connect()
    waiting = await bench.connect()
    waiting.send(request(PARK, 1))
    await bench.until(lambda: len(bench.echo.parked) == 1)
    await asyncio.sleep(0.1)
    bench.server.sweep()
    assert await idle.is_closed()
    assert bench.server.counters.expired == 1
    bench.echo.parked[0].complete(b"still here")
    assert await waiting.answer() == (1, b"still here")


@pytest.mark.parametrize("limits", [of_table(ConnectionLimits, idle_ms=50)])
async def test_a_client_that_never_reads_is_expired(bench: Bench) -> None:
    client = await bench.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.send(request(BIG, 1, (30_000_000).to_bytes(4, "big")))
    await bench.until(lambda: len(bench.server.blocked) == 1)
    with structlog.testing.capture_logs() as logs:
        await bench.sweep_until(lambda: not bench.server.connections)
    assert [entry["event"] for entry in logs] == ["client does not read responses"]


async def test_a_closing_connection_whose_client_does_not_read_is_aborted(bench: Bench) -> None:
    client = await bench.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.send(request(BIG, 1, (30_000_000).to_bytes(4, "big")))
    await bench.until(lambda: len(bench.server.blocked) == 1)
    [connection] = bench.server.connections
    connection.end()
    connection.close_by_ms = 1
    bench.server.sweep()
    await bench.until(lambda: not bench.server.connections)


@pytest.mark.parametrize("limits", [of_table(ConnectionLimits, max_connections=2)])
async def test_connections_above_the_limit_are_closed(bench: Bench) -> None:
    first, second = await bench.connect(), await bench.connect()
    await bench.until(lambda: len(bench.server.connections) == 2)
    assert await (await bench.connect()).is_closed()
    for client in (first, second):
        client.send(request(ECHO, 1))
        assert await client.answer() == (1, b"")
    await first.close()
    await bench.until(lambda: len(bench.server.connections) == 1)
    again = await bench.connect()
    again.send(request(ECHO, 1))
    assert await again.answer() == (1, b"")


@pytest.mark.parametrize("limits", [of_table(ConnectionLimits, max_connections_per_ip=1)])
async def test_connections_from_one_address_are_limited(bench: Bench) -> None:
    first = await bench.connect()
    assert await (await bench.connect()).is_closed()
    first.send(request(ECHO, 1))
    assert await first.answer() == (1, b"")


@pytest.mark.parametrize(
    "limits", [of_table(ConnectionLimits, max_connections_per_ip=0, max_connections_per_ip_overrides={"127.0.0.1": 1})]
)
async def test_an_address_may_have_its_own_limit(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(ECHO, 1))
    assert await client.answer() == (1, b"")


async def test_a_thousand_idle_connections_are_kept_and_checked_at_once(bench: Bench) -> None:
    clients = await asyncio.gather(*(bench.connect() for _ in range(1000)))
    await bench.until(lambda: len(bench.server.connections) == 1000)
    bench.server.sweep()
    for client in clients[::100]:
        client.send(request(ECHO, 1))
        assert await client.answer() == (1, b"")


async def test_stop_answers_parked_requests_and_accepts_no_new_ones(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(PARK, 1))
    await bench.until(lambda: len(bench.echo.parked) == 1)
    stopping = asyncio.create_task(bench.server.stop(5000))
    await asyncio.sleep(0)
    client.send(request(ECHO, 2))
    bench.echo.parked[0].complete(b"last")
    assert await client.answer() == (1, b"last")
    assert await client.is_closed()
    await stopping
    assert bench.echo.handled == [1]
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", bench.endpoint.port)


async def test_stop_aborts_connections_that_take_too_long(bench: Bench) -> None:
    client = await bench.connect()
    client.send(request(PARK, 1))
    await bench.until(lambda: len(bench.echo.parked) == 1)
    await bench.server.stop(20)
    assert await client.is_closed()
    assert bench.echo.abandoned == 1


async def test_an_occupied_port_is_named_in_the_error(bench: Bench) -> None:
    _, second = echo_server(of_table(ConnectionLimits), Background())
    with pytest.raises(BindError, match=rf"port {bench.endpoint.port} is already in use"):
        await second.bind([Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", bench.endpoint.port, None, 0)])


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
async def test_a_listener_whose_protection_is_missing_is_not_bound(protocol: str) -> None:
    _, server = echo_server(of_table(ConnectionLimits), Background())
    with pytest.raises(KeyError):
        await server.bind([Listener("A", protocol, "127.0.0.1", 0, None, 0)])


async def test_a_listener_on_every_interface_has_one_port_for_all_addresses() -> None:
    echo, server = echo_server(of_table(ConnectionLimits), Background())
    addresses = [
        Listener("A", "PLAINTEXT", "", 0, "", 0),
        Listener("B", "PLAINTEXT", "127.0.0.1", 0, "example.org", 1234),
    ]
    everywhere, advertised = await server.bind(addresses)
    await server.start()
    bench = Bench(echo, server, everywhere)
    client = await bench.connect()
    client.send(request(ECHO, 1))
    assert await client.answer() == (1, b"")
    assert (advertised.advertised_host, advertised.advertised_port) == ("example.org", 1234)
    assert everywhere.advertised_port == everywhere.port
    await client.close()
    await server.stop(1000)


async def test_a_huge_frame_does_not_keep_the_loop_from_other_clients(bench: Bench) -> None:
    """Its reading pauses again and again, although nothing is missing and nothing is parked."""
    client = await bench.connect()
    pauses = 0

    class Counting(dict[Connection, None]):
        def __setitem__(self, connection: Connection, value: None) -> None:
            nonlocal pauses
            pauses += 1
            super().__setitem__(connection, value)

    bench.server.blocked = Counting()
    client.send(request(LENGTH, 1, bytes(8 * TURN_BYTES)))
    assert await client.answer() == (1, str(8 * TURN_BYTES).encode())
    assert pauses >= 7
