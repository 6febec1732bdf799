"""Kafka 4.4's own `kafka-features` prints of a broker of ours what it prints of Kafka 4.4.0."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Sequence

import pytest

from odradek.testing import in_process_broker

TOOL = ("tool", "org.apache.kafka.tools.FeatureCommand")
KAFKA = {"KAFKA_VERSION": "4.4.0", "KOPTS": "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
TOOL_S = 120
PRINTED = {
    "upgrade --feature group.version=0": "The upgradeType flag should be set to SAFE_DOWNGRADE or UNSAFE_DOWNGRADE "
    "when the provided maxVersionLevel:0 is < 1.",
    "downgrade --feature group.version=0 --dry-run": "group.version can be downgraded to 0.",
    "downgrade --feature group.version=0": "group.version was downgraded to 0.",
    "upgrade --feature group.version=1 --feature transaction.version=2": "group.version was upgraded to 1.\n"
    "transaction.version was upgraded to 2.",
    "upgrade --feature metadata.version=33 --feature kraft.version=1": "kraft.version was upgraded to 1.\n"
    "metadata.version was upgraded to 33.",
    "disable --feature transaction.version": "transaction.version was disabled.",
}
"""What Kafka 4.4.0 prints, whose features all have their defaults before the first of these."""
DESCRIBED = [
    ("group.version", "0", "1", "1", "3"),
    ("kraft.version", "0", "1", "1", "3"),
    ("metadata.version", "3.3-IV3", "4.4-IV2", "4.4-IV2", "3"),
    ("transaction.version", "0", "2", "0", "3"),
]
"""The name, the levels supported, the one finalized, and the epoch: the number of changes above."""


def run(control: Sequence[str], bootstrap: str, command: str) -> tuple[str, str]:
    """What the tool prints."""
    arguments = [*control, *TOOL, "--bootstrap-server", bootstrap, *command.split()]
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=TOOL_S, check=False, env={**os.environ, **KAFKA}
    )
    return done.stdout.strip(), done.stderr


@pytest.mark.timeout(300)
async def test_the_tool_prints_the_same(kafka_control: list[str]) -> None:
    async with in_process_broker() as broker:
        for command, printed in PRINTED.items():
            found, errors = await asyncio.to_thread(run, kafka_control, broker.bootstrap, command)
            assert found == printed or printed in errors, command
        described, _ = await asyncio.to_thread(run, kafka_control, broker.bootstrap, "describe")
        refused, errors = await asyncio.to_thread(
            run, kafka_control, broker.bootstrap, "upgrade --feature group.version=1 --feature nope=1"
        )
    assert [tuple(re.findall(r": (\S+)", line)) for line in described.splitlines()] == DESCRIBED
    assert refused.startswith("Could not upgrade group.version to 1. No feature was updated: nope cannot have level 1")
    assert "2 out of 2 operation(s) failed." in refused + errors
