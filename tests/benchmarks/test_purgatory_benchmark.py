"""The benchmark's own workload, small: every request ends, and the row says what it promises."""

import json
import math
import random
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.purgatory import SAMPLES, intervals_ms, latencies_ms, parse

ROOT = Path(__file__).resolve().parent.parent.parent


def test_every_request_ends_and_the_last_line_is_one_json_object() -> None:
    workload = ["--num=3000", "--rate=30000", "--timeout=20", "--pct50=20", "--pct75=40", "--key-space-size=100"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.purgatory", *workload],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    row = json.loads(done.stdout.splitlines()[-1])
    assert row["requests"] == 3000
    assert row["enqueues_per_second"] > 0
    assert row["cpu_seconds"] > 0
    assert 0 < row["completed"] < 3000
    assert 0 < row["expired"] < 3000
    assert row["completed"] + row["expired"] <= 3000


def test_completion_times_have_the_requested_percentiles() -> None:
    samples = sorted(latencies_ms(random.Random(1), 200, 400))
    assert math.isclose(samples[SAMPLES // 2], 200, rel_tol=0.03)
    assert math.isclose(samples[SAMPLES * 3 // 4], 400, rel_tol=0.03)


def test_rounding_to_milliseconds_keeps_the_rate() -> None:
    for rate in (100, 5_000, 400_000):
        assert math.isclose(1000 / statistics.mean(intervals_ms(random.Random(1), rate)), rate, rel_tol=0.03)


def test_an_invalid_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for number, rate in ((0, 1), (1, 0)):
        with pytest.raises(SystemExit):
            parse([f"--num={number}", f"--rate={rate}", "--pct50=1", "--pct75=2"])
    with pytest.raises(SystemExit):
        parse(["--num=1", "--rate=1", "--pct50=2", "--pct75=1"])
    assert "must be positive" in capsys.readouterr().err
