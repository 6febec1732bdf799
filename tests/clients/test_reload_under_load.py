"""Clients lose nothing while the broker's certificate is replaced again and again, and their logins are renewed."""

from __future__ import annotations

import contextlib
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from cryptography import x509
from prometheus_client.parser import text_string_to_metric_families

from tests.clients.secured_broker import SecuredBroker, secured_broker
from tests.cluster.verifiable_producer import VerifiableProducer
from tests.cluster.writer import Writer
from tests.patience import PATIENCE_S, block_until
from tests.tls_files import NAMES
from tests.zookeeper.certificates import Signed

ROUNDS = 4
LIFETIME_MS = 1500
"""Clients renew their logins before this time is over. A broker does not let them do it within a second."""
PARTITIONS = 3
PER_SECOND = 500
LISTENERS, LISTENER = 2, "SASL_SSL"
WRITES_BY, JAVA_BY, READS_BY = "SCRAM-SHA-512", "PLAIN", "SCRAM-SHA-256"

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path, {"connections.max.reauth.ms": str(LIFETIME_MS)}, with_metrics=True) as secured:
        yield secured


class Reader:
    """Reads a topic from its beginning, over one consumer, until `stop`."""

    def __init__(self, secured: SecuredBroker, topic: str) -> None:
        self.read: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.errors: list[str] = []
        self._consumer = confluent_kafka.Consumer({**secured.librdkafka(READS_BY), "group.id": "reader"})
        self._consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(str(message.error()))
                continue
            partition, value = message.partition(), message.value()
            assert partition is not None
            assert isinstance(value, bytes)
            self.read[partition].append(int(value))

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(30)
        self._consumer.close()


def shown(secured: SecuredBroker) -> int:
    """The serial number of the certificate that a new connection is shown."""
    host, _, port = secured.broker.bootstrap.partition(":")
    pem = ssl.get_server_certificate((host, int(port)), ca_certs=secured.files.trusted)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def count(secured: SecuredBroker, name: str) -> float:
    """A counter of the listener in the broker's metrics."""
    assert secured.broker.metrics_url is not None
    with urllib.request.urlopen(secured.broker.metrics_url, timeout=PATIENCE_S) as response:
        text = response.read().decode()
    wanted = f"kafka_server_socket_server_metrics_{name}_total"
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return next(each.value for each in samples if each.name == wanted and each.labels == {"listener": LISTENER})


def replace(secured: SecuredBroker) -> Signed:
    """Writes a new certificate, which has the names of the one before; waits until it is used."""
    new = secured.files.authority.sign("broker", *NAMES)
    secured.files.write("broker.pem", new.pem)
    block_until(lambda: shown(secured) == new.certificate.serial_number)
    return new


def connects(secured: SecuredBroker) -> None:
    """A new client, which verifies the broker's certificate."""
    admin = confluent_kafka.Consumer({**secured.librdkafka(READS_BY), "group.id": "unused"})
    assert admin.list_topics(timeout=PATIENCE_S).brokers
    admin.close()


def test_replaced_certificates_and_renewed_logins_lose_nothing(
    secured: SecuredBroker, java_tools: list[str], tmp_path: Path
) -> None:
    address = secured.broker.bootstrap
    with contextlib.ExitStack() as ends:
        writer = Writer(address, "numbers", PARTITIONS, PER_SECOND, secured.librdkafka(WRITES_BY))
        ends.callback(writer.stop)
        java = VerifiableProducer(java_tools, address, "java", PARTITIONS, PER_SECOND, tmp_path, secured.java(JAVA_BY))
        ends.callback(java.close)
        writer.until_acknowledged()
        java.until_acknowledged()
        reader = Reader(secured, "numbers")
        ends.callback(reader.stop)
        for _ in range(ROUNDS):
            renewed = count(secured, "successful_reauthentication")
            replace(secured)
            connects(secured)
            block_until(lambda renewed=renewed: count(secured, "successful_reauthentication") >= renewed + 3)  # type: ignore[misc]
            writer.until_acknowledged()
            java.until_acknowledged()
        java.finish()
        writer.finish()
        block_until(lambda: sum(map(len, reader.read)) == PARTITIONS * writer.count)
        reader.stop()
    assert reader.read == [list(range(writer.count)) for _ in range(PARTITIONS)]
    assert reader.errors == []
    security = secured.librdkafka(READS_BY)
    writer.assert_written_once_and_in_order(address, security)
    java.assert_written_once_and_in_order(address, security)
    assert secured.broker.log_text().count("certificates replaced") == LISTENERS * ROUNDS
    assert count(secured, "failed_reauthentication") == count(secured, "failed_authentication") == 0
