"""docker-compose.cluster.yml as it is: its ZooKeeper and its three brokers, and clients on the host."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError

from tests.image.composition import Service, running
from tests.patience import block_until

FILE = Path(__file__).resolve().parents[2] / "docker-compose.cluster.yml"
BROKERS = ("odradek-1", "odradek-2", "odradek-3")
BOOTSTRAP = ["localhost:9092", "localhost:9093", "localhost:9094"]
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
        admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    except KafkaError:
        return set()
    try:
        return {(broker["host"], broker["port"]) for broker in admin.describe_cluster()["brokers"]}
    finally:
        admin.close()


def create_topic(name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    admin.create_topics([NewTopic(name, num_partitions=3, replication_factor=-1)], timeout_ms=30_000)
    admin.close()


def in_sync(topic: str) -> set[int]:
    """How many replicas are in sync, over all partitions."""
    admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    (shown,) = admin.describe_topics([topic])
    admin.close()
    return {len(partition["isr_nodes"]) for partition in shown["partitions"]}


def produce(topic: str, values: range) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", retries=100)
    for value in values:
        producer.send(topic, b"%d" % value)
    producer.flush(timeout=60)
    producer.close()


def consumed(topic: str, count: int) -> set[int]:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=BOOTSTRAP,
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    values: set[int] = set()
    for message in consumer:
        values.add(int(message.value))
        if len(values) == count:
            break
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
    assert consumed("kept", 1000) == set(range(1000))
