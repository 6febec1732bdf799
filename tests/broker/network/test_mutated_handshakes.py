"""Mutated handshakes and records: whatever a stranger sends, nobody gets in without a certificate of the authority, and
the other connections are served.

A client shakes hands as it should, and one of its flights is damaged: the hello, its certificate and the end of the
handshake, or its first request.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.handshakes import Handshakes
from odradek.broker.network.tls_transport import TlsTransport
from tests.broker.network.echo_server import ECHO, Bench, BothSides, request, running
from tests.broker.network.tls_sides import HEADER_BYTES, RecordClient, authority, both_sides
from tests.log_levels import levels_logged
from tests.patience import until
from tests.scenarios.turns_of_a_loop import PROMISED_MS, collector_as_when_served
from tests.soak import SOAK, rounds
from tests.table_settings import of_table
from tests.zookeeper.certificates import Authority

ROUNDS = rounds(800, in_soak=200_000)
AT_ONCE = 20
WITNESS, TRUSTED, STRANGER = 1, 2, 3
"""Who sends a request, as its correlation id."""
FLIGHTS = 3


def records_of(data: bytes) -> list[bytes]:
    """Splits what a client sends into its records; the last one may be cut off."""
    found = []
    while data:
        end = HEADER_BYTES + int.from_bytes(data[3:HEADER_BYTES], "big")
        found.append(data[:end])
        data = data[end:]
    return found


def mutated(data: bytes, source: Random) -> bytes:
    """Records are left out, repeated, swapped, cut or new; or bytes change."""
    records = records_of(data)
    chosen = source.randrange(len(records))
    record = records[chosen]
    match source.randrange(8):
        case 0:
            del records[chosen]
        case 1:
            records[chosen:chosen] = [record] * source.choice([1, 2, 50])
        case 2:
            source.shuffle(records)
        case 3:
            records[chosen] = record[: source.randrange(len(record))]
        case 4:
            records.insert(chosen, record[:1] + source.randbytes(source.randrange(1, 80)))
        case 5:
            records.insert(
                chosen, bytes([source.randrange(20, 26), 3, source.randrange(5), 0, 2]) + source.randbytes(2)
            )
        case _:
            damaged = bytearray(record)
            for _ in range(source.choice([1, 1, 1, 3, 10])):
                damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
            records[chosen] = bytes(damaged)
    return b"".join(records)


async def play(bench: Bench, context: ssl.SSLContext, who: int, source: Random) -> None:
    """Connects, damages one flight, ends, and reads to the end."""
    client = await RecordClient.connect(bench.endpoint.port, context)
    try:
        for flight in range(FLIGHTS):
            if await next_flight(client, who) or flight == damaged_flight(source):
                client.writer.write(mutated(client.outgoing.read(), source))
                break
            await client.send_records()
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        pass
    with contextlib.suppress(OSError):
        client.writer.write_eof()
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(20):
            while await client.reader.read(1 << 16):
                pass
    client.close()


def damaged_flight(source: Random) -> int:
    return source.randrange(FLIGHTS)


async def next_flight(client: RecordClient, who: int) -> bool:
    """Goes on until there is something to send. Returns whether it is the last flight, with a request."""
    while not client.outgoing.pending:
        try:
            client.session.do_handshake()
        except ssl.SSLWantReadError:
            if not client.outgoing.pending:
                await client.receive_record()
        else:
            client.session.write(request(ECHO, who))
            return True
    return False


@contextlib.contextmanager
def no_error_of_the_loop() -> Iterator[None]:
    """Nothing may be raised into the event loop."""
    loop, errors = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, error: errors.append(error))
    try:
        yield
    finally:
        loop.set_exception_handler(None)
    assert errors == []


@contextlib.contextmanager
def steps_of_the_server() -> Iterator[Callable[[], float]]:
    """Measures the processor time of the server's callbacks, without those of its clients in the same loop. Yields the
    third longest, in milliseconds: what a client can cause, it can cause again, and the machine adds pauses of its own.
    """
    longest_s = [0.0] * 3

    def timed(step: Callable[..., None]) -> Callable[..., None]:
        def measured(*arguments: Any) -> None:
            began_s = time.thread_time()
            try:
                step(*arguments)
            finally:
                heapq.heappushpop(longest_s, time.thread_time() - began_s)

        return measured

    with pytest.MonkeyPatch.context() as patched, collector_as_when_served():
        patched.setattr(Handshakes, "_turn", timed(Handshakes._turn))
        patched.setattr(TlsTransport, "buffer_updated", timed(TlsTransport.buffer_updated))
        yield lambda: longest_s[0] * 1000


def clients(versions: tuple[str, ...]) -> list[tuple[int, BothSides]]:
    """Who connects, with the same listener. A stranger has no certificate, or that of another authority."""
    keys = [(TRUSTED, authority().sign("alice")), (STRANGER, None), (STRANGER, Authority("Other").sign("alice"))]
    return [(who, both_sides("required", key, versions=versions)) for who, key in keys]


@pytest.mark.soak("200,000 mutated handshakes", minutes=6)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_mutated_handshakes_let_nobody_in_and_end_nothing(version: str) -> None:
    sides = clients((version,))
    with levels_logged() as levels, no_error_of_the_loop(), steps_of_the_server() as longest_ms:
        async with running(of_table(ConnectionLimits), sides[0][1]) as bench:
            witness = await bench.connect()
            for start in range(0, ROUNDS // 2, AT_ONCE):
                numbers = range(start, start + AT_ONCE)
                plays = (
                    play(bench, sides[n % len(sides)][1].client, sides[n % len(sides)][0], Random(n)) for n in numbers
                )
                await asyncio.gather(*plays)
                witness.send(request(ECHO, WITNESS, b"still here"))
                assert await witness.answer() == (WITNESS, b"still here")
            await until(lambda: len(bench.server.connections) == 1)
            handshakes = bench.server.handshakes
            assert handshakes is not None
            assert not len(handshakes)
            assert handshakes.failed > ROUNDS // 4
            came_in = Counter(bench.echo.handled)
    assert came_in[WITNESS] == ROUNDS // 2 // AT_ONCE
    assert came_in[TRUSTED] > 0
    assert set(came_in) == {WITNESS, TRUSTED}
    assert levels == {"warning"}
    assert longest_ms() < PROMISED_MS or not SOAK
