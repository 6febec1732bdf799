"""Kafka's tools print of a cluster of ours what they print of three Apache brokers (tests/vectors/tools)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.beside_kafka.printed import Step, check, differences
from tests.cluster.kafka_tools.known import KNOWN
from tests.cluster.kafka_tools.script import played, played_by_apache
from tests.cluster.kafka_tools.stage import RECORDING, SETTINGS
from tests.cluster.mixed_cluster import mixed_cluster
from tests.soak import SOAK
from tests.zookeeper.stores import new_chroot

ANY_TIME = ("message.timestamp.after.max.ms", str(2**63 - 1))
OURS = {**SETTINGS, f"log.{ANY_TIME[0]}": ANY_TIME[1], "odradek.as.version": "3.9"}
"""The records are of the year 2096, which Kafka 3.9 accepts by default, and 4.4 does not."""

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Step]:
    steps: dict[str, Step] = json.loads(RECORDING.read_text())
    return steps


def test_kafkas_tools_print_the_same_of_our_cluster(
    recorded: Mapping[str, Step], zookeeper: str, kafka_control: list[str], java_tools: list[str], tmp_path: Path
) -> None:
    connect = zookeeper + new_chroot()
    with mixed_cluster(kafka_control, connect, tmp_path, apache=(), settings=OURS) as cluster:
        steps = played(cluster, java_tools, tmp_path)
    shown = ",{}={}".format(*ANY_TIME)
    for step in steps.values():
        if "--describe" in step["command"]:
            step["out"] = [line.replace(shown, "") for line in step["out"]]
    check(recorded, steps, KNOWN)


if SOAK:

    @pytest.mark.soak("the recording of Kafka's tools, beside three Apache brokers", minutes=2)
    def test_three_apache_brokers_still_print_what_was_recorded(
        recorded: Mapping[str, Step], zookeeper: str, kafka_control: list[str], tmp_path: Path
    ) -> None:
        steps = played_by_apache(kafka_control, zookeeper + new_chroot(), tmp_path)
        assert list(differences(recorded, steps)) == []
