"""A blocking client on the event loop of its own broker is named, in the log and in the failure. Nothing else is."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import structlog

from odradek.testing import in_process_broker, in_process_cluster, still_loops
from tests.patience import PATIENCE_S, block_until, until
from tests.wire.records import connect

EVENT = "event loop stands still while client connects"
ANOTHER_PROCESS = """
import socket, sys
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
client.recv(1)
"""
FORKED = """
import os, sys
from odradek.broker.logging.quiet_logs import QUIET_LOGS
from odradek.testing import BrokerThread
from odradek.testing.still_loops import STILL_LOOPS
with BrokerThread():
    with STILL_LOOPS._lock, QUIET_LOGS._lock:  # as another thread may hold them
        child = os.fork()
        if not child:
            with BrokerThread():
                assert STILL_LOOPS.has_thread
            os._exit(0)
    _, status = os.waitpid(child, 0)
sys.exit(status)
"""
LOOKS = 3


@pytest.fixture(autouse=True)
def impatient_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(still_loops, "LOOK_S", 0.02)
    monkeypatch.setattr(still_loops, "STILL_S", 0.1)
    monkeypatch.setattr(still_loops, "LINGER_S", 0.02)


@pytest.fixture
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    with structlog.testing.capture_logs() as events:
        yield events


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each look at the sockets, which happens while a loop stands still."""
    found: list[int] = []
    all_of_kernel = still_loops._sockets

    def counted() -> list[still_loops.Socket]:
        found.append(1)
        return all_of_kernel()

    monkeypatch.setattr(still_loops, "_sockets", counted)
    return found


def stands_still_while_another_process_connects(port: int, looks: list[int]) -> None:
    with subprocess.Popen([sys.executable, "-c", ANOTHER_PROCESS, str(port)], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        client.stdout.readline()
        stands_still(looks)
        client.kill()


def stands_still(looks: list[int]) -> None:
    """For as long as the watching thread takes to look several times."""
    before = len(looks)
    block_until(lambda: len(looks) >= before + LOOKS)


def port_of(bootstrap: str) -> int:
    return int(bootstrap.split(",")[0].split(":")[1])


def notices(events: list[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [each for each in events if each["event"] == EVENT]


def here(marker: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {marker}")]
    return f"{__file__}:{number}"


@pytest.mark.parametrize("opened", [in_process_broker, in_process_cluster])
async def test_a_client_that_blocks_the_loop_is_named_in_the_log_and_in_the_failure(
    opened: Any, logged: list[MutableMapping[str, Any]]
) -> None:
    async def gives_up() -> None:
        async with opened() as running:
            with socket.create_connection(("127.0.0.1", port_of(running.bootstrap))):
                block_until(lambda: notices(logged))  # the client that blocks
                raise ConnectionError("unable to bootstrap")

    with pytest.raises(ConnectionError, match="unable to bootstrap") as failure:
        await gives_up()
    (notice,) = notices(logged)
    assert notice["at"] == here("the client that blocks")
    assert "use BrokerThread, or call it in a thread (asyncio.to_thread)" in notice["advice"]
    (note,) = failure.value.__notes__
    assert note.startswith("the event loop of the broker stood still for more than 0.")
    assert here("the client that blocks") in note
    assert note.endswith(notice["advice"])


async def test_a_client_of_librdkafka_is_found_though_a_thread_of_its_own_connects(
    logged: list[MutableMapping[str, Any]],
) -> None:
    async with in_process_broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        producer.produce("orders", b"an order")
        block_until(lambda: producer.poll(0) or notices(logged))
        assert await asyncio.to_thread(producer.flush, 60) == 0
    assert len(notices(logged)) == 1


async def test_a_loop_that_is_slow_while_a_client_of_another_process_connects_is_no_news(
    logged: list[MutableMapping[str, Any]], looks: list[int]
) -> None:
    async def fails() -> None:
        async with in_process_broker() as broker:
            stands_still_while_another_process_connects(port_of(broker.bootstrap), looks)
            raise ConnectionError

    with pytest.raises(ConnectionError) as failure:
        await fails()
    assert not notices(logged)
    assert not hasattr(failure.value, "__notes__")


async def test_a_loop_that_is_slow_without_a_client_is_no_news(
    logged: list[MutableMapping[str, Any]], looks: list[int]
) -> None:
    async with in_process_broker() as broker, await connect(broker.bootstrap):
        stands_still(looks)
    assert not notices(logged)


async def test_the_thread_that_watches_ends_after_the_last_broker_and_begins_again() -> None:
    for _ in range(2):
        async with in_process_broker(), in_process_broker():
            assert still_loops.STILL_LOOPS.has_thread
        await until(lambda: not still_loops.STILL_LOOPS.has_thread)


def test_a_forked_process_watches_its_own_loops_whatever_its_parent_held() -> None:
    subprocess.run([sys.executable, "-c", FORKED], timeout=PATIENCE_S, check=True)
