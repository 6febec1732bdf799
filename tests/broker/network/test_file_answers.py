"""Responses from files on real sockets (echo_server.py)."""

import asyncio
import functools
import os
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import pytest
import structlog.testing

from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.storage.file_slice import SLICE_BYTES, FileSlice
from odradek.storage.files import OsFiles
from tests.broker.network.echo_server import BIG, CLOSE, ECHO, FILE, PARK, Bench, Client, request
from tests.table_settings import of_table

SIZE = 30_000_000


@functools.cache
def random_bytes() -> bytes:
    return Random(1).randbytes(SIZE)


@pytest.fixture
def content(bench: Bench, tmp_path: Path) -> Iterator[bytes]:
    """The content of the file from which FILE responds."""
    (tmp_path / "file").write_bytes(random_bytes())
    bench.echo.file = OsFiles().open(str(tmp_path / "file"))
    yield random_bytes()
    bench.echo.file.close()


@pytest.fixture(params=["cached", "cold"])
def cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with sends by the event loop and with sends by a thread."""
    cached = request.param == "cached"
    monkeypatch.setattr(FileSlice, "is_cached", lambda *_: cached)


def wanted(correlation_id: int, *slices: tuple[int, int]) -> bytes:
    return request(FILE, correlation_id, b"".join(struct.pack(">ii", *where) for where in slices))


def stop_reading(client: Client) -> None:
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]


async def stalled(bench: Bench, *slices: tuple[int, int]) -> Client:
    """Returns a client that requests these slices and does not read. The server is already waiting for it."""
    before = len(bench.server.not_read_by)
    client = await bench.connect()
    stop_reading(client)
    client.send(wanted(1, *slices))
    await bench.until(lambda: len(bench.server.not_read_by) > before)
    return client


def read_on(client: Client) -> None:
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]


def open_files() -> set[str]:
    """Returns open descriptors except those of polls and pipes, which belong to event loops."""
    return {name for name in os.listdir("/proc/self/fd") if is_file_or_socket(name)}


def is_file_or_socket(name: str) -> bool:
    try:
        target = os.readlink(f"/proc/self/fd/{name}")
    except FileNotFoundError:
        return False
    return target.startswith(("socket:", "/"))


@pytest.mark.usefixtures("cache")
async def test_responses_from_files_and_from_memory_keep_their_order(bench: Bench, content: bytes) -> None:
    client = await bench.connect()
    random = Random(2)
    asked: dict[int, bytes] = {}
    for number in range(60):
        if number % 3 == 0:
            client.send(request(ECHO, number, b"small"))
            asked[number] = b"small"
        elif number % 3 == 1:
            client.send(request(BIG, number, (900_000).to_bytes(4, "big")))
            asked[number] = bytes(900_000)
        else:
            lengths = [random.randrange(SLICE_BYTES, 4_000_000) for _ in range(random.randrange(1, 4))]
            slices = [(random.randrange(SIZE - length), length) for length in lengths]
            client.send(wanted(number, *slices))
            asked[number] = b"".join(content[start : start + length] for start, length in slices) + b"done"
    for number, payload in asked.items():
        assert await client.answer() == (number, payload)


@pytest.mark.parametrize("limits", [of_table(ConnectionLimits, send_buffer_bytes=16_384)])
async def test_a_file_response_waits_for_the_transports_buffer(bench: Bench, content: bytes) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", bench.endpoint.port))
        await loop.sock_sendall(client, request(BIG, 1, (150_000).to_bytes(4, "big")))
        await bench.until(lambda: bench.echo.handled == [1])
        [connection] = bench.server.connections
        limits = connection.transport.get_write_buffer_limits()
        assert connection.transport.get_write_buffer_size()
        await loop.sock_sendall(client, wanted(2, (0, 5_000_000)) + request(ECHO, 3))
        await bench.until(lambda: 2 in bench.echo.handled)
        assert connection._outbox.unwritten_bytes() > 5_000_000
        received = bytearray()
        expected = 8 + 150_000 + 8 + 5_000_004 + 8
        while len(received) < expected:
            received += await loop.sock_recv(client, expected)
        assert received[8:150_008] == bytes(150_000)
        assert received[150_016:5_150_020] == content[:5_000_000] + b"done"
        assert received[-4:] == (3).to_bytes(4, "big")
        assert connection.transport.get_write_buffer_limits() == limits


@pytest.mark.usefixtures("cache")
async def test_a_parked_request_can_be_answered_from_a_file(bench: Bench, content: bytes) -> None:
    client = await bench.connect()
    client.send(request(PARK, 1) + wanted(2, (5, 20_000_000)) + request(PARK, 3))
    await bench.until(lambda: len(bench.echo.parked) == 2)
    bench.echo.parked[1].complete(b"last")
    bench.echo.parked[0].complete(b"first")
    assert await client.answer() == (1, b"first")
    assert await client.answer() == (2, content[5:20_000_005] + b"done")
    assert await client.answer() == (3, b"last")


async def test_a_file_closed_and_removed_during_sending_is_sent_completely(
    bench: Bench, content: bytes, tmp_path: Path
) -> None:
    client = await stalled(bench, (0, SIZE))
    assert bench.echo.file is not None
    bench.echo.file.close()
    (tmp_path / "file").unlink()
    read_on(client)
    assert await client.answer() == (1, content + b"done")


@pytest.mark.usefixtures("cache")
async def test_a_truncated_file_closes_the_connection_with_one_log_line(
    bench: Bench, content: bytes, tmp_path: Path
) -> None:
    client = await stalled(bench, (0, SIZE))
    os.truncate(tmp_path / "file", 20_000_000)
    with structlog.testing.capture_logs() as logs:
        read_on(client)
        received = await client.reader.read(-1)
        await bench.until(lambda: not bench.server.connections)
    assert received[8:] == content[: len(received) - 8]
    assert [entry["event"] for entry in logs] == ["response not sent from file"]
    assert "ends before byte" in logs[0]["error"]


@pytest.mark.usefixtures("content", "cache")
async def test_a_client_that_disconnects_during_its_response_leaves_no_open_file(bench: Bench) -> None:
    before = open_files()
    for _ in range(5):
        client = await stalled(bench, (0, SIZE), (0, SIZE))
        await client.close()
        await bench.sweep_until(lambda: not bench.server.connections)
    await bench.until(lambda: open_files() <= before)


@pytest.mark.usefixtures("cache")
async def test_a_client_that_does_not_read_is_not_read_from(bench: Bench, content: bytes) -> None:
    client = await bench.connect()
    stop_reading(client)
    client.send(b"".join(wanted(number, (number, 5_000_000)) for number in range(30)))
    await bench.until(lambda: len(bench.server.blocked) == 1)
    await asyncio.sleep(0.1)
    assert len(bench.echo.handled) < 10
    read_on(client)
    for number in range(30):
        assert await client.answer() == (number, content[number : number + 5_000_000] + b"done")


@pytest.mark.usefixtures("content")
@pytest.mark.parametrize("limits", [of_table(ConnectionLimits, max_unread_bytes_of_all=1_000_000)])
async def test_waiting_file_responses_may_have_any_size(bench: Bench) -> None:
    sloths = [await stalled(bench, (0, SIZE)) for _ in range(5)]
    for _ in range(3):
        bench.server.sweep()
        await asyncio.sleep(0.01)
    assert len(bench.server.connections) == 5
    for sloth in sloths:
        read_on(sloth)
        assert (await sloth.answer())[0] == 1


@pytest.mark.usefixtures("content")
@pytest.mark.parametrize("limits", [of_table(ConnectionLimits, idle_ms=500)])
async def test_a_client_that_never_reads_is_expired_and_one_that_reads_slowly_is_not(bench: Bench) -> None:
    await stalled(bench, (0, SIZE))
    slowly = await bench.connect()
    slowly.send(wanted(2, (0, SIZE)))
    with structlog.testing.capture_logs() as logs:
        rest = 8 + SIZE + 4
        while rest:
            rest -= len(await slowly.reader.readexactly(min(rest, 1_000_000)))
            await asyncio.sleep(0.02)
            bench.server.sweep()
        await bench.sweep_until(lambda: len(bench.server.connections) <= 1)
    assert [entry["event"] for entry in logs] == ["client does not read responses"]


async def test_a_close_waits_for_the_previous_responses(bench: Bench, content: bytes) -> None:
    client = await bench.connect()
    client.send(wanted(1, (0, SIZE)) + request(CLOSE, 2))
    assert await client.answer() == (1, content + b"done")
    assert await client.is_closed()


async def ended(bench: Bench) -> None:
    [connection] = bench.server.connections
    connection.end()
    connection.close_by_ms = 1
    await bench.sweep_until(lambda: not bench.server.connections)


@pytest.mark.usefixtures("content", "cache")
@pytest.mark.parametrize("stop", [lambda bench: bench.server.stop(20), ended])
async def test_a_closing_connection_whose_client_does_not_read_is_aborted(
    bench: Bench, stop: Callable[[Bench], Awaitable[None]]
) -> None:
    before = open_files()
    client = await stalled(bench, (0, SIZE))
    await stop(bench)
    assert not bench.server.connections
    own = str(client.writer.get_extra_info("socket").fileno())
    await bench.until(lambda: open_files() <= {*before, own})


async def test_stop_waits_for_a_client_that_is_reading_its_response(bench: Bench, content: bytes) -> None:
    client = await stalled(bench, (0, SIZE))
    stopping = asyncio.create_task(bench.server.stop(20_000))
    await asyncio.sleep(0.01)
    read_on(client)
    assert await client.answer() == (1, content + b"done")
    assert await client.is_closed()
    await stopping


@pytest.mark.usefixtures("content")
async def test_other_clients_are_answered_while_a_disk_is_slow(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = threading.Event()
    send = FileSlice.send

    def slow_send(self: FileSlice, socket: int, start: int, length: int) -> int:
        assert disk.wait(20)
        return send(self, socket, start, length)

    monkeypatch.setattr(FileSlice, "is_cached", lambda *_: False)
    monkeypatch.setattr(FileSlice, "send", slow_send)
    waiting, other = await bench.connect(), await bench.connect()
    waiting.send(wanted(1, (0, SLICE_BYTES)))
    await bench.until(lambda: bool(bench.server.not_read_by))
    other.send(request(ECHO, 2, b"quick"))
    assert await other.answer() == (2, b"quick")
    disk.set()
    assert (await waiting.answer())[0] == 1
