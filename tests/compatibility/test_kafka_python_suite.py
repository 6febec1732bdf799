"""kafka-python's own integration suite passes against our broker as it does against Apache Kafka."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.spawned_broker import spawned_broker

SETTINGS = {
    "broker.id": "0",
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
NEEDS_AN_AUTHORIZER = "test_create_describe_delete_acls"
PASS_WITH_KAFKA = 51


@pytest.mark.timeout(900)
def test_every_test_that_passes_against_kafka_passes_except_the_authorizer_test(
    tmp_path: Path, kafka_python_suite: list[str]
) -> None:
    report = tmp_path / "report.xml"
    with spawned_broker(tmp_path / "data", SETTINGS) as broker:
        command = [*kafka_python_suite, broker.bootstrap, f"--junitxml={report}", "-k", f"not {NEEDS_AN_AUTHORIZER}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert report.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    outcomes = outcomes_of(report)
    failed = [name for name, outcome in outcomes.items() if outcome in ("failure", "error")]
    assert not failed, f"{failed}\n{done.stdout[-6000:]}"
    assert list(outcomes.values()).count("passed") == PASS_WITH_KAFKA - 1, done.stdout[-6000:]
    assert done.returncode == 0


def outcomes_of(report: Path) -> dict[str, str]:
    """The outcome by test name: passed, skipped, failure or error."""
    outcomes: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        marks = [child.tag for child in case if child.tag in ("skipped", "failure", "error")]
        outcomes[f"{case.get('classname')}.{case.get('name')}"] = marks[0] if marks else "passed"
    return outcomes
