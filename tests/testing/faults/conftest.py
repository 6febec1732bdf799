from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.testing import BrokerThread
from tests.wire.blocking_client import Client


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    """A broker with the topics `orders`, of three partitions, and `other`."""
    few: dict[str, Any] = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}
    with BrokerThread(num_partitions=1, **few) as running:
        with Client(running.bootstrap, "admin") as client:
            client.create("orders", 3)
            client.create("other")
        yield running


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[Client]:
    with Client(broker.bootstrap) as connected:
        yield connected
