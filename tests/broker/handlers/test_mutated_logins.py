"""Mutated logins: whatever a stranger sends, the broker goes on, and nothing behind a damaged token is handled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from odradek.broker.security.sasl.scram import MECHANISMS
from odradek.broker.server import Broker
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.handlers.sasl_broker import ALICE, sasl_broker, stranger_of
from tests.broker.handlers.test_authenticating import NEW_TOPIC, is_let_in
from tests.broker.security.scram_client import ScramClient
from tests.log_levels import levels_logged
from tests.scenarios.turns_of_a_loop import LongestTurn, collector_as_when_served
from tests.soak import rounds
from tests.wire.frames import framed, request_bytes
from tests.wire.raw_client import RawClient, raw_client

STEP = rounds(3, in_soak=1)
"""Of the bytes of a last token so many are passed over."""
ROUNDS = rounds(300, in_soak=100_000)
SCRAM_USERS = {"SCRAM-SHA-256": "alice", "SCRAM-SHA-512": "bob"}
LENGTH_OF_LAST = {"SCRAM-SHA-256": 100, "SCRAM-SHA-512": 144}
"""Of the last token; that of the nonces is fixed."""


def scram(mechanism: str) -> ScramClient:
    user = SCRAM_USERS[mechanism]
    return ScramClient(user, f"{user}-secret", MECHANISMS[mechanism])


def handshake(mechanism: str, version: int) -> bytes:
    return request_bytes(SaslHandshakeRequest(mechanism=mechanism), version)


class Login(NamedTuple):
    """The messages of a login before its first token, and that token. `version`: of SaslHandshake."""

    mechanism: str
    version: int
    start: bytes
    token: bytes

    def message(self, token: bytes) -> bytes:
        """A token as it is sent."""
        return framed(token) if self.version == 0 else request_bytes(SaslAuthenticateRequest(auth_bytes=token), 1)


LOGINS = [
    Login("PLAIN", 1, request_bytes(ApiVersionsRequest(), 0) + handshake("PLAIN", 1), ALICE),
    Login("PLAIN", 0, handshake("PLAIN", 0), ALICE),
    *(Login(name, version, handshake(name, version), scram(name).first) for name in SCRAM_USERS for version in (1, 0)),
]


def mutated(data: bytes, source: Random) -> bytes:
    """Other bytes: one or a few are changed, left out, repeated or new."""
    result = bytearray(data)
    for _ in range(source.choice([1, 1, 1, 3, 10])):
        position = source.randrange(len(result)) if result else 0
        match source.randrange(4):
            case 0 if result:
                result[position] ^= 1 << source.randrange(8)
            case 1:
                del result[position : position + source.randrange(1, 9)]
            case 2:
                result[position:position] = result[position : position + 8]
            case _:
                result[position:position] = source.randbytes(source.randrange(1, 9))
    return bytes(result)


async def play(broker: Broker, data: bytes) -> None:
    """Sends everything at once, and reads to the end."""
    async with raw_client(broker.endpoints[0].port) as client:
        client.send(data)
        await to_the_end(client)


async def to_the_end(client: RawClient) -> None:
    client.writer.write_eof()
    async with asyncio.timeout(20):
        try:
            await client.reader.read()
        except ConnectionResetError:
            pass


async def play_last(broker: Broker, login: Login, change: Callable[[bytes], bytes]) -> None:
    """Logs in by SCRAM, but changes the last token; a request comes right behind it."""
    own = scram(login.mechanism)
    async with raw_client(broker.endpoints[0].port) as client:
        client.send(login.start + login.message(own.first))
        await client.frame()
        answer = await client.frame()
        assert answer is not None
        challenge = answer if login.version == 0 else answer[answer.index(b"r=") : answer.rindex(b"i=4096") + 6]
        right = own.final(challenge)
        token = change(right)
        if token != right:
            client.send(login.message(token) + NEW_TOPIC)
        await to_the_end(client)


@contextlib.asynccontextmanager
async def attacked(directory: Path) -> AsyncIterator[Broker]:
    """A broker that nobody may enter but who logs in as usual, at the end. Meanwhile each turn of its loop is short,
    and nothing is logged but warnings.
    """
    longest = LongestTurn()
    with levels_logged() as levels, collector_as_when_served():
        async with sasl_broker(scram=directory) as broker:
            await longest.begin()
            yield broker
            await longest.ended()
            assert not list(broker.metadata.topic_names())
            async with stranger_of(broker) as client:
                await client.handshake()
                await client.token(ALICE)
                assert await is_let_in(client)
    assert levels <= {"debug", "info", "warning"}
    assert longest.are_short()


@pytest.mark.soak("200,000 mutated logins", minutes=6)
@pytest.mark.timeout(3600)
async def test_mutated_logins_let_nobody_in_and_end_nothing(tmp_path: Path) -> None:
    source = Random(7)
    async with attacked(tmp_path) as broker:
        for number in range(ROUNDS):
            login = LOGINS[number % len(LOGINS)]
            if login.mechanism in SCRAM_USERS and source.random() < 0.3:
                await play_last(broker, login, lambda token: mutated(token, source))
                continue
            token = mutated(login.token, source)
            if token != login.token:
                await play(broker, login.start + login.message(token) + NEW_TOPIC)
        for number in range(ROUNDS):
            login = LOGINS[number % len(LOGINS)]
            await play(broker, mutated(login.start + login.message(login.token), source))


@pytest.mark.parametrize("login", LOGINS, ids=lambda login: f"{login.mechanism}-{login.version}")
async def test_one_wrong_byte_in_a_token_lets_nobody_in(login: Login, tmp_path: Path) -> None:
    def wrong(token: bytes, position: int) -> bytes:
        return token[:position] + bytes([token[position] ^ 1]) + token[position + 1 :]

    async with attacked(tmp_path) as broker:
        for position in range(len(login.token)):
            await play(broker, login.start + login.message(wrong(login.token, position)) + NEW_TOPIC)
        if login.mechanism in SCRAM_USERS:
            for position in range(0, LENGTH_OF_LAST[login.mechanism], STEP):
                await play_last(broker, login, lambda token, at=position: wrong(token, at))  # type: ignore[misc]
