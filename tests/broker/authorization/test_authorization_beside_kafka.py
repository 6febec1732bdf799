"""Alice's requests get the answers that Apache Kafka 3.9.1 gives in ZooKeeper mode, whatever her ACLs are.

tests/vectors/authorization has Kafka's answers, and recording.py says how they are recorded; `known.py` lists what
Odradek answers otherwise. A test with Kafka itself repeats a part of the requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from odradek.broker.handlers.api_table import api_table
from odradek.protocol.api_keys import ApiKey
from odradek.testing import in_process_broker
from tests.beside_kafka.control import SMALL_INDEXES, apache_broker
from tests.beside_kafka.known import Comparison
from tests.beside_kafka.recordings import IS_RECORDING
from tests.broker.authorization.case import Case, Line, lines_of
from tests.broker.authorization.known import KNOWN, is_a_text
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
from tests.broker.authorization.tables import CASES, SCRIPTS, TABLES
from tests.soak import SOAK

Kafka = tuple[list[str], str, Path]
"""The control, the address of ZooKeeper, and a directory."""
FOR_EVERYONE = {"allow.everyone.if.no.acl.found": "true"}


@asynccontextmanager
async def our_stage(**more: str) -> AsyncIterator[Stage]:
    settings = {**SETTINGS, **more, "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    async with in_process_broker(settings) as broker, stage_at(broker.endpoints[0].port) as stage:
        yield stage


@pytest.mark.parametrize("is_thorough", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("about", TABLES)
async def test_every_request_is_answered_as_by_kafka(about: str, is_thorough: bool) -> None:
    async with our_stage() as stage:
        ours = await answers_to(TABLES[about], stage, is_thorough=is_thorough)
    compared(recorded_requests(everyone=False), ours).check(line.key for line in ours)


async def test_all_apis_answer_as_kafka_does_if_what_has_no_acl_is_for_everyone() -> None:
    async with our_stage(**FOR_EVERYONE) as stage:
        ours = await answers_to(CASES, stage, everyone=True)
    comparison = compared(recorded_requests(everyone=True), ours)
    assert not comparison.unexplained, "\n".join(comparison.unexplained)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name.replace(" ", "_"))
async def test_a_script_gets_kafkas_answers(script: Script) -> None:
    """On a broker of its own: scripts need what only a new one has."""
    kafkas = recorded_scripts()
    async with our_stage() as stage:
        ours = await script_lines(script, stage)
    comparison = Comparison(KNOWN, is_a_text)
    for line in ours:
        recorded = kafkas[line.key].notes
        assert [about for about, _ in recorded] == [about for about, _ in line.notes]
        for (about, expected), (_, found) in zip(recorded, line.notes, strict=True):
            comparison.compare(line.key, about, expected, found)
    comparison.check(line.key for line in ours)


async def answers_to(cases: Sequence[Case], stage: Stage, **how: bool) -> list[Line]:
    """`how`: see `lines_of`."""
    how = {"everyone": False, **how}
    return [line for case in cases for line in await lines_of(case, stage, **how)]


def compared(kafkas: dict[str, Line], ours: list[Line]) -> Comparison:
    comparison = Comparison(KNOWN, is_a_text)
    for line in ours:
        expected, found = kafkas[line.key].by_state(), line.by_state()
        assert found.keys() <= expected.keys(), line.key
        for state, answer in found.items():
            comparison.compare(line.key, state, expected[state], answer)
    return comparison


OF_4_4 = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
}
"""Kafka 3.9 does not serve these on ZooKeeper; tests/broker/handlers has a test of each."""


def test_everything_that_is_recorded_is_asked() -> None:
    names = {(case.api.name, version, case.name) for case in CASES for version in case.versions}
    recorded = recorded_requests(everyone=False).values()
    assert {(line.api, line.version, line.request) for line in recorded} == names
    last = {(case.api.name, case.versions[-1], case.name) for case in CASES}
    assert {(line.api, line.version, line.request) for line in recorded_requests(everyone=True).values()} == last
    played = {(script.api.name, version, script.name) for script in SCRIPTS for version in script.versions}
    assert {(line.api, line.version, line.script) for line in recorded_scripts().values()} == played


def test_every_api_of_clients_is_asked() -> None:
    asked = {case.api for case in CASES}
    assert {row.key for row in api_table().client_rows()} - asked == OF_4_4


# Apache Kafka itself


async def of_kafka(
    kafka: Kafka, cases: Sequence[Case], scripts: Sequence[Script], *, everyone: bool
) -> tuple[list[Line], list[ScriptLine]]:
    """What Apache Kafka answers now. The scripts come first: they need what only a new broker has."""
    settings = {**SETTINGS, **(FOR_EVERYONE if everyone else {}), **SMALL_INDEXES}
    with apache_broker(*kafka, settings, protocol="SASL_PLAINTEXT", broker_id=SETTINGS["broker.id"]) as port:
        async with stage_at(port) as stage:
            notes = [line for script in scripts for line in await script_lines(script, stage)]
            return await answers_to(cases, stage, everyone=everyone), notes


@pytest.fixture
def kafka(zookeeper: str, kafka_control: list[str], tmp_path: Path) -> Kafka:
    return kafka_control, zookeeper, tmp_path / "kafka"


def is_recorded(lines: list[Line], notes: list[ScriptLine], *, everyone: bool) -> None:
    requests, scripts = recorded_requests(everyone=everyone), recorded_scripts()
    assert {line.key: line.by_state() for line in lines} == {line.key: requests[line.key].by_state() for line in lines}
    assert notes == [scripts[line.key] for line in notes]


@pytest.mark.timeout(300)
async def test_kafka_still_gives_some_of_the_recorded_answers(kafka: Kafka) -> None:
    some = [case._replace(versions=case.versions[-1:]) for case in CASES[::6]]
    lines, notes = await of_kafka(kafka, some, SCRIPTS[1::3], everyone=False)
    is_recorded(lines, notes, everyone=False)


if SOAK or IS_RECORDING:

    @pytest.mark.timeout(900)
    @pytest.mark.soak("the answers of Apache Kafka to a client with ACLs", minutes=4)
    async def test_kafka_gives_the_recorded_answers(kafka: Kafka) -> None:
        for everyone, path in ((False, REQUESTS), (True, EVERYONE)):
            lines, notes = await of_kafka(
                (*kafka[:2], kafka[2] / path.stem), CASES, [] if everyone else SCRIPTS, everyone=everyone
            )
            if IS_RECORDING:
                write(path, lines)
                if notes:
                    write(SCRIPTED, notes)
            is_recorded(lines, notes, everyone=everyone)
