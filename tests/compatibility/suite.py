"""Another project's tests, run against a broker of ours, and the settings that they need."""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

SETTINGS = {
    "broker.id": "0",
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:admin",
}


class Suite:
    """Runs the tests. `environment` is added to that of this process. `output`: what the last run has printed."""

    def __init__(self, command: list[str], directory: Path, environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._report = directory / "report.xml"
        self._environment = {**os.environ, **(environment or {})}
        self.output = ""

    def run(self, bootstrap: str, *options: str) -> dict[str, str]:
        """Returns the outcome of each test that was selected."""
        self._report.unlink(missing_ok=True)
        command = [*self._command, bootstrap, f"--junitxml={self._report}", *options]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=400, check=False)
        self.output = done.stdout + done.stderr
        assert self._report.exists(), self.output[-2000:]
        outcomes = outcomes_of(self._report)
        assert (done.returncode == 0) == (not failures(outcomes)), self.output[-6000:]
        return outcomes


def failures(outcomes: dict[str, str]) -> list[str]:
    """The tests that have failed."""
    return [name for name, outcome in outcomes.items() if outcome in ("failure", "error")]


def outcomes_of(report: Path) -> dict[str, str]:
    """The outcome by test name: passed, skipped, failure or error."""
    outcomes: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        marks = [child.tag for child in case if child.tag in ("skipped", "failure", "error")]
        outcomes[f"{case.get('classname')}.{case.get('name')}"] = marks[0] if marks else "passed"
    return outcomes
