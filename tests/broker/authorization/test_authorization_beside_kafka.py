"""Alice's requests get the answers that Apache Kafka 3.9.1 gives in ZooKeeper mode, whatever her ACLs are.

tests/vectors/authorization has Kafka's answers, and recording.py says how they are recorded; `known.py` lists what
Odradek answers otherwise. A test with Kafka itself repeats a part of the requests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.testing import in_process_broker
from odradek.protocol.api_keys import ApiKey
from tests.broker.authorization.case import Case, Line, lines_of
from tests.broker.authorization.known import KNOWN, unexplained
from tests.broker.authorization.recording import (
    EVERYONE,
    REQUESTS,
    SCRIPTED,
    recorded_requests,
    recorded_scripts,
    write,
)
from tests.broker.authorization.script import Script, ScriptLine, script_lines
from tests.broker.authorization.stage import SETTINGS, Stage, stage_at
from tests.broker.authorization.tables import APIS, CASES, SCRIPTS
from tests.spawned_broker import free_port

FOR_EVERYONE = {"allow.everyone.if.no.acl.found": "true"}


@asynccontextmanager
async def our_stage(**more: str) -> AsyncIterator[Stage]:
    settings = {**SETTINGS, **more, "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    async with in_process_broker(settings) as broker, stage_at(broker.endpoints[0].port) as stage:
        yield stage


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
async def test_an_api_answers_as_kafka_does(api: ApiKey) -> None:
    kafkas = recorded_requests(everyone=False)
    cases = [case for case in CASES if case.api is api]
    async with our_stage() as stage:
        ours = [line for case in cases for line in await lines_of(case, stage, everyone=False)]
    assert ours
    assert "\n".join(_differences(kafkas, ours)) == ""


async def test_all_apis_answer_as_kafka_does_if_what_has_no_acl_is_for_everyone() -> None:
    kafkas = recorded_requests(everyone=True)
    async with our_stage(**FOR_EVERYONE) as stage:
        ours = [line for case in CASES for line in await lines_of(case, stage, everyone=True)]
    assert "\n".join(_differences(kafkas, ours)) == ""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name.replace(" ", "_"))
async def test_a_script_gets_kafkas_answers(script: Script) -> None:
    kafkas = recorded_scripts()
    async with our_stage() as stage:
        ours = await script_lines(script, stage)
    found = [difference for line in ours for difference in _script_differences(kafkas[line.key], line)]
    assert "\n".join(found) == ""


def test_everything_that_is_recorded_is_asked() -> None:
    names = {(case.api.name, version, case.name) for case in CASES for version in case.versions}
    recorded = recorded_requests(everyone=False).values()
    assert {(line.api, line.version, line.request) for line in recorded} == names
    last = {(case.api.name, case.versions[-1], case.name) for case in CASES}
    assert {(line.api, line.version, line.request) for line in recorded_requests(everyone=True).values()} == last
    played = {(script.api.name, version, script.name) for script in SCRIPTS for version in script.versions}
    assert {(line.api, line.version, line.script) for line in recorded_scripts().values()} == played


def _differences(kafkas: dict[str, Line], ours: list[Line]) -> Iterator[str]:
    for line in ours:
        expected = kafkas[line.key].by_state()
        found = line.by_state()
        assert found.keys() == expected.keys(), line.key
        for state, answer in found.items():
            yield from unexplained(line.key, state or "no ACL", expected[state], answer)


def _script_differences(kafka: ScriptLine, ours: ScriptLine) -> Iterator[str]:
    assert [about for about, _ in kafka.notes] == [about for about, _ in ours.notes]
    for (about, expected), (_, found) in zip(kafka.notes, ours.notes, strict=True):
        yield from unexplained(ours.key, about, expected, found)


def test_every_known_difference_is_one() -> None:
    """The texts of KNOWN match recorded lines."""
    keys = [line.key for line in recorded_requests(everyone=False).values()] + list(recorded_scripts())
    assert [known for known in KNOWN if not any(known.is_about(key) for key in keys)] == []


# Apache Kafka itself


@pytest.fixture
def control_stage(zookeeper: str, kafka_control: list[str], tmp_path: Path) -> Iterator[Any]:
    """A function that starts a broker of Apache Kafka with further settings, and returns its port."""
    started: list[Path] = []

    def start(**more: str) -> int:
        port = free_port()
        directory = tmp_path / f"kafka-{port}"
        address = f"SASL_PLAINTEXT://127.0.0.1:{port}"
        settings = {**SETTINGS, **more, "listeners": address, "advertised.listeners": address}
        lines = [f"{name}={value}" for name, value in {**settings, "log.index.size.max.bytes": "4096"}.items()]
        small = {**os.environ, "KOPTS": "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
        chroot = f"{zookeeper}/authorization-{port}"
        command = [*kafka_control, "zk-broker", settings["broker.id"], str(port), chroot, str(directory), *lines]
        subprocess.run(command, check=True, env=small)
        started.append(directory)
        return port

    yield start
    for directory in started:
        subprocess.run([*kafka_control, "stop", str(directory)], check=True)
        shutil.rmtree(directory)


@pytest.mark.timeout(600)
async def test_kafka_gives_the_recorded_answers(control_stage: Any) -> None:
    """Records all; compares a part, since all would take a minute."""
    is_recording = os.environ.get("ODRADEK_RECORD") == "1"
    for everyone, path in ((False, REQUESTS), (True, EVERYONE)):
        cases = CASES if is_recording else [_of_last_version(case) for case in CASES[:: 2 if everyone else 5]]
        async with stage_at(control_stage(**(FOR_EVERYONE if everyone else {}))) as stage:
            lines = [line for case in cases for line in await lines_of(case, stage, everyone=everyone)]
            notes = [] if everyone else [line for script in SCRIPTS for line in await script_lines(script, stage)]
        if is_recording:
            write(path, lines)
            if notes:
                write(SCRIPTED, notes)
        recorded = recorded_requests(everyone=everyone)
        assert {line.key: line.by_state() for line in lines} == {
            line.key: recorded[line.key].by_state() for line in lines
        }
        assert not notes or {line.key: line for line in notes} == recorded_scripts()


def _of_last_version(case: Case) -> Case:
    return case._replace(versions=case.versions[-1:])
