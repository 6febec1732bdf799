"""A pytest plugin: the fixture `odradek_broker` is a running broker for tests with blocking clients.

    def test_my_service(odradek_broker):
        producer = KafkaProducer(bootstrap_servers=odradek_broker.bootstrap)

The broker has a free port on 127.0.0.1, a temporary data directory, and an event loop in a thread of its own. Each test
that uses the fixture gets a new broker, which is removed afterwards. Asynchronous tests use `odradek.testing` instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.broker.testing import BrokerThread


@pytest.fixture
def odradek_broker() -> Iterator[BrokerThread]:
    """A broker in a thread of its own: `.bootstrap` is its HOST:PORT, `.data_dir` its directory."""
    from odradek.broker.testing import BrokerThread

    with BrokerThread() as running:
        yield running
