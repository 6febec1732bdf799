"""What a broker imports until it serves: the imports take most of the processor time of its start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

PROGRAM = """
import os, sys
from odradek.cli.__main__ import main
import odradek.broker.quick_imports
from odradek.broker import serve

def ready(line):
    if line.startswith("ready"):
        open(sys.argv[1] + "/imported", "w").write(" ".join(sys.modules))
        os._exit(0)

serve._print_line = ready
main(["serve", "--port", "0", "--data-dir", sys.argv[1] + "/data"])
"""
MOST_OF_OURS = 478
"""Room for a few more than there are. Before you raise it: does a broker need them before its first client?"""
NOT_NEEDED = {
    "crc32c._cli",
    "dataclasses",
    "pickle",
    "platform",
    "rich",
    "shutil",
    "odradek.broker.metadata_store.zookeeper",
    "odradek.clients.network_client",
    "odradek.broker.replica.follower.fetcher",
    "odradek.broker.security.cipher_suites",
    "odradek.broker.security.principal_mapping",
    "odradek.broker.security.sasl.authentication",
    "odradek.broker.settings.connect_string",
    "odradek.testing",
    "odradek.protocol.codecs",
    "odradek.storage.cleaner.cleaner",
}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    directory = tmp_path_factory.mktemp("start")
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory)], timeout=PATIENCE_S, check=True, stderr=subprocess.DEVNULL
    )
    return set((directory / "imported").read_text().split())


def test_a_broker_serves_before_it_imports_what_it_may_never_need(imported: set[str]) -> None:
    of_asyncio = set(run("import asyncio", "print(*sys.modules)").split())  # dataclasses, from Python 3.14 on
    assert imported & (NOT_NEEDED - of_asyncio) == set()


def test_a_broker_imports_no_more_of_our_modules_than_it_did(imported: set[str]) -> None:
    assert len([name for name in imported if name.startswith("odradek.")]) <= MOST_OF_OURS


def run(*lines: str, path: Path | None = None) -> str:
    """Runs a program; returns what it prints."""
    program = "\n".join(("import sys", *([] if path is None else [f"sys.path.insert(0, {str(path)!r})"]), *lines))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_modules_of_structlog_are_loaded_when_they_are_used() -> None:
    shown = run(
        "import asyncio",
        "of_asyncio = set(sys.modules)",
        "import odradek.broker.quick_imports, structlog",
        "print('dataclasses' in set(sys.modules) - of_asyncio)",
        "structlog.get_logger().info('by default', topic='orders')",
        "structlog.configure([structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()])",
        "try: 1 / 0",
        "except ZeroDivisionError: structlog.get_logger().error('failed', exc_info=True)",
        "print(structlog.stdlib.BoundLogger.__name__, structlog.threadlocal.wrap_dict.__name__, 'rich' in sys.modules)",
    )
    not_yet, line, failure, loaded = shown.splitlines()
    assert not_yet == "False"
    assert "by default" in line
    assert "orders" in line
    assert '"exc_type": "ZeroDivisionError"' in failure
    assert loaded == "BoundLogger wrap_dict False"


def test_a_release_of_structlog_that_needs_more_of_its_modules_is_imported_whole(tmp_path: Path) -> None:
    package = tmp_path / "structlog"
    package.mkdir()
    (package / "__init__.py").write_text("from structlog.dev import Another\n")
    (package / "dev.py").write_text("class Another: pass\n")
    shown = run("import odradek.broker.quick_imports, structlog", "print(structlog.Another.__module__)", path=tmp_path)
    assert shown == "structlog.dev\n"
