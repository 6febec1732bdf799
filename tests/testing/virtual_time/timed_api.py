"""The client of a broker with virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from odradek.clients.network_client import NetworkClient
from odradek.testing import InProcessBroker, in_process_broker
from tests.broker.handlers.api_client import Api

SMALL: dict[str, object] = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
"""The internal topics have one partition each."""


class TimedApi(Api):
    """See Api."""

    broker: InProcessBroker


@asynccontextmanager
async def timed_api(settings: Mapping[str, object] | None = None, **options: Any) -> AsyncIterator[TimedApi]:
    """Yields the client of a new broker with these settings."""
    async with in_process_broker({**SMALL, **(settings or {})}, time="virtual", **options) as broker:
        host, port = broker.bootstrap.split(":")
        async with await NetworkClient.connect(host, int(port)) as client:
            yield TimedApi(broker, client)
