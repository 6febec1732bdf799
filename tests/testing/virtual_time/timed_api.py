"""The client of a broker with virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from odradek.testing import InProcessBroker, in_process_broker
from tests.wire.api import Api
from tests.wire.records import connect

SMALL: dict[str, object] = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
"""The internal topics have one partition each."""


class TimedApi(Api):
    """See Api."""

    broker: InProcessBroker


@asynccontextmanager
async def timed_api(settings: Mapping[str, object] | None = None, **options: Any) -> AsyncIterator[TimedApi]:
    """Yields the client of a new broker with these settings."""
    small = {**SMALL, **(settings or {})}
    async with (
        in_process_broker(small, time="virtual", **options) as broker,
        await connect(broker.bootstrap) as client,
    ):
        yield TimedApi(broker, client)
