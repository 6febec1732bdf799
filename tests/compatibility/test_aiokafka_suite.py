"""aiokafka's own tests of SASL, TLS, ACLs and its admin client pass against our broker as against Apache Kafka.

The others of its tests, which take minutes, need no security.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compatibility.suite import SETTINGS, Suite, failures
from tests.spawned_broker import free_port, spawned_broker
from tests.zookeeper.certificates import Authority

SELECTED = "sasl or ssl or test_admin"
PASS_WITH_KAFKA = 33
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_admin="admin" user_test="test" user_test2="test2";'
)
"""As the suite knows the users."""


@pytest.mark.timeout(600)
def test_every_secured_test_that_passes_against_kafka_passes(tmp_path: Path, aiokafka_suite: list[str]) -> None:
    sasl, ssl = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    certificates = tmp_path / "certificates"
    settings = {
        **SETTINGS,
        "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://{sasl},SSL://{ssl}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "ssl.client.auth": "required",
        "ssl.keystore.location": str(certificates / "server.pem"),
        "ssl.truststore.location": str(certificates / "ca.crt"),
    }
    write_certificates(certificates)
    suite = Suite(aiokafka_suite, tmp_path, {"SASL": sasl, "SSL": ssl, "SSL_FILES": str(certificates)})
    with spawned_broker(tmp_path / "data", settings) as broker:
        outcomes = suite.run(broker.bootstrap, "-k", SELECTED)
    assert not failures(outcomes), f"{failures(outcomes)}\n{suite.output[-6000:]}"
    assert list(outcomes.values()).count("passed") == PASS_WITH_KAFKA, suite.output[-6000:]


def write_certificates(directory: Path) -> None:
    """Writes what the broker and the suite need, under the names that the suite knows."""
    authority = Authority()
    client = authority.sign("client")
    directory.mkdir()
    for name, content in {
        "ca.crt": authority.pem,
        "server.pem": authority.sign("server", "localhost", "127.0.0.1").pem,
        "client.crt": client.chain_pem,
        "client.key": client.key_pem,
    }.items():
        (directory / name).write_bytes(content)
