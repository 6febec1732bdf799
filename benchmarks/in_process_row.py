"""The row of brokers inside the process: `benchmarks.in_process` in a process of its own. An older checkout runs the
same text with its own `odradek.testing`. Kafka has nothing to compare it with.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from benchmarks import in_process
from benchmarks.contestants import Contestant, Odradek
from benchmarks.measurement import LESS, Metric, Reading, Row, TakesNoPart

TIMEOUT_S = 600


class InProcess(Row):
    """`scale` is the fraction of a thousand brokers and of fifty clusters."""

    name = "in process"
    needs_broker = False

    def __init__(self, scale: float) -> None:
        self._brokers = max(int(1000 * scale), 1)
        self._clusters = max(int(50 * scale), 1)
        in_a_row = f"{self._brokers:,d} brokers in a row"
        self.metrics = (
            Metric("a broker in the process: CPU", "ms", LESS, None),
            Metric("a broker in the process: start and stop", "ms", LESS, None),
            Metric(f"{in_a_row}: CPU", "s", LESS, None),
            Metric(in_a_row, "s", LESS, None),
            Metric("three brokers in the process: CPU", "ms", LESS, None),
            Metric("three brokers in the process: start and stop", "ms", LESS, None),
        )

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        if not isinstance(contestant, Odradek):
            raise TakesNoPart("it does not run inside a test")
        checkout = contestant.checkout
        program = Path(in_process.__file__).read_text()
        command = [checkout.python, "-c", program, f"--brokers={self._brokers}", f"--clusters={self._clusters}"]
        done = subprocess.run(
            command, cwd=checkout.directory, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{in_process.__name__} failed: {done.stderr[-500:]}")
        found = json.loads(done.stdout.splitlines()[-1])
        values = (found[name] for name in ("cpu_ms", "ms", "cpu_s", "s", "cluster_cpu_ms", "cluster_ms"))
        return {metric.name: Reading(value) for metric, value in zip(self.metrics, values, strict=True)}
