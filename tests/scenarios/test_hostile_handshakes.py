"""Clients that begin TLS handshakes and do not end them, or ask for another one: others are served meanwhile."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from odradek.testing import BrokerThread
from tests.patience import PATIENCE_S, block_until
from tests.scenarios.turns_of_a_loop import longest_turn
from tests.spawned_broker import free_port
from tests.tls_files import TlsFiles
from tests.wire.blocking_client import RawClient
from tests.wire.frames import API_VERSIONS_V0

pytestmark = pytest.mark.soak("stalled handshakes", minutes=1)
STALLED, COMPLETE, AT_ONCE = 1000, 200, 20


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


@pytest.fixture
def ssl_port() -> int:
    return free_port()


@pytest.fixture
def broker(files: TlsFiles, ssl_port: int) -> Iterator[BrokerThread]:
    """Its first listener is a plain one."""
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:{ssl_port}",
        "odradek.max.handshakes.per.ip": str(2 * STALLED),
        **files.stores(),
    }
    with BrokerThread(settings) as broker:
        yield broker


def hello(files: TlsFiles) -> bytes:
    """What a client sends first."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=files.trusted)
    session = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


def test_a_thousand_stalled_handshakes_stop_nobody(broker: BrokerThread, files: TlsFiles, ssl_port: int) -> None:
    """They send nothing, half of their first message, or all of it; others complete theirs meanwhile."""
    first = hello(files)
    context = ssl.create_default_context(cafile=files.trusted)

    def complete(_: int) -> str | None:
        with (
            socket.create_connection(("127.0.0.1", ssl_port), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            return secured.version()

    handshakes = broker.broker.socket_server.handshakes
    assert handshakes is not None
    with contextlib.ExitStack() as ends, longest_turn(broker) as turn:
        for number in range(STALLED):
            stalled = ends.enter_context(socket.create_connection(("127.0.0.1", ssl_port), timeout=PATIENCE_S))
            stalled.sendall((b"", first[: len(first) // 2], first)[number % 3])
        with ThreadPoolExecutor(AT_ONCE) as clients:
            versions = clients.map(complete, range(COMPLETE))
            with RawClient(broker.bootstrap, timeout=PATIENCE_S) as other:
                for _ in range(100):
                    assert other.call(API_VERSIONS_V0)
            assert set(versions) == {"TLSv1.3"}
        block_until(lambda: len(handshakes) <= STALLED)  # the server sees the end of the others' later than they do
    block_until(lambda: not broker.broker.socket_server.connections)
    assert not len(handshakes)
    assert turn.are_short()


@pytest.mark.usefixtures("openssl")
def test_renegotiation_is_refused(broker: BrokerThread, files: TlsFiles, ssl_port: int, tmp_path: Path) -> None:
    """`R` on a line of its own makes openssl's client ask for another handshake; TLS 1.3 has none."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{ssl_port}", "-tls1_2", "-CAfile", files.trusted]
    shown = tmp_path / "shown"
    with (
        shown.open("w") as output,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, text=True) as client,
    ):
        try:
            block_until(lambda: broker.broker.authentications["SSL"].successful == 1)
            assert client.stdin is not None
            client.stdin.write("R\n")
            client.stdin.flush()
            assert client.wait(60) == 1, "it ends because of the refusal"
        finally:
            client.kill()
    assert "RENEGOTIATING" in shown.read_text()
    assert "no renegotiation" in shown.read_text()
    assert broker.broker.authentications["SSL"].successful == 1
