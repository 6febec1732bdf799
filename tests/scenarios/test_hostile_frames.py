"""Frames with which one client tries to block the others: their cost in processor time and memory.

The attacks run over sockets against a broker in this process.
"""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog.testing

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.server import Broker
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceResponse
from odradek.protocol.primitives import unsigned_varint
from odradek.protocol.records import Record, build_batch
from odradek.testing import in_process_broker
from tests.patience import PATIENCE_S, block_until, until
from tests.scenarios.turns_of_a_loop import EachTurn, collector_as_when_served
from tests.spawned_broker import SpawnedBroker, spawned_broker
from tests.wire import requests
from tests.wire.blocking_client import RawClient
from tests.wire.frames import request_payload

pytestmark = pytest.mark.soak("hostile frames", minutes=1)
MEMORY_PER_BYTE = 20
FETCH_FIELDS = bytes(4 * 4 + 1 + 4 + 4)
"""Fetch 12 from the replica's id to the session's epoch."""


def frame_of(api_key: int, version: int, body: bytes, *, header_tags: bytes = b"\0") -> bytes:
    """A flexible request without its length: header version 2 without a client id, and the body."""
    header = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + (7).to_bytes(4, "big") + b"\xff\xff"
    return header + header_tags + body


def tags(count: int) -> bytes:
    """A section of empty, unknown tagged fields."""
    return unsigned_varint(count) + b"\x7f\0" * count


def array_of(count: int, element: bytes) -> bytes:
    return unsigned_varint(count + 1) + element * count


ATTACKS: dict[str, Callable[[], bytes]] = {
    "a header of tagged fields": lambda: frame_of(ApiKey.FETCH, 12, b"", header_tags=tags(2_000_000)),
    "a body of tagged fields": lambda: frame_of(ApiKey.FETCH, 12, FETCH_FIELDS + b"\1\1\1" + tags(2_000_000)),
    "tagged fields in every element": lambda: frame_of(
        ApiKey.FETCH, 12, FETCH_FIELDS + array_of(100, b"\2t\1" + tags(1000)) + b"\1\1\0"
    ),
    "empty elements": lambda: frame_of(ApiKey.FETCH, 12, FETCH_FIELDS + array_of(1_000_000, b"\1\1\0") + b"\1\1\0"),
    "empty names": lambda: frame_of(ApiKey.DESCRIBE_GROUPS, 5, array_of(3_000_000, b"\1") + b"\0\0"),
    "long names in bad UTF-8": lambda: frame_of(
        ApiKey.DESCRIBE_GROUPS, 5, array_of(300, unsigned_varint(10_001) + b"\xff" * 10_000) + b"\0\0"
    ),
    "64 KB of empty elements": lambda: frame_of(
        ApiKey.FETCH, 12, FETCH_FIELDS + array_of(21_000, b"\1\1\0") + b"\1\1\0"
    ),
}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with in_process_broker() as running:
        yield running


@pytest.fixture(autouse=True)
def _collector_as_when_served() -> Iterator[None]:
    with collector_as_when_served():
        yield


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """The most bytes of Python's memory since the block began, beyond those before it."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield lambda: tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def send_and_wait(bootstrap: str, frame: bytes) -> None:
    """Sends the frame on a connection of its own and takes the answer, if there is one."""
    with RawClient(bootstrap, timeout=PATIENCE_S) as client:
        try:
            client.call(frame)
        except OSError:
            pass


async def is_served(bootstrap: str) -> bool:
    def ask() -> bool:
        with RawClient(bootstrap) as client:
            return client.is_alive()

    return await asyncio.to_thread(ask)


@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_turn_of_the_loop_is_long_while_a_hostile_frame_is_served(broker: Broker, attack: str) -> None:
    frame = ATTACKS[attack]()
    turns = EachTurn()
    turns.start()
    await asyncio.to_thread(send_and_wait, broker.bootstrap, frame)
    await until(lambda: not broker.background.turns._bytes)
    turns.stop()
    assert turns.are_short()
    assert await is_served(broker.bootstrap)


@pytest.mark.parametrize("attack", [name for name in ATTACKS if not name.startswith("64 KB")])
async def test_a_hostile_frame_takes_memory_in_proportion_to_its_bytes(broker: Broker, attack: str) -> None:
    frame = ATTACKS[attack]()
    await asyncio.to_thread(send_and_wait, broker.bootstrap, frame[:10] + b"\0")  # compiles readers
    with peak_memory() as grown:
        await asyncio.to_thread(send_and_wait, broker.bootstrap, frame)
        taken = grown()
    assert taken < MEMORY_PER_BYTE * len(frame), taken / len(frame)


def peak_of(broker: SpawnedBroker) -> int:
    """The most resident memory that its process has had, in bytes."""
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_many_empty_elements_take_memory_in_proportion_to_the_frame(tmp_path: Path) -> None:
    """The rest of the frame is large enough for their number; they are refused after all have been read."""
    count, padding = 200_000, 2_500_000
    topics = array_of(count, b"\1\1\0")
    one_tag = b"\1\x7f" + unsigned_varint(padding) + bytes(padding)
    frame = frame_of(ApiKey.FETCH, 12, FETCH_FIELDS + topics + b"\1\1" + one_tag)
    with spawned_broker(tmp_path) as broker:
        with RawClient(broker.bootstrap, timeout=PATIENCE_S) as client:
            assert client.is_alive()
            before = peak_of(broker)
            answer = client.call(frame)
            assert len(answer) > 3 * count
        assert peak_of(broker) - before < (MEMORY_PER_BYTE + 1) * len(frame) + len(answer)


# --- lengths and unfinished frames ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("api_key", "is_refused"), [(ApiKey.FETCH, True), (ApiKey.PRODUCE, False)])
async def test_only_a_produce_may_be_as_long_as_the_socket_allows(
    broker: Broker, api_key: int, is_refused: bool
) -> None:
    """The broker closes as soon as it knows the API."""
    too_long = broker.config.odradek_max_request_bytes + 1
    reader, writer = await asyncio.open_connection(*broker.bootstrap.split(":"))
    with structlog.testing.capture_logs() as logs:
        writer.write(too_long.to_bytes(4, "big"))
        await until(lambda: broker.socket_server.counters.bytes_in == 4)
        assert len(broker.socket_server.connections) == 1
        writer.write(api_key.to_bytes(2, "big"))
        await until(lambda: broker.socket_server.counters.bytes_in == 6)
        await until(lambda: len(broker.socket_server.connections) == (not is_refused))
    refused = [(entry["event"], entry["api_key"], entry["length"]) for entry in logs if "api_key" in entry]
    assert refused == ([("request too long for its API", api_key, too_long)] if is_refused else [])
    writer.close()
    del reader


def produce_frame(value_bytes: int, partition: int = 0) -> bytes:
    batch = build_batch([Record(offset=0, timestamp=1, key=None, value=bytes(value_bytes), headers=[])])
    return request_payload(requests.produce("felt", batch, partition), 9)


async def test_unfinished_frames_share_one_bound_and_other_clients_continue() -> None:
    limit, clients = 8 << 20, 14
    unfinished = (4 << 20).to_bytes(4, "big") + bytes(3 << 20)
    settings = {"socket.request.max.bytes": 4 << 20, "queued.max.request.bytes": limit}
    done = threading.Event()
    async with in_process_broker(settings) as broker:
        await broker.controller.topics.create([NewTopic("felt", 1, 1)], timeout_ms=5000)
        frame = produce_frame(900_000)
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(clients) as attackers, peak_memory() as grown:
            try:
                holding = [
                    loop.run_in_executor(attackers, send_and_hold, broker.bootstrap, unfinished, done)
                    for _ in range(clients)
                ]
                await until(lambda: broker.socket_server.counters.bytes_in > limit)
                answer = await asyncio.to_thread(answer_to, broker.bootstrap, frame)
                await until(lambda: any(each.done() for each in holding))
            finally:
                done.set()
            await asyncio.gather(*holding)
            assert grown() < 3 * limit
    produced = decode(ProduceResponse, 9, answer, 5).responses[0].partition_responses[0]
    assert produced.error_code == ErrorCode.NONE


def send_and_hold(bootstrap: str, data: bytes, done: threading.Event) -> None:
    """Sends the data and keeps the connection until `done`, or until the broker ends it."""
    with RawClient(bootstrap, timeout=0.2) as client:
        left = memoryview(data)
        while not done.is_set():
            try:
                if left:
                    left = left[client.socket.send(left) :]
                elif not client.socket.recv(1):
                    return
            except TimeoutError:
                continue
            except OSError:
                return


def answer_to(bootstrap: str, frame: bytes) -> bytes:
    """Retries if its connection is closed, as producers do."""
    while True:
        try:
            with RawClient(bootstrap, timeout=PATIENCE_S) as client:
                return client.call(frame)
        except ConnectionError:
            continue


# --- descriptors ------------------------------------------------------------------------------------------------------


PARTITIONS = 12


def test_idle_connections_do_not_use_up_the_file_descriptors_of_the_logs(tmp_path: Path) -> None:
    settings = {"num.partitions": str(PARTITIONS)}
    with spawned_broker(tmp_path / "data", settings, open_files=160) as broker, RawClient(broker.bootstrap) as first:
        topics = [MetadataRequest.MetadataRequestTopic(name="felt")]
        first.call(request_payload(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 9))
        crowd = [RawClient(broker.bootstrap) for _ in range(300)]

        def one_is_too_many() -> bool:  # of many that come at once most are closed before they have a place
            crowd.append(RawClient(broker.bootstrap))
            return "RLIMIT_NOFILE" in broker.log_text()

        try:
            block_until(one_is_too_many)
            for partition in range(PARTITIONS):
                answer = first.call(produce_frame(100, partition))
                produced = decode(ProduceResponse, 9, answer, 5).responses[0].partition_responses[0]
                assert (produced.index, produced.error_code) == (partition, ErrorCode.NONE)
        finally:
            for client in crowd:
                client.socket.close()
