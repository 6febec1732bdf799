"""The commands against a broker that has only a listener with TLS, and requires certificates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

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
