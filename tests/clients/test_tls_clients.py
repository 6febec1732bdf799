"""Third-party clients over TLS, with verification on: large responses, wrong certificates or none, and no trust.

That they write and read: test_secured_clients.py.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple

import aiokafka
import aiokafka.errors
import confluent_kafka
import pytest

from tests.patience import block_until
from tests.spawned_broker import SpawnedBroker, spawned_broker
from tests.tls_files import TlsFiles
from tests.zookeeper.certificates import Authority, Signed

pytestmark = pytest.mark.timeout(300)


class Secured(NamedTuple):
    files: TlsFiles
    broker: SpawnedBroker

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def events(self, event: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self.broker.log_text().splitlines())
        return [line for line in lines if line.get("event") == event]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    files = TlsFiles(directory)
    with spawned_broker(directory / "data", files.listener("required")) as broker:
        yield Secured(files, broker)


@pytest.fixture
def alice(secured: Secured) -> Signed:
    return secured.files.authority.sign("alice")


def aiokafka_security(secured: Secured, key: Signed | None) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=secured.files.trusted)
    if key is not None:
        context.load_cert_chain(secured.files.client(key)["ssl.keystore.location"])
    return {"bootstrap_servers": secured.bootstrap, "security_protocol": "SSL", "ssl_context": context}


def librdkafka(secured: Secured, key: Signed | None) -> dict[str, Any]:
    location = secured.files.client(key).get("ssl.keystore.location")
    own = {} if location is None else {"ssl.certificate.location": location, "ssl.key.location": location}
    return {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": secured.files.trusted,
        **own,
    }


def test_large_responses_from_files_are_read_by_librdkafka(secured: Secured, alice: Signed) -> None:
    """Fetches of more than the broker keeps in memory come from files."""
    security = librdkafka(secured, alice)
    producer = confluent_kafka.Producer({**security, "linger.ms": 50})
    sent = [bytes([number % 256]) * 500_000 for number in range(40)]
    for value in sent:
        producer.produce("large", value, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer({**security, "group.id": "large", "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition("large", 0, 0)])
    read: list[bytes | None] = []
    try:
        while len(read) < len(sent):
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None, message.error()
            read.append(message.value())
    finally:
        consumer.close()
    assert read == sent


WRONG = ("none", "expired", "other authority")


def wrong_key(secured: Secured, kind: str) -> Signed | None:
    if kind == "none":
        return None
    if kind == "expired":
        return secured.files.authority.sign("alice", expired=True)
    return Authority("Other").sign("alice")


@pytest.mark.parametrize("kind", WRONG)
def test_librdkafka_with_a_wrong_certificate_learns_of_it(secured: Secured, kind: str) -> None:
    errors: list[str] = []
    before = len(secured.events("TLS handshake failed"))
    admin = confluent_kafka.Producer(
        {**librdkafka(secured, wrong_key(secured, kind)), "error_cb": lambda error: errors.append(str(error))}
    )

    def is_told() -> bool:
        admin.poll(0.1)
        return any("SSL" in error for error in errors)

    block_until(is_told)
    block_until(lambda: len(secured.events("TLS handshake failed")) > before)


@pytest.mark.parametrize("kind", WRONG)
def test_aiokafka_with_a_wrong_certificate_does_not_start(secured: Secured, kind: str) -> None:
    before = len(secured.events("TLS handshake failed"))
    security = aiokafka_security(secured, wrong_key(secured, kind))

    async def start() -> None:
        producer = aiokafka.AIOKafkaProducer(**security)
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(start())
    block_until(lambda: len(secured.events("TLS handshake failed")) > before)


def test_a_client_that_does_not_trust_the_broker_sends_nothing(secured: Secured, alice: Signed) -> None:
    errors: list[str] = []
    other = secured.files.write("other.pem", Authority("Other").pem)
    admin = confluent_kafka.Producer(
        {
            **librdkafka(secured, alice),
            "ssl.ca.location": other,
            "error_cb": lambda error: errors.append(str(error)),
        }
    )

    def is_told() -> bool:
        admin.poll(0.1)
        return any("verify failed" in error for error in errors)

    block_until(is_told)
