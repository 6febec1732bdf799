"""What holds for responses from files holds with TLS, too, where they are read in pieces: test_file_answers.py."""

import threading
from collections.abc import AsyncIterator

import pytest

from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.file_reading import FileReading
from odradek.broker.network.file_sending import FileSending
from odradek.storage.file_slice import SLICE_BYTES, FileSlice
from tests.broker.network import test_file_answers as plain
from tests.broker.network.echo_server import BIG, CLOSE, ECHO, Bench, request, running
from tests.broker.network.test_file_answers import SIZE, cache, content, read_on, stalled, stop_reading, wanted
from tests.broker.network.tls_sides import RecordClient, both_sides
from tests.table_settings import of_table

__all__ = ["cache", "content"]
NOT_HERE = {
    "test_a_file_response_waits_for_the_transports_buffer": "TLS keeps the order itself",
    "test_other_clients_are_answered_while_a_disk_is_slow": "is below, with reads for sends",
    "test_waiting_file_responses_may_have_any_size": "is below: what is read ahead counts",
    "test_a_close_waits_for_the_previous_responses": "is below: uvloop's client drops what it has at the end",
    "test_stop_waits_for_a_client_that_is_reading_its_response": "the same",
    "test_a_closing_connection_whose_client_does_not_read_is_aborted": "needs the client's socket",
}
TESTS = {name: test for name, test in vars(plain).items() if name.startswith("test_") and name not in NOT_HERE}
globals().update(TESTS)


@pytest.fixture
async def bench(limits: ConnectionLimits) -> AsyncIterator[Bench]:
    async with running(limits, both_sides()) as bench:
        yield bench


def test_what_is_left_out_exists() -> None:
    assert [name for name in NOT_HERE if not hasattr(plain, name)] == []
    assert len(TESTS) > 5


@pytest.mark.usefixtures("content")
async def test_a_listener_with_tls_never_bypasses_its_transport(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSending, "begin", lambda _: pytest.fail("sendfile would send clear text"))
    client = await bench.connect()
    client.send(wanted(1, (0, 3 * SLICE_BYTES)))
    assert (await client.answer())[0] == 1
    [connection] = bench.server.connections
    assert connection._new_sending is FileReading


@pytest.mark.usefixtures("cache")
async def test_a_close_waits_for_the_previous_responses(bench: Bench, content: bytes) -> None:
    assert bench.tls is not None
    client = await RecordClient.connect(bench.endpoint.port, bench.tls)
    await client.shake_hands()
    await client.send(wanted(1, (0, SIZE)) + request(CLOSE, 2))
    received = await client.read(8 + SIZE + 4)
    assert received[8:] == content + b"done"
    await bench.until(lambda: not bench.server.connections)
    client.close()


@pytest.mark.usefixtures("content")
@pytest.mark.parametrize("limits", [of_table(ConnectionLimits, max_unread_bytes_of_all=5 * 500_000)])
async def test_waiting_file_responses_hold_little_memory(bench: Bench) -> None:
    sloths = [await stalled(bench, (0, SIZE)) for _ in range(5)]
    for _ in range(3):
        bench.server.sweep()
        await bench.settle()
    assert len(bench.server.connections) == 5
    for sloth in sloths:
        read_on(sloth)
        assert (await sloth.answer())[0] == 1


@pytest.mark.usefixtures("content")
async def test_a_connection_is_paused_again_after_a_response_from_a_file(bench: Bench) -> None:
    client = await bench.connect()
    stop_reading(client)
    client.send(wanted(1, (0, SLICE_BYTES)))
    client.send(b"".join(request(BIG, number, (1_000_000).to_bytes(4, "big")) for number in range(2, 100)))
    await bench.settle()
    assert len(bench.echo.handled) < 60
    read_on(client)
    assert [(await client.answer())[0] for _ in range(1, 100)] == list(range(1, 100))


@pytest.mark.usefixtures("content")
async def test_other_clients_are_answered_while_a_disk_is_slow(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = threading.Event()
    read = FileSlice.read

    def slow_read(self: FileSlice, start: int, length: int) -> bytes:
        assert disk.wait(20)
        return read(self, start, length)

    monkeypatch.setattr(FileSlice, "is_cached", lambda *_: False)
    monkeypatch.setattr(FileSlice, "read", slow_read)
    waiting, other = await bench.connect(), await bench.connect()
    waiting.send(wanted(1, (0, SLICE_BYTES)))
    await bench.until(lambda: bool(bench.server.not_read_by))
    other.send(request(ECHO, 2, b"quick"))
    assert await other.answer() == (2, b"quick")
    disk.set()
    assert (await waiting.answer())[0] == 1
