"""A test fails whose output has a secret, and says where, without the secret."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = """
import logging, sys
import pytest, structlog
from structlog.testing import capture_logs
from tests.shown_secrets import MARKER, look_into

PASSWORD = "alice" + MARKER
KEY = "-----BEGIN PRIVATE" + " KEY-----"

def test_print():
    print("user alice", PASSWORD)

def test_stderr():
    print(KEY, file=sys.stderr)

def test_logging():
    logging.getLogger("kafka").warning("login %s", PASSWORD)

def test_structlog():
    structlog.get_logger().warning("login", password=PASSWORD)

def test_captured():
    with capture_logs():
        structlog.get_logger().warning("login", error=ValueError(PASSWORD))

def test_credential():
    print("salt=abc,stored_key" + "=abc")

def test_log_of_a_broker():
    look_into("x " + PASSWORD, "log of a broker")

@pytest.fixture
def printing():
    yield
    print(PASSWORD)

def test_teardown(printing):
    pass

@pytest.mark.shows_secrets("the password was asked for")
def test_allowed():
    print(PASSWORD)

def test_harmless():
    print("a secret, in secret, with top-secrets of the user alice; stored_key=")
    with capture_logs():
        structlog.get_logger().warning("authentication failed", user="alice")
"""


def test_a_test_that_shows_a_secret_fails(tmp_path: Path) -> None:
    file = tmp_path / "test_shown.py"
    file.write_text(TESTS)
    options = ["-p", "tests.shown_secrets", "-p", "no:cacheprovider", "-c", "/dev/null", "-rA", "--show-capture=no"]
    command = [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    outcomes = {
        (words[0], words[1].rpartition("::")[2])
        for words in map(str.split, done.stdout.splitlines())
        if words and words[0] in ("PASSED", "FAILED", "ERROR") and "::" in words[1]
    }
    shown = ("print", "stderr", "logging", "structlog", "captured", "credential", "log_of_a_broker")
    assert outcomes == {
        *(("FAILED", f"test_{name}") for name in shown),
        ("PASSED", "test_teardown"),
        ("ERROR", "test_teardown"),
        ("PASSED", "test_allowed"),
        ("PASSED", "test_harmless"),
    }, done.stdout
    assert "Captured stdout call: user alice (a secret)" in done.stdout
    assert "alice-secret" not in done.stdout
