"""What a consumer does while it knows the leaders of some of its partitions only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client import consumer
from tests.simulation.client.cluster import Cluster, Leader
from tests.simulation.client.consumer import Consumer
from tests.simulation.history import History

KNOWN, UNKNOWN = TopicPartition("t", 0), TopicPartition("t", 1)


class HalfKnownCluster(Cluster):
    """Knows the leader of one partition, which answers every fetch at once with nothing."""

    def __init__(self) -> None:
        super().__init__("reader", [], Random(1))
        self.brokers = {1: ("10.0.0.1", 9092)}
        self.leaders = {KNOWN: Leader(1, 0)}
        self.refreshed = asyncio.Event()

    async def ask_broker(self, broker_id: int, request: Message, **options: Any) -> Any:
        await asyncio.sleep(0.001)
        return FetchResponse(responses=[])

    async def refresh(self, topics: Iterable[str] = ()) -> None:
        self.refreshed.set()


async def test_a_consumer_asks_for_a_missing_leader_while_it_reads_other_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer, "REFRESH_S", 0.01)
    cluster = HalfKnownCluster()
    reader = Consumer(cluster, History(), name="reader")
    reader.assign({KNOWN: 0, UNKNOWN: 0})
    running = asyncio.create_task(reader.run())
    try:
        async with asyncio.timeout(5):
            await cluster.refreshed.wait()
    finally:
        running.cancel()
        await asyncio.wait([running])
