"""The row of the purgatory: `benchmarks.purgatory` and Kafka's TestPurgatoryPerformance (of 3.9.1 at the latest, see
kafka_versions.py), each in its own process.
"""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path

from benchmarks import java_tools
from benchmarks.checkout import ROOT
from benchmarks.contestants import Contestant, Odradek
from benchmarks.kafka_versions import version_with_zookeeper
from benchmarks.measurement import LESS, MORE, Metric, Reading, Row

WORKLOAD = "--rate 400000 --timeout 200 --pct50 200 --pct75 400 --keys 3 --key-space-size 100"


class Purgatory(Row):
    name = "purgatory"
    metrics = (
        Metric("purgatory: enqueued at 400,000/s", "1/s", MORE, None),
        Metric("purgatory: CPU of the process", "us/request", LESS),
    )
    needs_broker = False

    def __init__(self, requests: int) -> None:
        self.requests = requests

    def kafka_version(self) -> str:
        """See Row."""
        return version_with_zookeeper()

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        workload = [f"--num={self.requests}", *WORKLOAD.split()]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        if isinstance(contestant, Odradek):
            checkout = contestant.checkout
            command = checkout.command("benchmarks.purgatory", *workload, "--json")
            rate = json.loads(self._last_line(command, checkout.directory))["enqueues_per_second"]
        else:
            command = [
                "java",
                "-cp",
                java_tools.class_path_of_purgatory(),
                "kafka.TestPurgatoryPerformance",
                *workload,
                "--size=100",
            ]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            rate = float(self._last_line(command).split("\t")[2])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        values = (rate, used * 1e6 / self.requests)
        return {metric.name: Reading(value, used) for metric, value in zip(self.metrics, values, strict=True)}

    def _last_line(self, command: list[str], directory: Path = ROOT) -> str:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise RuntimeError(f"{command[1]} failed: {done.stderr[-500:]}")
        return done.stdout.strip().splitlines()[-1]
