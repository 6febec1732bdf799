"""Third-party clients that authenticate by SASL report a wrong password, change one, and outlive their sessions.

That they write and read: test_secured_clients.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.patience import PATIENCE_S
from tests.spawned_broker import SpawnedBroker, spawned_broker

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
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
