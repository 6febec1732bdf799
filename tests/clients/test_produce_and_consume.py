"""Third-party clients write records with every codec and read them back, byte for byte."""

from __future__ import annotations

import dataclasses
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients import program_clients, python_clients
from tests.clients.conftest import ClientBroker
from tests.clients.workload import (
    CODECS,
    PARTITIONS,
    Sent,
    assert_same,
    binary_records,
    record_count,
    stored_codecs,
    text_records,
)
from tests.patience import PATIENCE_S
from tests.soak import rounds

NewTopicName = Callable[[int], str]
pytestmark = pytest.mark.timeout(600)


def few_records() -> int:
    """`record_count()` for a client in Python, which spends most time on each: 4,000, or all in `make soak`."""
    return record_count(rounds(4000, in_soak=20_000))


def assert_stored_with(broker: ClientBroker, topic: str, codec: str) -> None:
    """Checks the codec of the stored batches: clients fall back to no compression silently.

    franz-go and kafka-python do not compress a batch that would not shrink, so bytes are counted.
    """
    codecs = stored_codecs(broker.data_dir, topic, range(PARTITIONS))
    assert set(codecs) <= {codec, "none"}
    assert codecs[codec] > 0.9 * codecs.total()


@pytest.mark.soak("20,000 records through kafka-python and each codec", minutes=0.3)
@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_back_what_it_wrote(
    client_broker: ClientBroker, new_topic: NewTopicName, codec: str
) -> None:
    topic, count = new_topic(PARTITIONS), few_records()
    python_clients.kafka_python_produce(
        client_broker.bootstrap, topic, binary_records(count, null_headers=False), codec
    )
    assert_stored_with(client_broker, topic, codec)
    read = python_clients.kafka_python_consume(client_broker.bootstrap, topic, count)
    assert_same(read, binary_records(count, null_headers=False))


@pytest.mark.soak("20,000 records through kafka-python as a 2.0 client and lz4", minutes=0.1)
def test_kafka_python_as_a_2_0_client_uses_produce_v6_and_fetch_v8(
    client_broker: ClientBroker, new_topic: NewTopicName
) -> None:
    topic, count = new_topic(PARTITIONS), few_records()
    before = _requests_by_version(client_broker)
    python_clients.kafka_python_produce(
        client_broker.bootstrap, topic, binary_records(count, null_headers=False), "lz4", (2, 0)
    )
    assert_stored_with(client_broker, topic, "lz4")
    read = python_clients.kafka_python_consume(client_broker.bootstrap, topic, count, (2, 0))
    assert_same(read, binary_records(count, null_headers=False))
    if client_broker.metrics_url is not None:
        after = _requests_by_version(client_broker)
        spoken = {who for who, requests in after.items() if requests > before.get(who, 0)}
        assert {who for who in spoken if who[0] in ("Produce", "Fetch")} == {("Produce", 6), ("Fetch", 8)}


def _requests_by_version(broker: ClientBroker) -> dict[tuple[str, int], float]:
    if broker.metrics_url is None:
        return {}
    with urllib.request.urlopen(broker.metrics_url, timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    pattern = re.compile(r"^kafka_network_requestmetrics_requests_total\{(.*)\} (\S+)$", re.MULTILINE)
    found = {}
    for labels, value in pattern.findall(text):
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found[label["request"], int(label["version"])] = float(value)
    return found


@pytest.mark.soak("20,000 records through aiokafka and each codec", minutes=0.2)
@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_back_what_it_wrote(client_broker: ClientBroker, new_topic: NewTopicName, codec: str) -> None:
    topic, count = new_topic(PARTITIONS), few_records()
    python_clients.aiokafka_produce(client_broker.bootstrap, topic, binary_records(count), codec)
    assert_stored_with(client_broker, topic, codec)
    assert_same(python_clients.aiokafka_consume(client_broker.bootstrap, topic, count), binary_records(count))


@pytest.mark.soak("20,000 records through confluent-kafka and each codec", minutes=0.2)
@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads_back_what_it_wrote(
    client_broker: ClientBroker, new_topic: NewTopicName, codec: str
) -> None:
    topic, count = new_topic(PARTITIONS), few_records()
    python_clients.confluent_produce(client_broker.bootstrap, topic, binary_records(count), codec)
    assert_stored_with(client_broker, topic, codec)
    assert_same(python_clients.confluent_consume(client_broker.bootstrap, topic, count), binary_records(count))


def kcat_records(count: int) -> list[Sent]:
    """Text records over the partitions, with one set of headers in each (kcat's limit); empty becomes null (-Z)."""
    return [
        dataclasses.replace(r, partition=i % PARTITIONS, headers=(("partition", b"%d" % (i % PARTITIONS)), ("k", b"v")))
        for i, r in enumerate(text_records(count))
    ]


@pytest.mark.usefixtures("kcat")
@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_back_what_it_wrote(client_broker: ClientBroker, new_topic: NewTopicName, codec: str) -> None:
    topic, count = new_topic(PARTITIONS), record_count()
    program_clients.kcat_produce(client_broker.bootstrap, topic, kcat_records(count), codec)
    assert_stored_with(client_broker, topic, codec)
    assert_same(program_clients.kcat_consume(client_broker.bootstrap, topic, count), kcat_records(count))


@pytest.mark.parametrize("codec", CODECS)
def test_franz_go_reads_back_what_it_wrote(
    client_broker: ClientBroker, new_topic: NewTopicName, franz_go: Path, codec: str
) -> None:
    topic, count = new_topic(PARTITIONS), record_count()
    program_clients.franz_go_produce(franz_go, client_broker.bootstrap, topic, binary_records(count), codec)
    assert_stored_with(client_broker, topic, codec)
    read = program_clients.franz_go_consume(franz_go, client_broker.bootstrap, topic, count)
    assert_same(read, binary_records(count))


@pytest.mark.parametrize("codec", CODECS)
def test_java_console_tools_read_back_what_they_wrote(
    client_broker: ClientBroker, new_topic: NewTopicName, java_tools: list[str], codec: str
) -> None:
    topic, count = new_topic(1), record_count()
    program_clients.java_produce(java_tools, client_broker.bootstrap, topic, text_records(count), codec)
    assert set(stored_codecs(client_broker.data_dir, topic, range(1))) == {codec}, "Java compresses every batch"
    read = program_clients.java_consume(java_tools, client_broker.bootstrap, topic, count)
    assert_same(read, text_records(count))
