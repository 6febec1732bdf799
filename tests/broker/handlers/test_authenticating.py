"""Connections of a listener with SASL, byte by byte: nobody gets in who has not authenticated.

The answers to right and wrong messages: test_sasl_beside_kafka.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from odradek.broker.handlers.authenticating import Session
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_context import CloseConnection, ConnectionInfo
from odradek.broker.security.authentication_counts import AuthenticationCounts
from odradek.broker.security.sasl.authentication import Login, SaslListener
from odradek.broker.security.sasl.plain import WRONG
from odradek.broker.security.sasl.scram import MECHANISMS
from odradek.broker.server import Broker
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.configs import DescribeConfigsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.registry import codec_versions, request_class
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from odradek.testing import in_process_broker
from tests.broker.handlers.sasl_broker import ALICE, PREFIX, sasl_broker, stranger_of
from tests.broker.security.scram_client import ScramClient
from tests.wire import requests
from tests.wire.frames import framed, request_bytes
from tests.wire.raw_client import RawClient, raw_client

NEW_TOPIC = request_bytes(requests.create_topics("t"), 7)
LONGEST = 524_288


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with sasl_broker() as broker:
        yield broker


@pytest.fixture
async def stranger(broker: Broker) -> AsyncIterator[RawClient]:
    async with stranger_of(broker) as client:
        yield client


async def is_let_in(client: RawClient) -> bool:
    return await client.call(MetadataRequest(topics=[]), 12) is not None


# Logins


@pytest.mark.parametrize(("user", "mechanism"), [("alice", "SCRAM-SHA-256"), ("bob", "SCRAM-SHA-512")])
@pytest.mark.parametrize("is_framed", [True, False], ids=["framed", "raw"])
async def test_a_login_by_scram(user: str, mechanism: str, is_framed: bool, tmp_path: Path) -> None:
    async def answer_to(client: RawClient, token: bytes) -> bytes:
        if is_framed:
            answer = await client.token(token)
            assert answer.error_code == ErrorCode.NONE
            return bytes(answer.auth_bytes)
        client.send(framed(token))
        answer = await client.frame()
        assert answer is not None
        return answer

    async with sasl_broker(scram=tmp_path) as broker, stranger_of(broker) as client:
        scram = ScramClient(user, f"{user}-secret", MECHANISMS[mechanism])
        await client.handshake(mechanism, int(is_framed))
        challenge = await answer_to(client, scram.first)
        assert await answer_to(client, scram.final(challenge)) == scram.signature
        assert await is_let_in(client)
        assert [each.info.principal for each in broker.socket_server.connections] == [f"User:{user}"]


async def test_the_principal_is_known_when_the_login_is_complete(broker: Broker, stranger: RawClient) -> None:
    await stranger.handshake()
    (connection,) = broker.socket_server.connections
    assert connection.info.principal == "User:ANONYMOUS"
    await stranger.token(ALICE)
    assert connection.info.principal == "User:alice"


async def test_requests_behind_the_right_token_are_handled_after_it(stranger: RawClient) -> None:
    await stranger.handshake()
    token = request_bytes(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    stranger.send(token + request_bytes(MetadataRequest(topics=[]), 12))
    assert await stranger.frame() is not None
    assert await stranger.frame() is not None


async def test_a_login_and_a_request_may_arrive_byte_by_byte(stranger: RawClient) -> None:
    handshake = request_bytes(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    for byte in handshake + framed(ALICE) + request_bytes(MetadataRequest(topics=[]), 12):
        stranger.send(bytes([byte]))
        await asyncio.sleep(0)
    assert [await stranger.frame() is not None for _ in range(3)] == [True, True, True]


async def test_other_listeners_do_not_authenticate() -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
        "listener.name.outside.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    async with in_process_broker(settings) as broker:
        async with raw_client(broker.endpoints[0].port) as client:
            assert await is_let_in(client)
            assert (await client.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert (await client.token(b"")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        async with raw_client(broker.endpoints[1].port) as client:
            assert not await is_let_in(client)
        async with raw_client(broker.endpoints[1].port) as client:
            assert (await client.handshake("SCRAM-SHA-256")).mechanisms == ["SCRAM-SHA-256"]


# Wrong order


@pytest.mark.parametrize("phase", ["first", "after versions", "token"])
async def test_every_other_api_ends_the_connection_without_an_answer(broker: Broker, phase: str) -> None:
    expected = {
        "first": {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE},
        "after versions": {ApiKey.SASL_HANDSHAKE},
        "token": {ApiKey.SASL_AUTHENTICATE},
    }[phase]
    for row in broker.api_table.rows():
        if row.key in expected:
            continue
        async with stranger_of(broker) as client:
            if phase == "after versions":
                await client.call(ApiVersionsRequest(), 0)
            elif phase == "token":
                await client.handshake()
            version = codec_versions(row.key).lowest
            header = request_bytes(request_class(row.key)(), version)
            client.send(header)
            assert await client.frame() is None, row.key.name
    counted = {key for (key, _), counts in broker.metrics.requests.items() if counts.requests}
    assert counted <= {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}


async def test_a_request_behind_a_wrong_token_is_not_handled(broker: Broker, stranger: RawClient) -> None:
    await stranger.handshake()
    stranger.send(request_bytes(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2) + NEW_TOPIC)
    assert await stranger.frame() is not None
    assert await stranger.frame() is None
    assert not list(broker.metadata.topic_names())


@pytest.mark.parametrize("start", [b"", request_bytes(ApiVersionsRequest(), 0)])
async def test_requests_before_the_login_are_not_handled(broker: Broker, stranger: RawClient, start: bytes) -> None:
    handshake = request_bytes(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    stranger.send(start + NEW_TOPIC + handshake + request_bytes(SaslAuthenticateRequest(auth_bytes=ALICE), 2))
    if start:
        assert await stranger.frame() is not None
    assert await stranger.frame() is None
    assert not list(broker.metadata.topic_names())


# Lengths


@pytest.mark.parametrize("length", [LONGEST + 1, -1, 2**31 - 1])
@pytest.mark.parametrize("after", ["nothing", "handshake 0", "handshake 1"])
async def test_a_frame_that_is_too_long_ends_the_connection_before_it_is_read(
    stranger: RawClient, length: int, after: str
) -> None:
    if after != "nothing":
        await stranger.handshake(version=int(after[-1]))
    stranger.send(length.to_bytes(4, "big", signed=True) + bytes(8))
    assert await stranger.frame() is None


@pytest.mark.parametrize("length", range(8))
async def test_a_frame_without_a_whole_header_ends_the_connection(stranger: RawClient, length: int) -> None:
    stranger.send(framed(bytes(length)))
    assert await stranger.frame() is None


@pytest.mark.parametrize("length", [0, 1, 2, 3, 70_000, LONGEST])
async def test_a_raw_token_of_any_length_is_judged(stranger: RawClient, length: int) -> None:
    with capture_logs() as lines:
        await stranger.handshake(version=0)
        stranger.send(framed(b"x" * length))
        assert await stranger.frame() is None
    assert [line["error"] for line in lines if line["event"] == "authentication failed"] == [
        "the token is not one of PLAIN"
    ]


async def test_a_token_of_the_greatest_length_is_judged(stranger: RawClient) -> None:
    await stranger.handshake()
    empty = len(request_bytes(SaslAuthenticateRequest(auth_bytes=b""), 1)) - 4
    answer = await stranger.token(b"x" * (LONGEST - empty), 1)
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, WRONG)


async def test_a_client_that_is_let_in_has_the_limits_of_the_broker(stranger: RawClient) -> None:
    await stranger.handshake()
    await stranger.token(ALICE)
    names = [MetadataRequest.MetadataRequestTopic(name="x" * 200 + str(number)) for number in range(4000)]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    assert len(request_bytes(request, 12)) > LONGEST
    assert await stranger.call(request, 12) is not None


# Failures


async def test_a_failed_login_is_logged_without_what_the_client_sent(stranger: RawClient) -> None:
    with capture_logs() as lines:
        await stranger.handshake()
        await stranger.token(b"\0alice-typed\0my-password")
        assert await stranger.frame() is None
    (line,) = [line for line in lines if line["event"] == "authentication failed"]
    assert (line["mechanism"], line["error"]) == ("PLAIN", "no such user, or a wrong password")
    assert "typed" not in str(lines)
    assert "my-password" not in str(lines)


async def test_nothing_shows_the_passwords_of_the_settings(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with sasl_broker(scram=tmp_path) as broker, stranger_of(broker) as client:
            await client.handshake()
            await client.token(ALICE)
            resource = DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=4, resource_name=str(broker.broker_id)
            )
            client.send(request_bytes(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4))
            frame = await client.frame()
            assert frame is not None
            assert b"plain.sasl.jaas.config" in frame
            assert b"-secret" not in frame.replace(b"password.encoder", b"")
    assert "alice-secret" not in str(lines)
    assert "bob-secret" not in str(lines)


# Sessions

LIFETIME = {f"{PREFIX}plain.connections.max.reauth.ms": "3600000"}


async def test_a_session_has_a_lifetime_and_may_be_renewed(tmp_path: Path) -> None:
    async with sasl_broker(LIFETIME, tmp_path) as broker, stranger_of(broker) as client:
        await client.handshake()
        assert (await client.token(ALICE, 1)).session_lifetime_ms == 3_600_000
        assert await is_let_in(client)
        assert (await client.handshake()).error_code == ErrorCode.NONE
        assert (await client.token(ALICE, 1)).session_lifetime_ms == 3_600_000
        assert await is_let_in(client)
        assert (await client.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE  # within a second
        assert await is_let_in(client)


async def test_nothing_else_is_handled_while_a_session_is_renewed() -> None:
    async with sasl_broker(LIFETIME) as broker, stranger_of(broker) as client:
        await client.handshake()
        await client.token(ALICE)
        await client.handshake()
        client.send(NEW_TOPIC)
        assert await client.frame() is None
        assert not list(broker.metadata.topic_names())


def info() -> ConnectionInfo:
    return ConnectionInfo(Endpoint("SASL_PLAINTEXT", "SASL_PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092))


def session(handled: list[bytes], began_ms: int | None = None) -> Session:
    """A session that lasts from 1,000 to 6,000 ms."""

    def ordinary(frame: bytes, info: ConnectionInfo, now_ms: int) -> None:
        handled.append(frame)

    listener = SaslListener({}, failure_delay_ms=0, longest_message=LONGEST, counts=AuthenticationCounts())
    return Session(listener, ordinary, Login("User:alice", "PLAIN", 5000), 1000, began_ms)


METADATA = request_bytes(MetadataRequest(topics=[]), 12)[4:]
HANDSHAKE = request_bytes(SaslHandshakeRequest(mechanism="PLAIN"), 1)[4:]


def test_an_expired_session_ends_the_connection_at_the_next_request() -> None:
    handled: list[bytes] = []
    ours = session(handled)
    ours.dispatch(METADATA, info(), 6000)
    assert handled == [METADATA]
    with pytest.raises(CloseConnection, match="session expired"):
        ours.dispatch(METADATA, info(), 6001)
    assert handled == [METADATA]


@pytest.mark.parametrize(("now_ms", "renews"), [(2000, True), (1999, False), (9000, True)])
def test_a_session_is_renewed_at_most_once_a_second_and_also_when_it_has_expired(now_ms: int, renews: bool) -> None:
    connection = info()
    session([], began_ms=1000).dispatch(HANDSHAKE, connection, now_ms)
    assert (connection.authentication is not None) is renews
