"""Clients of brokers in the process, for tests of the responses to single requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from odradek.broker.server import Broker
from odradek.clients.network_client import NetworkClient
from odradek.protocol.schema import Message
from odradek.testing import in_process_broker
from tests.patience import PATIENCE_S
from tests.wire.records import connect


class Api:
    """`await api(request, version)` returns the response; `broker` is the broker itself, `client` the connection."""

    def __init__(self, broker: Broker, client: NetworkClient) -> None:
        self.broker = broker
        self.client = client

    async def __call__(self, request: Message, version: int) -> Any:
        return await self.client.send(request, version=version, timeout_ms=PATIENCE_S * 1000)


@asynccontextmanager
async def api_of(broker: Broker) -> AsyncIterator[Api]:
    """Yields a client of a broker."""
    async with await connect(broker.bootstrap) as client:
        yield Api(broker, client)


@asynccontextmanager
async def api_of_a_broker(settings: Mapping[str, object] | None = None, **options: Any) -> AsyncIterator[Api]:
    """Yields the client of a new broker with these settings."""
    async with in_process_broker(settings, **options) as broker, api_of(broker) as api:
        yield api
