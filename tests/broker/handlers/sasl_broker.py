"""A broker whose clients authenticate by SASL."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from odradek.broker.server import Broker
from odradek.testing import in_process_broker
from tests.wire.raw_client import RawClient, raw_client

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{PLAIN_MODULE} required user_alice="alice-secret" user_bob="bob-secret" user_a="b";'
PREFIX = "listener.name.sasl_plaintext."
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "1",
}
ALICE = b"\0alice\0alice-secret"
FIRST_CREDENTIALS = "SCRAM-SHA-256=[name=alice,password=alice-secret]\nSCRAM-SHA-512=[name=bob,password=bob-secret]\n"


@contextlib.asynccontextmanager
async def sasl_broker(settings: Mapping[str, str] | None = None, scram: Path | None = None) -> AsyncIterator[Broker]:
    """Yields a broker with the users alice and bob. `scram`: a directory for the file of FIRST_CREDENTIALS."""
    more = dict(settings or {})
    if scram is not None:
        file = scram / "credentials"
        file.write_text(FIRST_CREDENTIALS)
        more["odradek.scram.credentials.file"] = str(file)
    async with in_process_broker({**SETTINGS, **more}) as broker:
        yield broker


@contextlib.asynccontextmanager
async def stranger_of(broker: Broker) -> AsyncIterator[RawClient]:
    """Yields a client that has not authenticated."""
    async with raw_client(broker.endpoints[0].port) as client:
        yield client
