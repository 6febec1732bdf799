"""How logins by SASL are counted, for the metrics."""

from __future__ import annotations

from odradek.broker.server import Broker
from odradek.protocol.messages.metadata import MetadataRequest
from tests.broker.handlers.sasl_broker import ALICE, sasl_broker, stranger_of
from tests.wire.raw_client import RawClient

BOB = b"\0bob\0bob-secret"


def counted(broker: Broker) -> tuple[int, int, int, int]:
    """Logins that were successful and that failed, and the same of those that renew one."""
    counts = broker.authentications["SASL_PLAINTEXT"]
    return counts.successful, counts.failed, counts.successful_again, counts.failed_again


async def log_in(client: RawClient, token: bytes) -> None:
    await client.handshake()
    await client.token(token)


async def test_logins_are_counted_when_they_end() -> None:
    async with sasl_broker() as broker:
        async with stranger_of(broker) as client:
            await client.handshake()
            assert counted(broker) == (0, 0, 0, 0)
            await client.token(ALICE)
            assert counted(broker) == (1, 0, 0, 0)
        async with stranger_of(broker) as client:
            await log_in(client, b"\0alice\0wrong")
            assert counted(broker) == (1, 1, 0, 0)
        async with stranger_of(broker) as client:
            await client.handshake("GSSAPI")
            assert counted(broker) == (1, 2, 0, 0)
        async with stranger_of(broker) as client:
            assert await client.call(MetadataRequest(topics=[]), 12) is None
            assert counted(broker) == (1, 3, 0, 0)
        async with stranger_of(broker):
            pass
        assert counted(broker) == (1, 3, 0, 0), "who only connects has not failed"


async def test_logins_that_are_renewed_are_counted_apart() -> None:
    async with sasl_broker({"connections.max.reauth.ms": "60000"}) as broker:
        for again, expected in ((ALICE, (1, 0, 1, 0)), (BOB, (2, 0, 1, 1))):
            async with stranger_of(broker) as client:
                await log_in(client, ALICE)
                await log_in(client, again)
                assert counted(broker) == expected
