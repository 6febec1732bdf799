"""A follower of more partitions than a client may name."""

from __future__ import annotations

import pytest

from odradek.broker.handlers import api_row
from odradek.broker.requests import request_bound
from odradek.testing import in_process_cluster

BOUND = 5
TOPICS = ("t", "u", "v")


async def test_a_follower_catches_up_in_more_partitions_than_a_client_may_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_bound, "MAX_PARTITIONS_PER_REQUEST", BOUND)
    monkeypatch.setattr(api_row, "MAX_PARTITIONS_PER_REQUEST", BOUND)
    async with in_process_cluster(brokers=2) as cluster:
        for topic in TOPICS:
            await cluster.create_topic(topic, assignments=dict.fromkeys(range(BOUND), (1, 2)))
        await cluster.restart(2)
        for topic in TOPICS:
            for partition in range(BOUND):
                await cluster.wait_for_isr(topic, partition, {1, 2}, within=5)
