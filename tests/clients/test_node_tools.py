"""The tools of Kafka 4.4 print of a node of ours what they print of Kafka 4.4.0 (tests/vectors/tools/node.json)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.beside_kafka.printed import check, differences
from tests.clients.node_tools.known import KNOWN
from tests.clients.node_tools.script import played
from tests.clients.node_tools.stage import RECORDING, RELEASE, apaches, ours
from tests.soak import SOAK


@pytest.fixture(autouse=True)
def newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_VERSION", RELEASE)


@pytest.mark.timeout(300)
def test_kafkas_tools_print_the_same_of_our_node(java_tools: list[str], tmp_path: Path) -> None:
    with ours(tmp_path) as (port, data):
        steps = played(port, data, java_tools, tmp_path)
    check(json.loads(RECORDING.read_text()), steps, KNOWN)


if SOAK:

    @pytest.mark.soak("the recording of the tools of Kafka 4.4, beside a node of Apache", minutes=2)
    def test_an_apache_node_still_prints_what_was_recorded(kafka_control: list[str], tmp_path: Path) -> None:
        with apaches(kafka_control, tmp_path) as (port, data):
            steps = played(port, data, [*kafka_control, "tool"], tmp_path)
        assert list(differences(json.loads(RECORDING.read_text()), steps)) == []
