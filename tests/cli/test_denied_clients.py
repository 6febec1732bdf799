"""Every command says what its user may not do, at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.testing import BrokerThread
from tests.broker.handlers.sasl_broker import PLAIN_MODULE
from tests.cli.conftest import Odradek
from tests.cli.test_refused_clients import AT_ONCE_S, TIMEOUT_MS, login, of_the_command

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="alice-secret";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TOPIC, CLUSTER, GROUP, TRANSACTION = (
    f"{name}_AUTHORIZATION_FAILED: " for name in ("TOPIC", "CLUSTER", "GROUP", "TRANSACTIONAL_ID")
)
DENIED = {
    "topics create new": TOPIC,
    "topics describe secret": TOPIC,
    "topics alter seen --partitions 2": TOPIC,
    "topics delete seen": TOPIC,
    "configs describe --topic seen": TOPIC,
    "configs describe --broker 0": CLUSTER,
    "configs alter --topic seen --set retention.ms=1000": TOPIC,
    "configs alter --broker 0 --set log.retention.ms=1000": CLUSTER,
    "groups describe readers": GROUP,
    "groups delete readers": GROUP,
    "transactions describe t": TRANSACTION,
    "users list": CLUSTER,
    "users remove alice --mechanism SCRAM-SHA-256": CLUSTER,
    "acls list": CLUSTER,
    "acls add --allow-principal User:alice --topic seen": CLUSTER,
    "acls remove --topic seen": CLUSTER,
    "produce secret --file @": "cannot write to secret: [Error 29] TopicAuthorizationFailedError",
    "produce seen --acks 1 --file @": "cannot write to seen: [Error 29] TopicAuthorizationFailedError",
    "consume secret --exit": TOPIC,
    "consume seen --from-beginning --idle-ms 10000": "cannot read seen: [Error 29] TopicAuthorizationFailedError",
}
"""What alice learns, who may describe the topic `seen` and nothing else."""


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(SETTINGS) as broker:
        yield broker


@pytest.fixture
def alice(broker: BrokerThread, run_odradek: Odradek, tmp_path: Path) -> Callable[[str], tuple[int, str, str]]:
    """Runs a command as alice; @ is a file with a line."""
    for command in (
        "topics create seen --if-not-exists",
        "topics create secret --if-not-exists",
        "acls add --allow-principal User:alice --operation Describe --topic seen",
    ):
        assert run_odradek(*command.split(), "--bootstrap-server", broker.bootstrap)[0] == 0
    properties, lines = tmp_path / "client.properties", tmp_path / "lines"
    properties.write_text("\n".join(["security.protocol=SASL_PLAINTEXT", *login("alice-secret")]))
    lines.write_text("a line\n")
    address = f"127.0.0.1:{broker.broker.endpoints[1].port}"
    where = ("--bootstrap-server", address, "--command-config", str(properties), "--timeout-ms", str(TIMEOUT_MS))
    return lambda command: run_odradek(*command.replace("@", str(lines)).split(), *where)


@pytest.mark.parametrize("command", DENIED)
def test_a_denial_is_a_line(command: str, alice: Callable[[str], tuple[int, str, str]]) -> None:
    began = time.monotonic()
    status, out, err = alice(command)
    assert (status, out) == (1, "")
    (line,) = of_the_command(err)
    assert line.startswith(DENIED[command])
    assert time.monotonic() - began < AT_ONCE_S


def test_lists_show_what_a_user_may_see(alice: Callable[[str], tuple[int, str, str]]) -> None:
    assert alice("topics list")[:2] == (0, "seen\n")
    assert alice("groups list")[0] == 0
    assert alice("transactions list")[0] == 0
