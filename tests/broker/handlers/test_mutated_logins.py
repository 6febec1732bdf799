"""Mutated logins: whatever a stranger sends, the broker goes on, and nothing behind a damaged token is handled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from structlog.testing import capture_logs

from odradek.broker.server import Broker
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.handlers.raw_client import framed, raw_client, request_bytes
from tests.broker.handlers.sasl_broker import ALICE, sasl_broker, stranger_of
from tests.broker.handlers.test_authenticating import NEW_TOPIC, is_let_in
from tests.broker.security.scram_client import ScramClient

ROUNDS = 1000
FIRST = ScramClient("alice", "alice-secret").first


def handshake(mechanism: str, version: int) -> bytes:
    return request_bytes(SaslHandshakeRequest(mechanism=mechanism), version)


LOGINS = [
    (request_bytes(ApiVersionsRequest(), 0) + handshake("PLAIN", 1), request_bytes),
    (handshake("PLAIN", 0), None),
    (handshake("SCRAM-SHA-256", 1), request_bytes),
    (handshake("SCRAM-SHA-256", 0), None),
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
        client.writer.write_eof()
        async with asyncio.timeout(20):
            try:
                await client.reader.read()
            except ConnectionResetError:
                pass


async def test_mutated_logins_let_nobody_in_and_end_nothing(tmp_path: Path) -> None:
    source = Random(7)
    with capture_logs() as lines:
        async with sasl_broker(scram=tmp_path) as broker:
            for number in range(ROUNDS):
                start, frame = LOGINS[number % len(LOGINS)]
                right = FIRST if b"SCRAM" in start else ALICE
                token = mutated(right, source)
                if token == right:
                    continue
                message = framed(token) if frame is None else frame(SaslAuthenticateRequest(auth_bytes=token), 1)
                await play(broker, start + message + NEW_TOPIC)
                assert not list(broker.metadata.topic_names()), token
            for number in range(ROUNDS):
                start, frame = LOGINS[number % len(LOGINS)]
                message = framed(ALICE) if frame is None else frame(SaslAuthenticateRequest(auth_bytes=ALICE), 1)
                await play(broker, mutated(start + message, source))
            async with stranger_of(broker) as client:
                await client.handshake()
                await client.token(ALICE)
                assert await is_let_in(client)
    assert not [line for line in lines if line["log_level"] in ("error", "critical")]
