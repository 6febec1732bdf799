"""Kafka's own parser reads every response that a fault fails; services in Java and Go ask for faults by HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.clients.program_clients import run
from tests.protocol.vector_files import table
from tests.testing.faults.failed_answers import CODE, CORRELATION_ID, failed_answers


class Control(NamedTuple):
    bootstrap: str
    url: str
    token: str


@pytest.fixture
def controlled(tmp_path: Path) -> Iterator[Control]:
    command = [
        sys.executable,
        "-m",
        "odradek.broker",
        "--port",
        "0",
        "--data-dir",
        str(tmp_path),
        "--test-control",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        _, url, token = process.stdout.readline().split()
        yield Control(process.stdout.readline().split()[1], url, token)
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.timeout(300)
def test_kafka_s_parser_finds_the_code_in_every_version_of_every_api(
    java_programs: list[str], newest_java_programs: list[str]
) -> None:
    """The parser of 4.4 reads what that of 3.9 does not know yet."""
    answers = list(failed_answers())
    lines = "".join(f"{each.key} {each.version} {CORRELATION_ID} {each.frame.hex()}\n" for each in answers)
    older, newer = (
        run([*programs, "odradek.Parser"], lines.encode()).decode().splitlines()
        for programs in (java_programs, newest_java_programs)
    )
    highest = {api["key"]: api["maxVersion"] for api in table("apis.json")}
    read = [
        old if each.version <= highest.get(each.key, -1) else new
        for each, old, new in zip(answers, older, newer, strict=True)
    ]
    found = [{word.split("=")[0] for word in line.split(" ")[2:]} for line in read]
    assert [line for line, names in zip(read, found, strict=True) if names - {"NONE"} != {CODE}] == []


@pytest.mark.timeout(300)
def test_a_java_service_meets_a_fault_that_it_has_asked_for(java_programs: list[str], controlled: Control) -> None:
    out = run([*java_programs, "odradek.Controlled", *controlled]).decode()
    assert out.splitlines() == ["offset 0", "failed true", "repeated true"]


@pytest.mark.timeout(300)
def test_a_go_service_meets_a_fault_that_it_has_asked_for(franz_go: Path, controlled: Control) -> None:
    out = run([str(franz_go), "controlled", *controlled]).decode()
    assert out.splitlines() == ["offset 0", "lost false", "repeated true"]
