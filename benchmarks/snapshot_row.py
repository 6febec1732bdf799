"""The row of the test kit: `benchmarks.snapshots` in a process of its own. Kafka has nothing to compare it with."""

from __future__ import annotations

import json
import subprocess

from benchmarks.contestants import Contestant, Odradek
from benchmarks.measurement import LESS, Metric, Reading, Row, TakesNoPart

PROGRAM = "benchmarks.snapshots"
TIMEOUT_S = 600


class Snapshots(Row):
    """`scale` is the fraction of 100 MB of records, and of a thousand forks."""

    name = "snapshots"
    needs_broker = False

    def __init__(self, scale: float) -> None:
        self._megabytes = 100 * scale
        self._forks = max(int(1000 * scale), 1)
        self.metrics = (
            Metric(f"start from a snapshot of {self._megabytes:,.0f} MB", "ms", LESS, None),
            Metric("reset with ten topics", "ms", LESS, None),
            Metric(f"disk of {self._forks:,d} forks", "MB", LESS, None),
        )

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        if not isinstance(contestant, Odradek):
            raise TakesNoPart("it does not run inside a test")
        checkout = contestant.checkout
        if not (checkout.directory / f"{PROGRAM.replace('.', '/')}.py").exists():
            raise TakesNoPart("it has no snapshots")
        command = checkout.command(PROGRAM, f"--megabytes={self._megabytes}", f"--forks={self._forks}")
        done = subprocess.run(
            command, cwd=checkout.directory, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{PROGRAM} failed: {done.stderr[-500:]}")
        found = json.loads(done.stdout.splitlines()[-1])
        values = (found["start_ms"], found["reset_ms"], found["forks_mb"])
        return {metric.name: Reading(value) for metric, value in zip(self.metrics, values, strict=True)}
