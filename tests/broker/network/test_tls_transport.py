"""TLS between sockets and connections, on real sockets (echo_server.py)."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import structlog.testing

from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.handshakes import LONGEST_MS
from odradek.broker.network.tls_transport import RECORD_BYTES
from odradek.timer import ManualClock
from tests.broker.network.echo_server import (
    BIG,
    ECHO,
    LENGTH,
    PARK,
    PIECES,
    Bench,
    BothSides,
    Client,
    request,
    running,
)
from tests.broker.network.key_updates import KeyUpdates, log_secrets
from tests.broker.network.tls_sides import ALERT, APPLICATION_DATA, HOST, RecordClient, authority, both_sides
from tests.table_settings import of_table
from tests.zookeeper.certificates import Authority

RECORD_OVERHEAD = 64
ENDS = (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)


@asynccontextmanager
async def serving(tls: BothSides, limits: ConnectionLimits | None = None) -> AsyncIterator[Bench]:
    async with running(limits or of_table(ConnectionLimits), tls) as bench:
        yield bench


async def record_client(bench: Bench) -> RecordClient:
    assert bench.tls is not None
    return await RecordClient.connect(bench.endpoint.port, bench.tls)


async def plain_client(bench: Bench) -> Client:
    client = Client(*await asyncio.open_connection(HOST, bench.endpoint.port))
    bench.clients.append(client)
    return client


async def refused(bench: Bench) -> str:
    """Connects a client that the server must refuse. Returns why, as the client sees it."""

    async def ask() -> None:
        client = await bench.connect()
        client.send(request(ECHO, 1))
        await client.answer()

    with pytest.raises(ENDS) as caught:
        await ask()
    return str(caught.value)


both_versions = pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])


# --- the handshake --------------------------------------------------------------------------------------------------


@both_versions
async def test_a_handshake_and_requests_may_arrive_byte_by_byte(version: str) -> None:
    async with serving(both_sides(versions=(version,))) as bench:
        client = await record_client(bench)
        await client.shake_hands(piece_bytes=1)
        assert client.session.version() == version
        await client.send(request(ECHO, 1, b"slow"), piece_bytes=1)
        assert await client.read(12) == struct.pack(">ii", 8, 1) + b"slow"
        client.close()


async def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered() -> None:
    async with serving(both_sides(versions=("TLSv1.3",))) as bench:
        client = await record_client(bench)
        while True:
            try:
                client.session.do_handshake()
                break
            except ssl.SSLWantReadError:
                await client.send_records()
                await client.receive_record()
        client.session.write(request(ECHO, 1, b"early"))
        await client.send_records()
        assert (await client.read(13))[8:] == b"early"
        client.close()


@both_versions
async def test_the_principal_is_that_of_the_clients_certificate(version: str) -> None:
    for client_auth in ("requested", "required"):
        tls = both_sides(client_auth, authority().sign("alice"), versions=(version,))
        async with serving(tls) as bench:
            client = await bench.connect()
            client.send(request(ECHO, 1))
            await client.answer()
            assert [each.info.principal for each in bench.server.connections] == ["User:CN=alice"]


async def test_mapping_rules_give_the_principal_its_name() -> None:
    tls = both_sides("required", authority().sign("Alice"), rules="RULE:^CN=(.*)$/$1/L")
    async with serving(tls) as bench:
        client = await bench.connect()
        client.send(request(ECHO, 1))
        await client.answer()
        assert [each.info.principal for each in bench.server.connections] == ["User:alice"]


async def test_a_client_whose_name_no_rule_fits_is_refused() -> None:
    tls = both_sides("required", authority().sign("alice"), rules="RULE:^CN=(bob)$/$1/")
    async with serving(tls) as bench:
        with structlog.testing.capture_logs() as logs:
            await refused(bench)
        assert [entry["error"] for entry in logs] == ["no rule of ssl.principal.mapping.rules fits CN=alice"]
        assert not bench.echo.handled


@pytest.mark.parametrize("client_auth", ["none", "requested"])
async def test_a_client_without_a_certificate_is_anonymous(client_auth: str) -> None:
    async with serving(both_sides(client_auth)) as bench:
        client = await bench.connect()
        client.send(request(ECHO, 1))
        await client.answer()
        assert [each.info.principal for each in bench.server.connections] == ["User:ANONYMOUS"]


async def test_a_resumed_session_has_the_principal_of_its_certificate() -> None:
    tls = both_sides("required", authority().sign("alice"), versions=("TLSv1.3",))
    async with serving(tls) as bench:
        first = await record_client(bench)
        await first.shake_hands()
        await first.send(request(ECHO, 1))
        await first.read(8)
        session = first.session.session
        first.close()
        await bench.until(lambda: not bench.server.connections)
        second = await record_client(bench)
        second.session.session = session
        await second.shake_hands()
        await second.send(request(ECHO, 2))
        await second.read(8)
        assert second.session.session_reused
        assert [each.info.principal for each in bench.server.connections] == ["User:CN=alice"]
        second.close()


@both_versions
async def test_a_session_of_another_listener_does_not_replace_a_certificate(version: str) -> None:
    lenient = both_sides(versions=(version,))
    strict = lenient._replace(listener=both_sides("required", versions=(version,)).listener)
    async with serving(lenient) as bench:
        client = await record_client(bench)
        await client.shake_hands()
        await client.send(request(ECHO, 1))
        await client.read(8)
        session = client.session.session
        assert session is not None
        client.close()
        again = await record_client(bench)
        again.session.session = session
        await again.shake_hands()
        assert again.session.session_reused
        again.close()
    async with serving(strict) as bench:
        client = await record_client(bench)
        client.session.session = session

        async def ask() -> None:
            await client.shake_hands()
            await client.send(request(ECHO, 1))
            await client.read(8)

        with pytest.raises(ENDS):
            await ask()
        assert not client.session.session_reused
        assert not bench.echo.handled
        client.close()


@both_versions
@pytest.mark.parametrize(
    ("key", "seen_by_client", "logged"),
    [
        (None, "certificate required|handshake failure", "peer did not return a certificate"),
        ("expired", "certificate expired", "the certificate is not accepted: certificate has expired"),
        (
            "other authority",
            "unknown ca",
            "the certificate is not accepted: self-signed certificate in certificate chain",
        ),
    ],
)
async def test_a_client_without_a_valid_certificate_sees_the_alert(
    version: str, key: str | None, seen_by_client: str, logged: str
) -> None:
    keys = {
        None: None,
        "expired": authority().sign("alice", expired=True),
        "other authority": Authority("Other").sign("alice"),
    }
    async with serving(both_sides("required", keys[key], versions=(version,))) as bench:
        with structlog.testing.capture_logs() as logs:
            seen = (await refused(bench)).lower().replace("_", " ")
            await bench.until(lambda: not bench.server.connections)
        assert any(each in seen for each in seen_by_client.split("|")), seen
        assert [(entry["event"], entry["error"]) for entry in logs] == [("TLS handshake failed", logged)]
        assert not bench.echo.handled
        assert bench.server.handshakes is not None
        assert bench.server.handshakes.failed == 1


async def test_a_client_that_does_not_trust_the_server_is_logged() -> None:
    tls = both_sides()
    async with serving(tls._replace(client=ssl.create_default_context())) as bench:
        with structlog.testing.capture_logs() as logs:
            client = await record_client(bench)
            with pytest.raises(ssl.SSLCertVerificationError):
                await client.shake_hands()
            await client.send_records()
            client.close()
            await bench.until(lambda: not bench.server.connections)
        assert [(entry["event"], entry["error"]) for entry in logs] == [
            ("TLS handshake failed", "tlsv1 alert unknown ca")
        ]


@pytest.mark.parametrize("end", [asyncio.StreamWriter.close, lambda writer: writer.transport.abort()])
async def test_a_client_that_gives_up_its_handshake_is_logged(end: Callable[[asyncio.StreamWriter], object]) -> None:
    async with serving(both_sides()) as bench:
        with structlog.testing.capture_logs() as logs:
            client = await record_client(bench)
            with pytest.raises(ssl.SSLWantReadError):
                client.session.do_handshake()
            await client.send_records()
            await client.receive_record()
            end(client.writer)
            await bench.until(lambda: not bench.server.connections)
        assert [(entry["event"], entry["error"]) for entry in logs] == [
            ("TLS handshake failed", "the client has closed the connection")
        ]


async def test_a_client_that_disconnects_in_the_handshake_leaves_nothing() -> None:
    async with serving(both_sides()) as bench:
        assert bench.server.handshakes is not None
        for sent in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"):
            client = await plain_client(bench)
            client.send(sent)
            await bench.until(lambda: len(bench.server.connections) == 1)
            await client.close()
            await bench.until(lambda: not bench.server.connections)
            assert not len(bench.server.handshakes)


@pytest.mark.parametrize(
    "sent", [request(ECHO, 1), b"GET / HTTP/1.1\r\n\r\n", bytes(100)], ids=["request", "http", "zeros"]
)
async def test_a_plain_client_of_a_listener_with_tls_is_named_in_the_log(sent: bytes) -> None:
    async with serving(both_sides()) as bench:
        client = await plain_client(bench)
        with structlog.testing.capture_logs() as logs:
            client.send(sent)
            await client.reader.read(-1)
            await client.close()
            await bench.until(lambda: not bench.server.connections)
        assert [entry["event"] for entry in logs] == ["client does not speak TLS, which this listener needs"]


async def test_a_tls_client_of_a_plain_listener_is_named_in_the_log(bench: Bench) -> None:
    with structlog.testing.capture_logs() as logs:
        with pytest.raises(ENDS):
            await asyncio.open_connection(HOST, bench.endpoint.port, ssl=both_sides().client)
        await bench.until(lambda: not bench.server.connections)
    assert [entry["event"] for entry in logs] == ["client speaks TLS, which this listener does not"]


async def test_random_handshakes_end_their_connections() -> None:
    random = Random(1)
    async with serving(both_sides()) as bench:
        hello = await record_client(bench)
        with pytest.raises(ssl.SSLWantReadError):
            hello.session.do_handshake()
        whole = hello.outgoing.read()
        hello.close()
        with structlog.testing.capture_logs():
            for _ in range(300):
                damaged = bytearray(whole)
                for _ in range(random.randrange(1, 4)):
                    damaged[random.randrange(len(damaged))] = random.randrange(256)
                client = await plain_client(bench)
                client.send(bytes(damaged[: random.randrange(1, len(damaged))]) + random.randbytes(50))
                await client.close()
            await bench.until(lambda: not bench.server.connections)
        good = await bench.connect()
        good.send(request(ECHO, 1, b"still here"))
        assert await good.answer() == (1, b"still here")


# --- limits of handshakes -------------------------------------------------------------------------------------------


async def test_too_many_handshakes_of_one_address_are_refused() -> None:
    async with serving(both_sides(), of_table(ConnectionLimits, max_handshakes_per_ip=3)) as bench:
        for count in range(3):
            await plain_client(bench)
            await bench.until(lambda count=count: len(bench.server.connections) == count + 1)  # type: ignore[misc]
        with structlog.testing.capture_logs() as logs:
            assert await (await plain_client(bench)).is_closed()
        assert [entry["event"] for entry in logs] == ["too many TLS handshakes with one address"]
        assert logs[0]["limit"] == "odradek.max.handshakes.per.ip"
        await bench.clients[0].close()
        await bench.until(lambda: len(bench.server.connections) == 2)
        client = await bench.connect()
        client.send(request(ECHO, 1))
        assert await client.answer() == (1, b"")


async def test_a_thousand_stalled_handshakes_end_and_others_are_answered_meanwhile() -> None:
    async with serving(both_sides(), of_table(ConnectionLimits, max_handshakes_per_ip=2000)) as bench:
        handshakes = bench.server.handshakes
        assert handshakes is not None
        clock = handshakes._clock = ManualClock()
        stalled = [await plain_client(bench) for _ in range(1000)]
        for number, client in enumerate(stalled):
            client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[: number % 12])
        await bench.until(lambda: len(handshakes) == 1000)
        for number in range(3):
            other = await bench.connect()
            other.send(request(ECHO, number))
            assert await other.answer() == (number, b"")
        clock.advance(LONGEST_MS - 1)
        bench.server.sweep()
        assert len(handshakes) == 1000
        clock.advance(1)
        with structlog.testing.capture_logs() as logs:
            bench.server.sweep()
            await bench.until(lambda: len(bench.server.connections) == 3)
        assert {entry["event"] for entry in logs} == {"TLS handshake takes too long"}
        assert not len(handshakes)
        other.send(request(ECHO, 4))
        assert await other.answer() == (4, b"")


# --- records --------------------------------------------------------------------------------------------------------


async def test_small_parts_share_records() -> None:
    async with serving(both_sides()) as bench:
        client = await record_client(bench)
        await client.shake_hands()
        await client.send(b"".join(request(ECHO, number, b"x" * 100) for number in range(100)))
        await client.read(100 * 108)
        await client.send(request(PIECES, 1, (30_000).to_bytes(4, "big")))
        await client.read(8 + 30_000)
        lengths = [length for kind, length in client.records if kind == APPLICATION_DATA]
        assert sum(lengths) < 100 * 108 + 30_000 + len(lengths) * RECORD_OVERHEAD + 4000, "handshake and tickets"
        assert len([length for length in lengths if length > 9000]) == 3
        client.close()


async def test_a_huge_response_and_a_huge_request_arrive_whole() -> None:
    async with serving(both_sides()) as bench:
        client = await bench.connect()
        payload = Random(2).randbytes(40_000_000)
        client.send(request(ECHO, 1, payload) + request(BIG, 2, (30_000_000).to_bytes(4, "big")))
        assert await client.answer() == (1, payload)
        assert await client.answer() == (2, bytes(30_000_000))


async def test_a_client_that_does_not_read_keeps_its_response_unencrypted() -> None:
    async with serving(both_sides()) as bench:
        client = await bench.connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(request(BIG, 1, (30_000_000).to_bytes(4, "big")))
        await bench.until(lambda: bool(bench.server.not_read_by))
        await bench.settle()
        [connection] = bench.server.connections
        unread = connection.transport.get_write_buffer_size()
        assert 20_000_000 < unread < 30_000_008
        assert connection.transport._socket.get_write_buffer_size() < 1_000_000  # type: ignore[attr-defined]
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await client.answer() == (1, bytes(30_000_000))


async def test_many_clients_that_do_not_read_are_closed_before_their_responses_fill_the_memory() -> None:
    async with serving(both_sides(), of_table(ConnectionLimits, max_unread_bytes_of_all=40_000_000)) as bench:
        sloths = {}
        for _ in range(5):
            sloth = await bench.connect()
            sloths[sloth.writer.get_extra_info("sockname")[1]] = sloth
            sloth.writer.transport.pause_reading()  # type: ignore[attr-defined]
            sloth.send(request(BIG, 1, (20_000_000).to_bytes(4, "big")))
        await bench.until(lambda: len(bench.server.not_read_by) == 5)
        await bench.settle()
        with structlog.testing.capture_logs() as logs:
            await bench.sweep_until(lambda: len(bench.server.connections) <= 3)
        assert {entry["event"] for entry in logs} == {"client does not read responses"}
        left = list(bench.server.connections)
        assert 0 < sum(connection.transport.get_write_buffer_size() for connection in left) <= 40_000_000
        for connection in left:
            sloth = sloths[connection.info.client_port]
            sloth.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert await sloth.answer() == (1, bytes(20_000_000))


async def test_a_paused_connection_leaves_one_buffer_undecrypted() -> None:
    async with serving(both_sides(), of_table(ConnectionLimits, max_in_flight_requests=1)) as bench:
        client = await bench.connect()
        client.send(request(PARK, 1) + request(LENGTH, 2, bytes(5_000_000)))
        await bench.until(lambda: bool(bench.server.blocked))
        await bench.settle()
        [connection] = bench.server.connections
        transport: Any = connection.transport
        assert len(transport._undecrypted) + transport._incoming.pending <= 128 * 1024
        assert bench.server.counters.bytes_in < 1_000_000
        bench.echo.parked[0].complete(b"")
        assert [await client.answer() for _ in range(2)] == [(1, b""), (2, b"5000000")]


async def test_a_client_that_asks_for_records_and_reads_none_is_not_read(tmp_path: Path) -> None:
    tls = both_sides(versions=("TLSv1.3",))
    log_secrets(tls.client, tmp_path / "secrets")
    async with serving(tls, of_table(ConnectionLimits, send_buffer_bytes=4096)) as bench:
        client = await record_client(bench)
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await client.shake_hands()
        await client.send(request(ECHO, 1))
        await client.read(8)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        updates = KeyUpdates(tmp_path / "secrets", records_before=1)
        [connection] = bench.server.connections
        connection.transport.set_write_buffer_limits(high=4 * RECORD_BYTES, low=RECORD_BYTES)
        async with asyncio.timeout(20):
            while not bench.server.not_read_by:
                client.writer.write(updates.records(100))
                await asyncio.sleep(0)
                assert connection.transport.get_write_buffer_size() < 5 * RECORD_BYTES
        client.close()


async def test_a_damaged_record_ends_the_connection_with_an_alert() -> None:
    async with serving(both_sides()) as bench:
        client = await record_client(bench)
        await client.shake_hands()
        await client.send(request(ECHO, 1))
        await client.read(8)
        with structlog.testing.capture_logs() as logs:
            client.writer.write(b"\x17\x03\x03\x00\x40" + bytes(64))
            with pytest.raises(ssl.SSLError, match=r"(?i)bad.record.mac"):
                await client.read(1)
            client.close()
            await bench.until(lambda: not bench.server.connections)
        assert [entry["event"] for entry in logs] == ["TLS record is damaged"]
        assert bench.echo.handled == [1]


# --- the end --------------------------------------------------------------------------------------------------------


@both_versions
async def test_the_server_ends_with_close_notify_after_its_responses(version: str) -> None:
    async with serving(both_sides(versions=(version,))) as bench:
        client = await record_client(bench)
        await client.shake_hands()
        await client.send(request(BIG, 1, (300_000).to_bytes(4, "big")))
        assert len(await client.read(300_008)) == 300_008
        [connection] = bench.server.connections
        connection.end()
        while True:
            try:
                assert client.session.read(1) == b""
                break
            except ssl.SSLZeroReturnError:
                break
            except ssl.SSLWantReadError:
                await client.receive_record()
        if version == "TLSv1.2":
            assert client.records[-1][0] == ALERT
        client.close()


async def test_responses_that_wait_are_sent_before_the_end() -> None:
    async with serving(both_sides()) as bench:
        client = await record_client(bench)
        await client.shake_hands()
        await client.send(request(BIG, 1, (20_000_000).to_bytes(4, "big")))
        await bench.until(lambda: bool(bench.server.not_read_by))
        [connection] = bench.server.connections
        connection.end()
        assert len(await client.read(20_000_008)) == 20_000_008
        await bench.until(lambda: not bench.server.connections)
        client.close()


@both_versions
async def test_a_client_that_says_goodbye_is_gone(version: str) -> None:
    async with serving(both_sides(versions=(version,))) as bench:
        client = await record_client(bench)
        await client.shake_hands()
        await client.send(request(PARK, 1))
        await bench.until(lambda: bool(bench.echo.parked))
        with pytest.raises(ssl.SSLWantReadError):
            client.session.unwrap()
        await client.send_records()
        await bench.until(lambda: not bench.server.connections)
        assert bench.echo.abandoned == 1
        client.close()


async def test_a_client_that_ends_without_goodbye_in_a_request_is_gone() -> None:
    async with serving(both_sides()) as bench:
        client = await record_client(bench)
        await client.shake_hands()
        with structlog.testing.capture_logs() as logs:
            await client.send(request(ECHO, 1, b"whole") + struct.pack(">i", 5000) + b"\0\0")
            assert (await client.read(13))[8:] == b"whole"
            client.close()
            await bench.until(lambda: not bench.server.connections)
        assert logs == []
        assert bench.echo.handled == [1]


async def test_a_server_that_stops_ends_handshakes() -> None:
    async with serving(both_sides()) as bench:
        client = await plain_client(bench)
        await bench.until(lambda: len(bench.server.connections) == 1)
        await bench.server.stop(5000)
        assert await client.is_closed()
