"""Kafka's tools print of our broker with ACLs what they print of Apache Kafka (tests/vectors/tools/secured.json)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.beside_kafka.printed import check, differences
from tests.clients.secured_tools.known import KNOWN
from tests.clients.secured_tools.script import played
from tests.clients.secured_tools.stage import RECORDING, apaches, ours
from tests.soak import SOAK


@pytest.mark.timeout(200)
def test_kafkas_tools_print_the_same_of_our_broker(java_tools: list[str], tmp_path: Path) -> None:
    recorded = json.loads(RECORDING.read_text())
    with ours() as port:
        steps = played(port, java_tools, tmp_path)
    check(recorded, steps, KNOWN)


if SOAK:

    @pytest.mark.soak("the recording of Kafka's tools, beside a broker of Apache with ACLs", minutes=2)
    def test_an_apache_broker_still_prints_what_was_recorded(
        zookeeper: str, kafka_control: list[str], tmp_path: Path
    ) -> None:
        with apaches(kafka_control, zookeeper, tmp_path / "kafka") as port:
            steps = played(port, [*kafka_control, "tool"], tmp_path)
        assert list(differences(json.loads(RECORDING.read_text()), steps)) == []
