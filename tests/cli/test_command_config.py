"""The commands against brokers whose clients show certificates, or log in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.testing import BrokerThread, Security
from tests.cli.conftest import Odradek
from tests.spawned_broker import spawned_broker
from tests.tls_files import TlsFiles


class Secured(NamedTuple):
    files: TlsFiles
    bootstrap: str


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    files = TlsFiles(directory)
    with spawned_broker(directory / "data", files.listener("required")) as broker:
        yield Secured(files, broker.bootstrap)


@pytest.fixture
def properties(secured: Secured) -> str:
    return secured.files.property_file("client.properties", secured.files.authority.sign("alice"))


def test_commands_connect_as_their_file_says(
    secured: Secured, properties: str, run_odradek: Odradek, tmp_path: Path
) -> None:
    where = ("--bootstrap-server", secured.bootstrap, "--command-config", properties)
    assert run_odradek("topics", "create", "orders", *where) == (0, "orders created\n", "")
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    assert run_odradek("produce", "orders", "--file", str(lines), *where) == (0, "", "2 records written to orders\n")
    status, out, _ = run_odradek("consume", "orders", "--from-beginning", "--exit", *where)
    assert (status, out) == (0, "one\ntwo\n")
    status, out, _ = run_odradek("groups", "list", *where)
    assert status == 0


def test_a_client_without_its_certificate_is_told_why(secured: Secured, run_odradek: Odradek) -> None:
    file = secured.files.property_file("anonymous.properties")
    status, out, err = run_odradek("topics", "list", "--bootstrap-server", secured.bootstrap, "--command-config", file)
    assert (status, out) == (1, "")
    assert err == f"odradek: {secured.bootstrap} closed the connection: tlsv13 alert certificate required\n"


def test_a_plain_client_is_told_that_the_broker_has_gone(secured: Secured, run_odradek: Odradek) -> None:
    status, out, err = run_odradek("topics", "list", "--bootstrap-server", secured.bootstrap)
    assert (status, out) == (1, "")
    assert err.startswith("odradek: ")
    assert len(err.splitlines()) == 1


def test_a_file_that_cannot_be_read_is_named(run_odradek: Odradek) -> None:
    status, _, err = run_odradek("topics", "list", "--command-config", "/no/such/file")
    assert (status, err) == (1, "odradek: cannot read /no/such/file: No such file or directory\n")


@pytest.fixture(scope="module")
def logins() -> Iterator[BrokerThread]:
    with BrokerThread(security=Security("SASL_SSL", users={"alice": "alice-secret"})) as broker:
        yield broker


COMMANDS = {
    "topics": ("list",),
    "groups": ("list",),
    "configs": ("describe", "--topic", "t"),
    "produce": ("t", "--file", "{lines}"),
    "consume": ("t", "--from-beginning", "--exit"),
    "transactions": ("list",),
    "cluster": ("describe",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_logs_in_and_a_wrong_password_says_so(
    command: str, logins: BrokerThread, run_odradek: Odradek, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("value\n")
    rest = [part.format(lines=lines) for part in COMMANDS[command]]
    right, wrong = tmp_path / "right.properties", tmp_path / "wrong.properties"
    right.write_text(logins.client_properties("alice"))
    wrong.write_text(logins.client_properties("alice").replace("alice-secret", "wrong-secret"))
    where = ("--bootstrap-server", logins.bootstrap, "--command-config")
    run_odradek("topics", "create", "t", *where, str(right))
    status, _, err = run_odradek(command, *rest, *where, str(right))
    assert status == 0, err
    status, out, err = run_odradek(command, *rest, *where, str(wrong))
    assert (status, out) == (1, "")
    refused = f"odradek: {logins.bootstrap} refuses the login of alice by SCRAM-SHA-512: SASL_AUTHENTICATION_FAILED: "
    assert err.splitlines()[-1].startswith(refused), "the broker in this process logs there, too"
    assert "secret" not in err


def test_a_client_that_does_not_trust_the_broker_is_told_so(
    logins: BrokerThread, run_odradek: Odradek, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    lines = logins.client_properties("alice").splitlines(keepends=True)
    file.write_text("".join(line for line in lines if not line.startswith("ssl.truststore")))
    status, _, err = run_odradek(
        "topics", "list", "--bootstrap-server", logins.bootstrap, "--command-config", str(file)
    )
    assert status == 1
    assert "TLS failed: the certificate is not accepted: " in err.splitlines()[-1]
