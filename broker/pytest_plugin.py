"""A pytest plugin: the fixture `odradek_broker` is a running broker, `odradek_cluster` a cluster of three. Both are for
tests with blocking clients.

    def test_my_service(odradek_broker):
        producer = KafkaProducer(bootstrap_servers=odradek_broker.bootstrap)

    def test_my_service_survives_a_broker(odradek_cluster):
        producer = KafkaProducer(bootstrap_servers=odradek_cluster.bootstrap, acks="all")
        odradek_cluster.kill(1)

The brokers have free ports on 127.0.0.1, temporary data directories, and an event loop in a thread of its own. Each
test that uses a fixture gets new brokers, which are removed afterwards. Asynchronous tests use `odradek.testing`
instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.broker.testing import BrokerThread, ClusterThread


@pytest.fixture
def odradek_broker() -> Iterator[BrokerThread]:
    """A broker in a thread of its own: `.bootstrap` is its HOST:PORT, `.data_dir` its directory."""
    from odradek.broker.testing import BrokerThread

    with BrokerThread() as running:
        yield running


@pytest.fixture
def odradek_cluster() -> Iterator[ClusterThread]:
    """A cluster of three brokers, 1 to 3, in a thread of its own; see docs/cluster.md for what can be done to it."""
    from odradek.broker.testing import ClusterThread

    with ClusterThread() as running:
        yield running
