"""`make soak` says what it will run and how long that takes, and runs all rounds of nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WALK = "tests/protocol/test_record_walk.py"


def soak(*arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "ODRADEK_SOAK": "1"}
    root = Path(__file__).parent.parent
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_the_plan_lists_each_long_loop_with_its_minutes_and_runs_nothing() -> None:
    plan = soak("-qq", "--kinds=all", "--plan", WALK, "tests/scenarios/test_power_cut.py")
    lines = [line for line in plan.splitlines() if " min  " in line]
    assert [line.split(": ")[0].split(" min  ")[1] for line in lines[:-1]] == [
        "25 power cuts",
        "40,000 damaged batches",
        "4,000 damaged batches, cut at every position",
    ]
    assert [float(line.split(" min ")[0]) for line in lines] == [1.0, 0.2, 0.5, 1.7]
    assert "passed" not in plan
