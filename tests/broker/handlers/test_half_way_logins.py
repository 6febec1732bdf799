"""Clients that never finish a login, or fail one: they keep little of the broker, and others are served meanwhile."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odradek.broker.security.sasl.scram import LONGEST_MESSAGE
from odradek.broker.server import Broker
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from odradek.protocol.records import Record, build_batch
from tests.broker.handlers.sasl_broker import ALICE, sasl_broker, stranger_of
from tests.broker.handlers.test_authenticating import is_let_in
from tests.patience import until
from tests.wire import requests
from tests.wire.frames import request_bytes
from tests.wire.raw_client import RawClient, raw_client

MANY = 300
MOST_BYTES_EACH = 48 * 1024
"""Of a connection with a message of the greatest length; its own buffers are not ours."""
FIRST = b"n,,n=alice,r=" + b"x" * (LONGEST_MESSAGE - 13)


def handshake(mechanism: str) -> bytes:
    return request_bytes(SaslHandshakeRequest(mechanism=mechanism), 1)


def token(data: bytes) -> bytes:
    return request_bytes(SaslAuthenticateRequest(auth_bytes=data), 2)


@contextlib.asynccontextmanager
async def strangers(broker: Broker) -> AsyncIterator[list[RawClient]]:
    """Yields MANY clients that have connected."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(raw_client(broker.endpoints[0].port)) for _ in range(MANY)]


async def alice_is_let_in(broker: Broker) -> bool:
    async with stranger_of(broker) as client:
        await client.handshake()
        await client.token(ALICE)
        return await is_let_in(client)


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def test_logins_that_stop_half_way_keep_little_memory(tmp_path: Path) -> None:
    async with sasl_broker(scram=tmp_path) as broker, strangers(broker) as clients:
        tracemalloc.start()
        try:
            before = traced_bytes()
            for client in clients:
                client.send(handshake("SCRAM-SHA-256") + token(FIRST))
                assert [await client.frame() is not None for _ in range(2)] == [True, True]
            kept = traced_bytes() - before
        finally:
            tracemalloc.stop()
        assert LONGEST_MESSAGE * MANY < kept < MOST_BYTES_EACH * MANY
        assert await alice_is_let_in(broker)


async def test_a_login_that_is_never_finished_ends_as_an_idle_connection_does(tmp_path: Path) -> None:
    settings = {"connections.max.idle.ms": "300"}
    async with sasl_broker(settings, scram=tmp_path) as broker, stranger_of(broker) as client:
        await client.handshake("SCRAM-SHA-256")
        await client.token(b"n,,n=alice,r=nonce")
        assert await client.frame() is None


async def test_failed_logins_that_wait_for_their_answer_keep_nothing_and_hold_nobody_up() -> None:
    settings = {"connection.failed.authentication.delay.ms": "60000"}
    async with sasl_broker(settings) as broker, strangers(broker) as clients:
        tracemalloc.start()
        try:
            before = traced_bytes()
            for client in clients:
                client.send(handshake("PLAIN") + token(b"\0alice\0" + b"x" * 60_000) + bytes(60_000))
                assert await client.frame() is not None
            await until(lambda: all(each._blocked for each in broker.socket_server.connections))
            kept = traced_bytes() - before
        finally:
            tracemalloc.stop()
        assert kept < 8192 * MANY
        assert await alice_is_let_in(broker)
    assert not broker.socket_server.connections


async def test_a_client_that_goes_away_before_its_answer_leaves_nothing() -> None:
    settings = {"connection.failed.authentication.delay.ms": "60000"}
    async with sasl_broker(settings) as broker:
        async with stranger_of(broker) as client:
            client.send(handshake("PLAIN") + token(b"\0alice\0wrong"))
            assert await client.frame() is not None
        await until(lambda: not broker.socket_server.connections)


@pytest.mark.parametrize(("password", "offset"), [(b"alice-secret", 1), (b"wrong", 0)])
async def test_records_behind_a_token_are_appended_if_the_token_is_right(password: bytes, offset: int) -> None:
    batch = build_batch([Record(0, 1000, None, b"x")])
    request = requests.produce("t", bytes(batch), acks=1)
    async with sasl_broker() as broker:
        async with stranger_of(broker) as client:
            await client.handshake()
            await client.token(ALICE)
            await client.call(requests.create_topics("t"), 7)
        async with stranger_of(broker) as client:
            client.send(handshake("PLAIN") + token(b"\0alice\0" + password) + request_bytes(request, 9))
            client.writer.write_eof()
            while await client.frame() is not None:
                pass
        (partition,) = broker.replica_manager.partitions.of_topic("t")
        assert partition.log is not None
        assert partition.log.state.log_end_offset == offset
