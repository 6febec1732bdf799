"""Every command that connects says at once, in a line, why a secured listener does not serve it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.testing import BrokerThread
from tests.broker.handlers.sasl_broker import PLAIN_MODULE
from tests.cli.conftest import Odradek
from tests.tls_files import TlsFiles
from tests.zookeeper.certificates import Authority

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
COMMANDS = [
    "topics list",
    "topics create orders",
    "topics describe",
    "topics alter orders --partitions 2",
    "topics delete orders",
    "cluster describe",
    "cluster watch --times 1",
    "configs describe --broker 0",
    "configs alter --broker 0 --set log.retention.ms=1000",
    "groups list",
    "groups describe readers",
    "transactions list",
    "transactions describe t",
    "users list",
    "users remove alice",
    "acls list",
    "produce orders --file /dev/null",
    "consume orders --exit",
]
TIMEOUT_MS = 240_000
AT_ONCE_S = 120
"""A machine may be slow; a command that waits for its timeout takes longer."""


class Secured(NamedTuple):
    """A broker with a listener of each protocol, and property files of clients."""

    broker: BrokerThread
    files: TlsFiles

    def address(self, protocol: str) -> str:
        port = next(each.port for each in self.broker.broker.endpoints if each.name == protocol)
        return f"127.0.0.1:{port}"

    def client(self, *lines: str) -> str:
        number = len(list(self.files.directory.iterdir()))
        return self.files.write(f"client{number}.properties", "\n".join(lines).encode())

    def trusting(self, protocol: str) -> list[str]:
        return [
            f"security.protocol={protocol}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.files.trusted}",
        ]


def login(password: str, mechanism: str = "PLAIN") -> list[str]:
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    jaas = f'{module} required username="alice" password="{password}";'
    return [f"sasl.mechanism={mechanism}", f"sasl.jaas.config={jaas}"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    files = TlsFiles(directory)
    protocols = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    credentials = files.write("credentials", b"SCRAM-SHA-256=[name=alice,password=alice-secret]\n")
    alice = f'{PLAIN_MODULE} required user_alice="alice-secret";'
    settings = {
        **files.stores(),
        "listeners": ",".join(f"{each}://127.0.0.1:0" for each in protocols),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        **{f"listener.name.{each.lower()}.plain.sasl.jaas.config": alice for each in protocols[2:]},
        "odradek.scram.credentials.file": credentials,
    }
    with BrokerThread(settings) as broker:
        yield Secured(broker, files)


def of_the_command(err: str) -> list[str]:
    """The lines that are not of the broker, which runs in this process."""
    return [line.removeprefix("odradek: ") for line in err.splitlines() if line.startswith("odradek: ")]


@pytest.fixture(params=COMMANDS)
def refused(request: pytest.FixtureRequest, run_odradek: Odradek) -> Callable[..., str]:
    """Runs a command that fails, and returns its line."""

    def run(address: str, *more: str) -> str:
        began = time.monotonic()
        where = ("--bootstrap-server", address, "--timeout-ms", str(TIMEOUT_MS), *more)
        status, out, err = run_odradek(*request.param.split(), *where)
        assert time.monotonic() - began < AT_ONCE_S
        if request.param.startswith("cluster watch") and "not reached" in out:
            return out.partition("not reached: ")[2].strip()
        assert status == 1
        assert out == ""
        (line,) = of_the_command(err)
        return line

    return run


def test_a_wrong_password(secured: Secured, refused: Callable[..., str]) -> None:
    file = secured.client(*secured.trusting("SASL_SSL"), *login("wrong-secret"))
    address = secured.address("SASL_SSL")
    line = refused(address, "--command-config", file)
    assert line == (
        f"{address} refuses the login of alice by PLAIN: SASL_AUTHENTICATION_FAILED: "
        "Authentication failed: Invalid username or password"
    )


def is_told_to_secure_itself(line: str, address: str) -> bool:
    """`cluster watch` shows what happens, and goes on."""
    hint = "; if its listener has TLS or a login, say so in a file for --command-config"
    return line in (f"{address} closed the connection", f"{address} closed the connection{hint}")


def test_a_login_that_is_needed_and_not_given(secured: Secured, refused: Callable[..., str]) -> None:
    address = secured.address("SASL_PLAINTEXT")
    assert is_told_to_secure_itself(refused(address), address)


def test_tls_that_is_needed_and_not_given(secured: Secured, refused: Callable[..., str]) -> None:
    address = secured.address("SASL_SSL")
    assert is_told_to_secure_itself(refused(address), address)


def test_an_untrusted_certificate(secured: Secured, refused: Callable[..., str]) -> None:
    other = secured.files.write("other.pem", Authority().pem)
    lines = ["security.protocol=SSL", "ssl.truststore.type=PEM", f"ssl.truststore.location={other}"]
    address = secured.address("SSL")
    line = refused(address, "--command-config", secured.client(*lines))
    assert line.startswith(f"cannot connect to {address}: TLS failed: the certificate is not accepted: ")


def run_against(secured: Secured, run_odradek: Odradek, protocol: str, *lines: str) -> str:
    where = ("--bootstrap-server", secured.address(protocol), "--command-config", secured.client(*lines))
    status, _, err = run_odradek("topics", "list", *where)
    assert status == 1
    (line,) = of_the_command(err)
    return line


def test_a_wrong_password_of_scram(secured: Secured, run_odradek: Odradek) -> None:
    lines = [*secured.trusting("SASL_SSL"), *login("wrong-secret", "SCRAM-SHA-256")]
    err = run_against(secured, run_odradek, "SASL_SSL", *lines)
    assert "refuses the login of alice by SCRAM-SHA-256: SASL_AUTHENTICATION_FAILED: " in err
    assert "secret" not in err


def test_tls_where_there_is_none(secured: Secured, run_odradek: Odradek) -> None:
    err = run_against(secured, run_odradek, "PLAINTEXT", *secured.trusting("SSL"))
    assert err.endswith(": the TLS handshake got no answer: its listener may have no TLS")


def test_a_login_where_there_is_none(secured: Secured, run_odradek: Odradek) -> None:
    lines = ["security.protocol=SASL_PLAINTEXT", *login("alice-secret")]
    err = run_against(secured, run_odradek, "PLAINTEXT", *lines)
    assert "refuses the login of alice by PLAIN: ILLEGAL_SASL_STATE" in err


def test_a_login_without_tls_where_both_are_needed(secured: Secured, run_odradek: Odradek) -> None:
    lines = ["security.protocol=SASL_PLAINTEXT", *login("alice-secret")]
    err = run_against(secured, run_odradek, "SASL_SSL", *lines)
    assert err.endswith("closed the connection; its listener may need another security.protocol than SASL_PLAINTEXT")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_commands_log_in_with_a_password_from_a_provider(
    secured: Secured, run_odradek: Odradek, mechanism: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ALICE", "alice-secret")
    lines = [
        *secured.trusting("SASL_SSL"),
        *login("${env:ALICE}", mechanism),
        "config.providers=env",
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    ]
    where = ("--bootstrap-server", secured.address("SASL_SSL"), "--command-config", secured.client(*lines))
    topic = f"of-{mechanism.lower()}"
    assert run_odradek("topics", "create", topic, *where) == (0, f"{topic} created\n", "")
    (tmp_path / "lines").write_text("one\n")
    file = str(tmp_path / "lines")
    assert run_odradek("produce", topic, "--file", file, *where) == (0, "", f"1 record written to {topic}\n")
    assert run_odradek("consume", topic, "--from-beginning", "--exit", *where)[:2] == (0, "one\n")


def test_an_error_in_a_property_file_shows_no_password(
    secured: Secured, run_odradek: Odradek, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALICE", 'Marker-"17')
    lines = [
        "security.protocol=SASL_PLAINTEXT",
        *login("${env:ALICE}"),
        "config.providers=env",
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    ]
    err = run_against(secured, run_odradek, "SASL_PLAINTEXT", *lines)
    assert err.startswith("sasl.jaas.config:1: ")
    assert "Marker" not in err
