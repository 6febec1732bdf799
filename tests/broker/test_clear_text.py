"""What a listener with TLS sends and receives, captured on the wire: nothing of it is in clear text, on any way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.network.file_reading import FileReading
from odradek.broker.network.file_sending import FileSending
from odradek.clients.admin.client_properties import security_of_properties
from odradek.clients.network_client import NetworkClient
from odradek.protocol.errors import ErrorCode
from odradek.storage.file_slice import FileSlice
from odradek.storage.files import OsFiles
from odradek.testing import in_process_broker
from tests.patience import until
from tests.spawned_broker import free_port
from tests.tls_files import TlsFiles
from tests.wire.records import produce_on, values_on
from tests.zookeeper.brokers import brokers_on_zookeeper

MARKER = b"in clear text"
SMALL, LARGE = MARKER * 100, MARKER * 50_000
"""A response with LARGE is a slice of a file: they begin at 256 KB, which is more than is kept in memory."""
WAYS = ["small ones in memory", "all on disk", "not in the page cache"]


class Wire:
    """Passes on what two sides send each other, and keeps it."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.to_port = 0
        self.port = 0

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.to_port)
        await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                self.seen += data
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def wire(port: int = 0) -> AsyncIterator[Wire]:
    """Yields a wire that listens on `port`; the caller sets where it leads."""
    found = Wire()
    async with await asyncio.start_server(found._connected, "127.0.0.1", port) as server:
        found.port = server.sockets[0].getsockname()[1]
        yield found


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def watch(kind: type[FileSending] | type[FileReading], built: list[type], monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes in `built` when one of the kind begins to send."""
    begin: Any = kind.begin

    def begin_and_note(sending: Any) -> None:
        built.append(kind)
        begin(sending)

    monkeypatch.setattr(kind, "begin", begin_and_note)


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_of_a_record_is_in_clear_text(files: TlsFiles, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain listener shows that the test can fail."""
    built: list[type] = []
    watch(FileSending, built, monkeypatch)
    watch(FileReading, built, monkeypatch)
    if way == WAYS[2]:
        monkeypatch.setattr(FileSlice, "is_cached", lambda *_: False)
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **files.stores()}
    tail_bytes = 4 << 20 if way == WAYS[0] else 0
    async with in_process_broker(settings, odradek_log_tail_bytes=tail_bytes) as broker:
        for topic in ("small", "large"):
            await broker.controller.topics.create([NewTopic(topic, 1, 1)], timeout_ms=5000)
        for endpoint, tls in ((1, security_of_properties(files.client(), OsFiles(), {}).tls), (0, None)):
            async with wire() as captured:
                captured.to_port = broker.endpoints[endpoint].port
                async with await NetworkClient.connect("127.0.0.1", captured.port, tls=tls) as client:
                    for topic, value in (("small", SMALL), ("large", LARGE)):
                        assert await produce_on(client, topic, value) == ErrorCode.NONE
                        built.clear()
                        assert (await values_on(client, topic))[0] == value
                        expected = FileSending if tls is None else FileReading
                        assert set(built) == ({expected} if value is LARGE else set())
            assert len(captured.seen) > 2 * len(LARGE)
            assert (MARKER in captured.seen) == (tls is None)


@pytest.mark.parametrize("tail_bytes", [0, 4 << 20])
@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
async def test_nothing_that_brokers_replicate_is_in_clear_text(
    files: TlsFiles, tmp_path: Path, tail_bytes: int, protocol: str
) -> None:
    """The follower reaches its leader through a wire, as the leader is registered with it."""
    settings = {**files.stores("required"), "security.inter.broker.protocol": protocol}
    if protocol == "PLAINTEXT":
        settings = {"security.inter.broker.protocol": protocol}
    settings |= {"listeners": f"{protocol}://127.0.0.1:0", "odradek.log.tail.bytes": str(tail_bytes)}
    names = {name.replace(".", "_"): text for name, text in settings.items()}
    tls = None
    if protocol == "SSL":
        tls = security_of_properties(files.client(files.authority.sign("alice")), OsFiles(), {}).tls
    async with wire(free_port()) as captured, brokers_on_zookeeper(tmp_path, 1, **names) as brokers:
        brokers.settings = {**settings, "advertised.listeners": f"{protocol}://127.0.0.1:{captured.port}"}
        leader = brokers.broker(2)
        brokers.all.append(leader)
        await leader.start()
        captured.to_port = leader.endpoints[0].port
        await until(lambda: all(len(broker.metadata.brokers) == 2 for broker in brokers.all))
        await brokers.create("t", 2, 1)
        async with await NetworkClient.connect("127.0.0.1", leader.endpoints[0].port, tls=tls) as client:
            assert await produce_on(client, "t", LARGE, acks=-1) == ErrorCode.NONE
        assert len(captured.seen) > len(LARGE)
        assert (MARKER in captured.seen) == (protocol == "PLAINTEXT")
