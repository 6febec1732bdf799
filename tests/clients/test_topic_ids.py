"""Clients that fetch by topic id (KIP-516), also from a topic that is deleted and created again meanwhile."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients import program_clients
from tests.clients.conftest import ClientBroker
from tests.clients.workload import PARTITIONS, assert_same, binary_records
from tests.patience import PATIENCE_S, block_until

pytestmark = pytest.mark.timeout(300)
FIRST_BY_ID = 13
FIRST, SECOND = [b"old-%d" % number for number in range(10)], [b"new-%d" % number for number in range(5)]
"""What the topic has at first, and what its successor has: it ends before the consumer's position."""


class Topic:
    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self.create()

    def create(self) -> None:
        self._admin.create_topics([NewTopic(self.name, 1, 1)])[self.name].result(30)

    def delete(self) -> None:
        self._admin.delete_topics([self.name])[self.name].result(30)

    def produce(self, values: list[bytes]) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0})
        for value in values:
            producer.produce(self.name, value, partition=0)
        assert producer.flush(30) == 0

    def replace(self) -> None:
        self.delete()
        self.create()
        self.produce(SECOND)


@pytest.fixture
def topic(client_broker: ClientBroker, request: pytest.FixtureRequest) -> Iterator[Topic]:
    """A topic with the values of FIRST."""
    made = Topic(client_broker.bootstrap, re.sub(r"\W", "-", request.node.name))
    made.produce(FIRST)
    yield made
    made.delete()


@pytest.fixture
def fetches(client_broker: ClientBroker) -> Any:
    """Returns the versions of Fetch that the broker has answered since the test began."""

    def answered() -> dict[int, float]:
        if client_broker.metrics_url is None:
            pytest.skip("needs the broker's metrics")
        with urllib.request.urlopen(client_broker.metrics_url, timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        pattern = re.compile(r'requestmetrics_requests_total\{[^}]*request="Fetch",version="(\d+)"\} (\S+)')
        return {int(version): float(count) for version, count in pattern.findall(text)}

    before = answered()
    return lambda: {version for version, count in answered().items() if count > before.get(version, 0)}


def test_librdkafka_goes_on_in_a_recreated_topic(client_broker: ClientBroker, topic: Topic, fetches: Any) -> None:
    settings = {
        "bootstrap.servers": client_broker.bootstrap,
        "group.id": topic.name,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 500,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic.name])
    read: list[bytes | None] = []

    def reads(*expected: bytes) -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append(message.value())
        return read[-len(expected) :] == list(expected)

    try:
        block_until(lambda: reads(*FIRST))
        topic.replace()
        block_until(lambda: reads(*SECOND))
        assert read == [*FIRST, *SECOND]
    finally:
        consumer.close()
    assert min(fetches()) >= FIRST_BY_ID


def test_the_java_client_goes_on_in_a_recreated_topic(
    client_broker: ClientBroker, topic: Topic, java_tools: list[str], fetches: Any
) -> None:
    command = [*java_tools, "org.apache.kafka.tools.consumer.ConsoleConsumer"]
    command += ["--bootstrap-server", client_broker.bootstrap, "--topic", topic.name, "--from-beginning"]
    command += ["--max-messages", str(len(FIRST) + len(SECOND))]
    command += ["--consumer-property", "allow.auto.create.topics=false"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as consumer:
        try:
            assert consumer.stdout is not None
            assert [consumer.stdout.readline().strip() for _ in FIRST] == FIRST
            topic.replace()
            assert [consumer.stdout.readline().strip() for _ in SECOND] == SECOND
            assert consumer.wait(60) == 0
        finally:
            consumer.kill()
    assert min(fetches()) >= FIRST_BY_ID


def test_franz_go_fetches_by_id(
    client_broker: ClientBroker, franz_go: Path, fetches: Any, request: pytest.FixtureRequest
) -> None:
    name = request.node.name.replace("_", "-")
    admin = AdminClient({"bootstrap.servers": client_broker.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    records = list(binary_records(100))
    program_clients.franz_go_produce(franz_go, client_broker.bootstrap, name, records, "none")
    assert_same(program_clients.franz_go_consume(franz_go, client_broker.bootstrap, name, 100), records)
    admin.delete_topics([name])[name].result(30)
    assert min(fetches()) >= FIRST_BY_ID
