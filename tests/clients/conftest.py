"""A broker in a process of its own, for third-party clients.

ODRADEK_CLIENTS_AGAINST=HOST:PORT=DATA_DIR runs the same tests against a broker that is already there, Apache Kafka too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from tests.clients.members.watch import until_coordinators
from tests.spawned_broker import SpawnedBroker, free_port, spawned_broker, start_broker

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
"""Groups do not delay their first rebalance: tests would take longer and see fewer rebalances."""


@dataclass(frozen=True, slots=True)
class ClientBroker:
    bootstrap: str
    data_dir: Path
    metrics_url: str | None


@pytest.fixture(scope="session")
def client_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientBroker]:
    against = os.environ.get("ODRADEK_CLIENTS_AGAINST")
    if against:
        bootstrap, its_data_dir = against.split("=", 1)
        until_coordinators(bootstrap)
        yield ClientBroker(bootstrap, Path(its_data_dir), None)
        return
    data_dir = tmp_path_factory.mktemp("clients") / "data"
    with spawned_broker(data_dir, SETTINGS, with_metrics=True) as broker:
        until_coordinators(broker.bootstrap)
        yield ClientBroker(broker.bootstrap, data_dir, broker.metrics_url)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Callable[[], SpawnedBroker]]:
    """Starts a broker each time, always on the same data and port; those that still run in the end are killed."""
    port, started = free_port(), []

    def start() -> SpawnedBroker:
        started.append(start_broker(tmp_path / "data", SETTINGS, port=port))
        return started[-1]

    yield start
    for broker in started:
        broker.kill()
        broker.close()


@pytest.fixture
def new_topic(client_broker: ClientBroker, request: pytest.FixtureRequest) -> Iterator[Callable[[int], str]]:
    """Creates a topic that is named after the test, and deletes it afterwards."""
    admin = KafkaAdminClient(bootstrap_servers=client_broker.bootstrap)
    made: list[str] = []

    def create(partitions: int) -> str:
        name = "".join(c if c.isalnum() else "-" for c in request.node.name)
        admin.create_topics([NewTopic(name=name, num_partitions=partitions, replication_factor=1)])
        made.append(name)
        return name

    yield create
    admin.delete_topics(made)
    admin.close()
