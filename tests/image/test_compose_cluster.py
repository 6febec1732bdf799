"""docker-compose.cluster.yml as it is: its ZooKeeper and its three brokers, and clients on the host."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.image.composition import Service, running
from tests.patience import block_until

FILE = Path(__file__).resolve().parents[2] / "docker-compose.cluster.yml"
BROKERS = ("odradek-1", "odradek-2", "odradek-3")
CLIENT: dict[str, str | int | float | bool] = {
    "bootstrap.servers": "localhost:9092,localhost:9093,localhost:9094",
    "log_level": 0,  # Refused connections are expected while the cluster starts.
}
PATIENCE_S = 30
AFTER_A_MOVE_S = 60
"""A consumer of librdkafka may get nothing for 30 seconds after its coordinator has moved."""
ZOOKEEPER_UID, ODRADEK_UID = 1002, 1001

Services = dict[str, Service]


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with running(FILE, tmp_path) as services:
        block_until(lambda: len(described_brokers()) == len(BROKERS))
        yield services


def described_brokers() -> set[tuple[str, int]]:
    """The addresses that the cluster names to clients on the host; none if it does not answer."""
    try:
        brokers = AdminClient(CLIENT).list_topics(timeout=PATIENCE_S).brokers
    except KafkaException:
        return set()
    return {(str(broker.host), broker.port) for broker in brokers.values()}


def create_topic(name: str) -> None:
    admin = AdminClient(CLIENT)
    admin.create_topics([NewTopic(name, num_partitions=3)])[name].result(PATIENCE_S)


def in_sync(topic: str) -> set[int]:
    """How many replicas are in sync, over all partitions."""
    shown = AdminClient(CLIENT).list_topics(topic, timeout=PATIENCE_S).topics[topic]
    return {len(partition.isrs) for partition in shown.partitions.values()}


def produce(topic: str, values: range) -> None:
    producer = Producer({**CLIENT, "acks": "all"})
    for value in values:
        producer.produce(topic, b"%d" % value)
    assert producer.flush(2 * PATIENCE_S) == 0


def consumed(topic: str, count: int, services: Services) -> set[int]:
    consumer = Consumer({**CLIENT, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: set[int] = set()
    while len(values) < count:
        message = consumer.poll(AFTER_A_MOVE_S)
        assert message is not None, "\n\n".join(
            [f"{len(values)} of {count} came", *(f"{name}:\n{services[name].log()}" for name in services)]
        )
        values.add(int(message.value() or b""))
    consumer.close()
    return values


def test_the_cluster_of_the_compose_file_survives_a_broker_and_a_restart(services: Services) -> None:
    assert described_brokers() == {("localhost", 9092), ("localhost", 9093), ("localhost", 9094)}
    owners = {name: {Path(f"/proc/{pid}").stat().st_uid for pid in one.pids()} for name, one in services.items()}
    assert owners == {"zookeeper": {ZOOKEEPER_UID}, **{name: {ODRADEK_UID} for name in BROKERS}}
    assert all(service.is_healthy() for service in services.values())

    create_topic("kept")
    produce("kept", range(500))
    services["odradek-2"].end(signal.SIGKILL)
    produce("kept", range(500, 1000))
    services["odradek-2"].start()
    block_until(lambda: in_sync("kept") == {len(BROKERS)})

    for name in (*BROKERS, "zookeeper"):
        services[name].end(signal.SIGTERM)
    assert all((services[name].volume / ".kafka_cleanshutdown").exists() for name in BROKERS)
    assert not services["zookeeper"].is_healthy()
    for service in services.values():
        service.start()
    block_until(lambda: len(described_brokers()) == len(BROKERS))
    assert consumed("kept", 1000, services) == set(range(1000))
