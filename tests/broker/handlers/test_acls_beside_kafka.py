"""DescribeAcls, CreateAcls and DeleteAcls get the answers that Apache Kafka 3.9.1 gives in ZooKeeper mode.

tests/vectors/acls.json has Kafka's answers. A test with Kafka itself checks that they are still the same; with
ODRADEK_RECORD=1 it writes them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.testing import in_process_broker
from tests.broker.handlers.acl_scenarios import ERROR_TEXTS, SETTINGS, STEPS, answers_of
from tests.spawned_broker import free_port

VECTORS = Path(__file__).parents[2] / "vectors" / "acls.json"


def without_reasons(ours: Any, kafkas: Any) -> Any:
    """Our answer with Kafka's text where Odradek says more. An error always has a text of ours."""
    for mine, other in zip(ours.get("results", ()), kafkas.get("results", ()), strict=False):
        if mine["error_code"] and other["error_message"] in ERROR_TEXTS:
            assert mine["error_message"]
            mine["error_message"] = other["error_message"]
    return ours


async def test_every_request_gets_kafkas_answer() -> None:
    kafkas = json.loads(VECTORS.read_text())
    async with in_process_broker(SETTINGS) as broker:
        ours = await answers_of(broker.endpoints[0].port)
    assert ours.keys() == kafkas.keys() == STEPS.keys()
    different = {
        name: (answer, kafkas[name])
        for name, answer in ours.items()
        if (without_reasons(answer, kafkas[name]) if answer and kafkas[name] else answer) != kafkas[name]
    }
    assert different == {}


async def test_without_an_authorizer_every_request_is_answered_with_security_disabled() -> None:
    async with in_process_broker() as broker:
        answers = await answers_of(broker.endpoints[0].port)
    codes = {answer["error_code"] for answer in answers.values() if "error_code" in answer}
    codes |= {each["error_code"] for answer in answers.values() for each in answer.get("results", ())}
    codes |= {each["error_code"] for answer in answers.values() for each in answer.get("filter_results", ())}
    assert codes == {ErrorCode.SECURITY_DISABLED}


@pytest.fixture
def kafka(zookeeper: str, kafka_control: list[str], tmp_path: Path) -> Iterator[int]:
    """The port of a broker of Apache Kafka."""
    port, directory = free_port(), str(tmp_path / "kafka")
    lines = [f"{name}={value}" for name, value in SETTINGS.items()]
    small = {**os.environ, "KOPTS": "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
    chroot = f"{zookeeper}/acls-beside-kafka"
    subprocess.run([*kafka_control, "zk-broker", "1", str(port), chroot, directory, *lines], check=True, env=small)
    yield port
    subprocess.run([*kafka_control, "stop", directory], check=True)


@pytest.mark.timeout(300)
async def test_kafka_gives_the_recorded_answers(kafka: int) -> None:
    found = json.loads(json.dumps(await answers_of(kafka)))
    if os.environ.get("ODRADEK_RECORD") == "1":
        VECTORS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    assert found == json.loads(VECTORS.read_text())
