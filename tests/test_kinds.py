"""`make test` needs nothing but an installed Odradek, and `make test-all` runs what it leaves out."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests import kinds

ROOT = Path(__file__).parent.parent
FILES = [
    "tests/clients/test_produce_and_consume.py",
    "tests/broker/background/test_stepwise.py",
    "tests/scenarios/test_kill_minus_nine.py",
]


def collected(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.long
def test_programs_second_loops_and_long_loops_have_a_separate_run() -> None:
    quick, rest = collected(*FILES), collected("--kinds=programs,second_loop,long", *FILES)
    names = {line.partition("::")[2].partition("[")[0] for line in quick}
    assert {
        "test_kafka_python_reads_back_what_it_wrote",
        "test_aiokafka_reads_back_what_it_wrote",
        "test_confluent_kafka_reads_back_what_it_wrote",
    } <= names
    assert (
        not {
            "test_kcat_reads_back_what_it_wrote",
            "test_franz_go_reads_back_what_it_wrote",
            "test_java_console_tools_read_back_what_they_wrote",
        }
        & names
    )
    assert {line for line in rest if "clients" in line and "[zstd]" in line} == {
        f"{FILES[0]}::{name}[zstd]"
        for name in (
            "test_kcat_reads_back_what_it_wrote",
            "test_franz_go_reads_back_what_it_wrote",
            "test_java_console_tools_read_back_what_they_wrote",
        )
    }
    assert not [line for line in quick if FILES[2] in line]
    assert [line for line in rest if FILES[2] in line]
    again = {line for line in rest if FILES[1] in line}
    assert again
    assert again < {line for line in quick if FILES[1] in line}, "the same tests, by another loop"


def test_files_with_slow_tests_come_first() -> None:
    files = list(dict.fromkeys(line.partition("::")[0] for line in collected("--kinds=all", *reversed(FILES))))
    assert files == [FILES[0], FILES[2], FILES[1]]


def test_packages_that_only_the_pipeline_needs_are_hidden_from_other_tests() -> None:
    assert kinds.packages_of("spark") >= {"pyspark", "pyarrow", "deltalake", "numpy"}
    for package in kinds.packages_of("spark"):
        with pytest.raises(ModuleNotFoundError, match="is hidden: this run leaves out"):
            importlib.import_module(package)


def test_an_unknown_kind_is_a_usage_error() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "--kinds=quick,slow", "tests/timer"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--kinds: slow is not among quick, programs" in done.stderr
