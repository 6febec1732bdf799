"""DescribeAcls, CreateAcls and DeleteAcls get the answers that Apache Kafka 3.9.1 gives in ZooKeeper mode.

tests/vectors/acls.json has Kafka's answers. A test with Kafka itself checks that they are still the same; with
ODRADEK_RECORD=1 it writes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.testing import in_process_broker
from tests.beside_kafka.control import apache_broker
from tests.beside_kafka.recordings import VECTORS, is_still, recorded
from tests.broker.handlers.acl_scenarios import ERROR_TEXTS, SETTINGS, STEPS, answers_of

ACLS = VECTORS / "acls.json"


def without_reasons(ours: Any, kafkas: Any) -> Any:
    """Our answer with Kafka's text where Odradek says more. An error always has a text of ours."""
    for mine, other in zip(ours.get("results", ()), kafkas.get("results", ()), strict=False):
        if mine["error_code"] and other["error_message"] in ERROR_TEXTS:
            assert mine["error_message"]
            mine["error_message"] = other["error_message"]
    return ours


async def test_every_request_gets_kafkas_answer() -> None:
    kafkas = recorded(ACLS)
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


@pytest.mark.timeout(300)
async def test_kafka_gives_the_recorded_answers(zookeeper: str, kafka_control: list[str], tmp_path: Path) -> None:
    with apache_broker(kafka_control, zookeeper, tmp_path / "kafka", SETTINGS) as port:
        is_still(ACLS, await answers_of(port), sort_keys=True)
