"""The store for brokers that are processes: what becomes of a session whose process is killed, stopped or cut off."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from odradek.broker.metadata_store.interface import Change, SessionState, WatchEvent
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from tests.cluster.socket_store import SocketStore
from tests.cluster.store_server import serving
from tests.patience import until

TIMEOUT_MS = 1000
CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST

PROCESS = """
import asyncio, sys
from tests.cluster.socket_store import SocketStore

async def main():
    store = SocketStore(sys.argv[1], int(sys.argv[2]))
    store.add_session_listener(lambda state: print(state.value, flush=True))
    await store.open()
    await store.create("/live", ephemeral=True)
    print("created", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with serving(SharedStore(session_timeout_ms=TIMEOUT_MS)) as address:
        yield address


@pytest.fixture
async def store(address: str) -> AsyncIterator[SocketStore]:
    store = SocketStore(address, TIMEOUT_MS)
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_the_session_of_a_process_that_is_killed_or_stopped_ends_at_its_time_out(
    address: str, store: SocketStore, number: signal.Signals
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESS, address, str(TIMEOUT_MS), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert [await process.stdout.readline() for _ in range(2)] == [b"connected\n", b"created\n"]
    ended = asyncio.Event()
    entry = await store.get("/live", lambda _: ended.set())
    stopped_at = asyncio.get_running_loop().time()
    process.send_signal(number)
    await ended.wait()
    waited_ms = (asyncio.get_running_loop().time() - stopped_at) * 1000
    assert TIMEOUT_MS * 0.7 < waited_ms < TIMEOUT_MS * 3
    assert entry.ephemeral
    assert await store.exists("/live") is None
    if number == signal.SIGSTOP:
        process.send_signal(signal.SIGCONT)
        states = [await process.stdout.readline() for _ in range(3)]
        assert states == [b"suspended\n", b"lost\n", b"connected\n"]
        process.kill()
    await process.wait()


async def test_a_session_that_is_connected_again_keeps_its_watches_and_its_entries(
    address: str, store: SocketStore
) -> None:
    other, states, seen = SocketStore(address, TIMEOUT_MS), list[SessionState](), list[WatchEvent]()
    await other.open()
    other.add_session_listener(states.append)
    await other.create("/live", ephemeral=True)
    await other.exists("/a", seen.append)
    session = other.session_id
    other.cut()
    await store.create("/a")
    await until(lambda: seen)
    assert (states, seen) == ([SUSPENDED, CONNECTED], [WatchEvent(Change.CREATED, "/a")])
    assert other.session_id == session
    await asyncio.sleep(1.5 * TIMEOUT_MS / 1000)
    assert await store.exists("/live") is not None
    await other.close()
    assert await store.exists("/live") is None
