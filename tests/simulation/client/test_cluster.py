"""How often a client tries to reach a broker."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from odradek.protocol.messages.metadata import MetadataRequest
from tests.simulation.client import cluster
from tests.simulation.client.cluster import RECONNECT_S, Cluster
from tests.simulation.client.wire import NotSent, Wire
from tests.simulation.loop import simulated_loop


def test_a_broker_that_cannot_be_reached_is_not_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried_at = []

    class Unreachable(Wire):
        @classmethod
        async def connect(cls, *args: Any) -> Wire:
            tried_at.append(loop.time())
            raise NotSent("refused")

    async def ask() -> None:
        for _ in range(2):
            with pytest.raises(NotSent):
                await client.ask_any(MetadataRequest(topics=[]))

    loop = simulated_loop()
    monkeypatch.setattr(cluster, "Wire", Unreachable)
    client = Cluster("client", [("10.0.0.1", 9092)], Random(1))
    loop.run_until_complete(ask())
    loop.run_for(RECONNECT_S)
    loop.run_until_complete(ask())
    loop.close()
    assert tried_at == [0.0, RECONNECT_S]
