"""Clients of the metrics port that send nothing, read nothing, or come from another site's page."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from odradek.broker.http import server
from odradek.broker.http.server import MAX_CONNECTIONS
from odradek.testing import in_process_broker
from tests.broker.metrics.test_metrics import ask, broker_with_metrics

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def connections(port: int, count: int, saying: bytes = b"") -> AsyncIterator[list[Connection]]:
    """`count` accepted connections, oldest first."""
    opened = []
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            opened.append((reader, writer))
            writer.write(saying)
            await asyncio.sleep(0)
        yield opened
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def ends(connection: Connection) -> None:
    """Returns when the server has ended the connection, without an answer."""
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(connection[0].read(), 20) == b""


async def test_silent_connections_do_not_block_other_clients() -> None:
    async with broker_with_metrics() as (_, port), connections(port, MAX_CONNECTIONS + 10) as silent:
        assert (await ask(port, "/health"))[0] == 200
        for each in silent[:11]:
            await ends(each)
        assert not silent[11][0].at_eof()
        assert (await ask(port, "/metrics"))[0] == 200


async def test_incomplete_requests_do_not_block_other_clients() -> None:
    async with (
        broker_with_metrics() as (_, port),
        connections(port, MAX_CONNECTIONS + 1, b"GET /health HTTP/1.1\r\nX: "),
    ):
        assert (await ask(port, "/health"))[0] == 200


async def test_a_connection_without_a_request_is_closed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.REQUEST_TIMEOUT_S <= 5
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 0.05)
    async with broker_with_metrics() as (_, port), connections(port, 1, b"GET /health HT") as (connection,):
        await ends(connection)


async def health_for(port: int, *hosts: str) -> int:
    head = "GET /health HTTP/1.1\r\n" + "".join(f"{host}\r\n" for host in hosts) + "\r\n"
    return (await ask(port, raw=head.encode()))[0]


@pytest.mark.parametrize(
    "host",
    [
        "Host: evil.example",
        "host:evil.example:9404",
        "Host: EVIL.EXAMPLE.",
        "Host: 127.0.0.1.evil.example",
        "Host: localhost.evil.example",
        "Host: evil.example\r\nHost: localhost",
        "Host: [evil.example]",
    ],
)
async def test_a_web_page_of_another_site_cannot_read_the_metrics(host: str) -> None:
    async with broker_with_metrics() as (_, port):
        status, _, body = await ask(port, raw=f"GET /metrics HTTP/1.1\r\n{host}\r\n\r\n".encode())
    assert status == 421
    assert b"kafka_" not in body
    assert b"odradek.metrics.allowed.hosts" in body


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9404", "127.0.0.1:9404", "10.1.2.3", "[::1]:9404", "odradek:9404", "localhost."]
)
async def test_ip_addresses_and_local_host_names_are_accepted(host: str) -> None:
    async with broker_with_metrics() as (_, port):
        assert await health_for(port, f"Host: {host}") == 200
        assert await health_for(port) == 200


@pytest.mark.parametrize("allowed", ["other.example, Broker.Example", "*"])
async def test_other_host_names_can_be_allowed(allowed: str) -> None:
    settings = {"odradek.metrics.port": "0", "odradek.metrics.allowed.hosts": allowed}
    async with in_process_broker(settings) as broker:
        assert broker.metrics_server is not None
        assert await health_for(broker.metrics_server.port, "Host: broker.example:1") == 200
        assert await health_for(broker.metrics_server.port, "Host: evil.example") == (200 if allowed == "*" else 421)
