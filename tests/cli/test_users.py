"""`odradek users` against a broker whose clients log in by SCRAM."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import BrokerThread
from tests.cli.conftest import Odradek
from tests.cli.test_refused_clients import SCRAM_MODULE

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(SETTINGS) as broker:
        yield broker


@pytest.fixture
def odradek(broker: BrokerThread, run_odradek: Odradek) -> Odradek:
    return lambda *arguments: run_odradek("users", *arguments, "--bootstrap-server", broker.bootstrap)


@pytest.fixture
def logs_in(broker: BrokerThread, run_odradek: Odradek, tmp_path: Path) -> Odradek:
    """Whether a user can log in: user, password, mechanism."""

    def attempt(user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> tuple[int, str, str]:
        port = broker.broker.endpoints[1].port
        file = tmp_path / "client.properties"
        jaas = f'{SCRAM_MODULE} required username="{user}" password="{password}";'
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n", "utf-8"
        )
        where = ("--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(file))
        return run_odradek("topics", "list", *where)

    return attempt


def test_a_password_from_a_file_lets_a_user_in(odradek: Odradek, logs_in: Odradek, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("alice secret\nsecond line\n")
    options = ("--mechanism", "SCRAM-SHA-512", "--mechanism", "SCRAM-SHA-256", "--iterations", "8192")
    said = "alice has a password for SCRAM-SHA-512, SCRAM-SHA-256\n"
    assert odradek("set", "alice", "--password-file", str(file), *options) == (0, said, "")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert logs_in("alice", "alice secret", mechanism)[0] == 0
    assert logs_in("alice", "alice")[0] == 1


def test_a_password_from_stdin_replaces_another(
    odradek: Odradek, logs_in: Odradek, monkeypatch: pytest.MonkeyPatch
) -> None:
    for password in ("first", "second"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{password}\n"))
        assert odradek("set", "bob")[0] == 0
    assert logs_in("bob", "first")[0] == 1
    assert logs_in("bob", "second")[0] == 0


def test_users_are_listed_with_their_mechanisms(odradek: Odradek, monkeypatch: pytest.MonkeyPatch) -> None:
    for user in ("carol", "dave"):
        monkeypatch.setattr(sys, "stdin", io.StringIO("secret\n"))
        assert odradek("set", user, "--iterations", "5000")[0] == 0
    status, out, _ = odradek("list")
    assert status == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["USER", "MECHANISM", "ITERATIONS"]
    assert [row for row in rows if row[0] in ("carol", "dave")] == [
        [u, "SCRAM-SHA-256", "5000"] for u in ("carol", "dave")
    ]
    assert json.loads(odradek("list", "carol", "--json")[1]) == {"carol": {"SCRAM-SHA-256": 5000}}


def test_a_user_without_a_password_cannot_log_in_any_more(
    odradek: Odradek, logs_in: Odradek, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("secret"))
    odradek("set", "eve", "--mechanism", "SCRAM-SHA-512", "--mechanism", "SCRAM-SHA-256")
    said = "eve has no password any more for SCRAM-SHA-256, SCRAM-SHA-512\n"
    assert odradek("remove", "eve") == (0, said, "")
    assert logs_in("eve", "secret")[0] == 1
    status, out, err = odradek("remove", "eve")
    assert (status, out) == (1, "")
    assert err.endswith("RESOURCE_NOT_FOUND: Attempt to describe a user credential that does not exist: eve\n")


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_password_is_refused(odradek: Odradek, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert odradek("set", "frank") == (1, "", "odradek: the password is empty\n")


def test_a_file_that_cannot_be_read_is_named(odradek: Odradek) -> None:
    problem = "odradek: cannot read /no/such/file: No such file or directory\n"
    assert odradek("set", "frank", "--password-file", "/no/such/file") == (1, "", problem)


def test_the_brokers_refusal_is_shown(odradek: Odradek, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("secret"))
    status, _, err = odradek("set", "frank", "--iterations", "20000")
    assert status == 1
    assert "UNACCEPTABLE_CREDENTIAL: Too many iterations" in err
    assert "secret" not in err


def on_a_terminal(broker: BrokerThread, *answers: str) -> tuple[int, str]:
    """Runs `users set grace` on a terminal, and answers its questions. Returns its status and all that it shows."""
    here, there = pty.openpty()
    command = [sys.executable, "-m", "odradek.cli", "users", "set", "grace", "--bootstrap-server", broker.bootstrap]
    process = subprocess.Popen(command, stdin=there, stdout=there, stderr=there, start_new_session=True)
    os.close(there)
    shown = b""
    with open(here, "r+b", buffering=0) as terminal:
        for answer in answers:
            while not shown.endswith(b": "):
                shown += terminal.read(1000)
            terminal.write(f"{answer}\n".encode())
            shown += b"\n"
        while True:
            try:
                more = terminal.read(1000)
            except OSError:  # nobody has the other end any more
                break
            if not more:
                break
            shown += more
    return process.wait(20), shown.decode()


def test_a_terminal_asks_twice_and_shows_nothing(broker: BrokerThread, logs_in: Odradek) -> None:
    status, shown = on_a_terminal(broker, "typed-secret", "typed-secret")
    assert status == 0
    assert "typed-secret" not in shown
    assert logs_in("grace", "typed-secret")[0] == 0
    status, shown = on_a_terminal(broker, "one", "another")
    assert status == 1
    assert "the passwords differ" in shown
