"""Third-party clients authenticate by SASL: they write and read, and a wrong password is reported as one."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.errors
import pytest

from tests.clients.program_clients import run
from tests.patience import PATIENCE_S
from tests.spawned_broker import SpawnedBroker, spawned_broker

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="alice-secret";',
    "connections.max.reauth.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
}
CREDENTIALS = "".join(f"{each}=[name=alice,password=alice-secret]\n" for each in MECHANISMS[1:])
RECORDS = [b"one", b"two", b"three"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpawnedBroker]:
    directory = tmp_path_factory.mktemp("sasl")
    (directory / "credentials").write_text(CREDENTIALS)
    settings = {**SETTINGS, "odradek.scram.credentials.file": str(directory / "credentials")}
    with spawned_broker(directory / "data", settings) as broker:
        yield broker
        assert "alice-secret" not in broker.log_text()


@pytest.fixture(params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def topic(mechanism: str, request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "-" for c in request.node.name)


def of_python(broker: SpawnedBroker, mechanism: str, password: str = "alice-secret") -> dict[str, str]:
    """The settings of kafka-python and aiokafka."""
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


def of_librdkafka(broker: SpawnedBroker, mechanism: str, password: str = "alice-secret") -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def iterations_of(admin: confluent_kafka.admin.AdminClient, user: str) -> list[int]:
    """The iterations of a user's credentials."""
    described: Any = admin.describe_user_scram_credentials([user])
    return [each.iterations for each in described[user].result(30).scram_credential_infos]


def of_java(mechanism: str, directory: Path, password: str = "alice-secret") -> Path:
    """A property file of Kafka's tools."""
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    file = directory / "client.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="alice" password="{password}";\n'
    )
    return file


def test_kafka_python(broker: SpawnedBroker, mechanism: str, topic: str) -> None:
    producer = kafka.KafkaProducer(**of_python(broker, mechanism))
    for value in RECORDS:
        producer.send(topic, value).get(timeout=PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", group_id=f"group-{topic}", **of_python(broker, mechanism)
    )
    assert [next(consumer).value for _ in RECORDS] == RECORDS
    consumer.close()


def test_aiokafka(broker: SpawnedBroker, mechanism: str, topic: str) -> None:
    async def write_and_read() -> list[bytes | None]:
        producer = aiokafka.AIOKafkaProducer(**of_python(broker, mechanism))
        await producer.start()
        for value in RECORDS:
            await producer.send_and_wait(topic, value)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **of_python(broker, mechanism))
        await consumer.start()
        read = [(await consumer.getone()).value for _ in RECORDS]
        await consumer.stop()
        return read

    assert asyncio.run(write_and_read()) == RECORDS


def test_librdkafka(broker: SpawnedBroker, mechanism: str, topic: str) -> None:
    producer = confluent_kafka.Producer(of_librdkafka(broker, mechanism))
    for value in RECORDS:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer(
        {**of_librdkafka(broker, mechanism), "group.id": f"group-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    read: list[bytes | None] = []
    while len(read) < len(RECORDS):
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            read.append(message.value())
    consumer.close()
    assert read == RECORDS


def test_a_wrong_password_is_reported_by_librdkafka(broker: SpawnedBroker, mechanism: str) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer({**of_librdkafka(broker, mechanism, "wrong"), "error_cb": errors.append})
    for _ in range(200):
        producer.poll(0.1)
        if any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in errors):
            break
    else:
        pytest.fail(f"no error of the login: {errors}")


def test_a_wrong_password_is_reported_by_aiokafka(broker: SpawnedBroker, mechanism: str) -> None:
    async def start() -> None:
        producer = aiokafka.AIOKafkaProducer(**of_python(broker, mechanism, "wrong"))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(aiokafka.errors.KafkaConnectionError):
        asyncio.run(start())


def test_librdkafka_changes_a_password(broker: SpawnedBroker) -> None:
    admin = confluent_kafka.admin.AdminClient(of_librdkafka(broker, "PLAIN"))
    info = confluent_kafka.admin.ScramCredentialInfo(confluent_kafka.admin.ScramMechanism.SCRAM_SHA_256, 8192)
    change = confluent_kafka.admin.UserScramCredentialUpsertion("bob", info, b"bob-secret")
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(30)
    assert iterations_of(admin, "bob") == [8192]
    bob = {**of_librdkafka(broker, "SCRAM-SHA-256"), "sasl.username": "bob", "sasl.password": "bob-secret"}
    assert confluent_kafka.admin.AdminClient(bob).list_topics(timeout=PATIENCE_S).brokers


def test_librdkafka_goes_on_beyond_the_lifetime_of_its_session(
    broker: SpawnedBroker, topic: str, mechanism: str
) -> None:
    failures: list[object] = []
    errors: list[object] = []
    settings = {**of_librdkafka(broker, mechanism), "error_cb": errors.append}
    producer = confluent_kafka.Producer(settings)
    for _ in range(50):
        producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error))
        producer.poll(0.1)
    assert producer.flush(30) == 0
    assert failures == [None] * 50
    assert not errors


def test_kafkas_console_tools(
    broker: SpawnedBroker, mechanism: str, topic: str, java_tools: list[str], tmp_path: Path
) -> None:
    config = str(of_java(mechanism, tmp_path))
    address = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    lines = b"\n".join(RECORDS) + b"\n"
    run([*java_tools, "kafka.tools.ConsoleProducer", *address, "--producer.config", config], lines)
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    limits = ("--from-beginning", "--max-messages", str(len(RECORDS)), "--timeout-ms", "30000")
    assert run([*java_tools, consumer, *address, "--consumer.config", config, *limits]) == lines


def test_kafka_configs_sets_a_password(broker: SpawnedBroker, java_tools: list[str], tmp_path: Path) -> None:
    def configs(*arguments: str, password: str = "alice-secret") -> subprocess.CompletedProcess[str]:
        tool = [*java_tools, "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap]
        login = ("--command-config", str(of_java("PLAIN", tmp_path, password)))
        command = [*tool, *login, "--entity-type", "users", "--entity-name", "carol", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    changed = configs("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=carol-secret]")
    assert "Completed updating config for user carol." in changed.stdout, changed.stderr
    admin = confluent_kafka.admin.AdminClient(of_librdkafka(broker, "PLAIN"))
    assert iterations_of(admin, "carol") == [8192]
    wrong = configs("--alter", "--delete-config", "SCRAM-SHA-256", password="wrong")
    assert "Authentication failed: Invalid username or password" in wrong.stdout + wrong.stderr
    deleted = configs("--alter", "--delete-config", "SCRAM-SHA-256")
    assert "Completed updating config for user carol." in deleted.stdout, deleted.stderr
