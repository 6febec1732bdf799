"""Every client writes and reads over TLS, with verification on: with a certificate, and by each mechanism of SASL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from tests.clients.program_clients import franz_go_consume, franz_go_produce, run
from tests.clients.secured_broker import MUTUAL_TLS, WAYS, SecuredBroker, secured_broker
from tests.clients.workload import PARTITIONS, Sent
from tests.patience import PATIENCE_S
from tests.zookeeper.certificates import PASSWORD as PASSWORD_OF_STORES

RECORDS = [b"one", b"two", b"three"]

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as secured:
        yield secured


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def topic(way: str, request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "-" for c in request.node.name)


def test_kafka_python(secured: SecuredBroker, way: str, topic: str) -> None:
    security = secured.kafka_python(way)
    producer = kafka.KafkaProducer(**security, acks="all")
    for value in RECORDS:
        producer.send(topic, value, partition=0).get(timeout=PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, **security, auto_offset_reset="earliest", group_id=topic)
    assert [next(consumer).value for _ in RECORDS] == RECORDS
    consumer.close()


def test_aiokafka(secured: SecuredBroker, way: str, topic: str) -> None:
    async def write_and_read() -> list[bytes | None]:
        security = secured.aiokafka(way)
        async with aiokafka.AIOKafkaProducer(**security, acks="all") as producer:
            for value in RECORDS:
                await producer.send_and_wait(topic, value, partition=0)
        async with aiokafka.AIOKafkaConsumer(
            topic, **security, auto_offset_reset="earliest", group_id=topic
        ) as consumer:
            return [(await consumer.getone()).value for _ in RECORDS]

    assert asyncio.run(write_and_read()) == RECORDS


def test_confluent_kafka(secured: SecuredBroker, way: str, topic: str) -> None:
    security = secured.librdkafka(way)
    producer = confluent_kafka.Producer({**security, "acks": "all"})
    for value in RECORDS:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer({**security, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read: list[bytes | None] = []
    while len(read) < len(RECORDS):
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None, message.error()
        read.append(message.value())
    consumer.close()
    assert read == RECORDS


def test_franz_go(secured: SecuredBroker, way: str, topic: str, franz_go: Path) -> None:
    records = [Sent(number % PARTITIONS, 1_700_000_000_000, None, value) for number, value in enumerate(RECORDS)]
    variables = secured.franz_go(way)
    franz_go_produce(franz_go, secured.bootstrap(way), topic, records, "none", variables)
    read = franz_go_consume(franz_go, secured.bootstrap(way), topic, len(records), variables)
    assert sorted(read, key=records.index) == records


def test_the_java_client(secured: SecuredBroker, way: str, topic: str, java_tools: list[str]) -> None:
    where, config = ("--bootstrap-server", secured.bootstrap(way), "--topic", topic), secured.java_file(way)
    lines = b"\n".join(RECORDS) + b"\n"
    run([*java_tools, "kafka.tools.ConsoleProducer", *where, "--producer.config", config], lines)
    consumer = [*java_tools, "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, "--consumer.config", config]
    limits = ("--from-beginning", "--max-messages", str(len(RECORDS)), "--timeout-ms", "60000")
    assert sorted(run([*consumer, *limits]).splitlines()) == sorted(RECORDS)


def test_the_java_client_reads_stores_of_type_pkcs12(secured: SecuredBroker, java_tools: list[str]) -> None:
    """Java trusts no certificate of such a store without a mark of its own."""
    files = secured.files
    stores = {
        "security.protocol": "SSL",
        "ssl.truststore.location": files.write("authority.p12", files.authority.pkcs12()),
        "ssl.keystore.location": files.write("alice.p12", files.authority.sign("alice").pkcs12()),
    }
    for kind in ("truststore", "keystore"):
        stores |= {f"ssl.{kind}.type": "PKCS12", f"ssl.{kind}.password": PASSWORD_OF_STORES}
    properties = "".join(f"{name}={text}\n" for name, text in stores.items())
    config = files.write("pkcs12.properties", properties.encode())
    where = ("--bootstrap-server", secured.bootstrap(MUTUAL_TLS), "--command-config", config)
    run([*java_tools, "org.apache.kafka.tools.TopicCommand", *where, "--create", "--topic", "of-pkcs12"])
    assert b"of-pkcs12" in run([*java_tools, "org.apache.kafka.tools.TopicCommand", *where, "--list"])
