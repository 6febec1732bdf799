"""Requests pass few files of the broker: docs/architecture.md lists them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST = {"produce": 15, "fetch": 14, "join": 15, "heartbeat": 15, "login": 11}


def test_the_ways_of_requests_are_short() -> None:
    command = [sys.executable, "-m", "tests.broker.ways", *MOST]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    counts = {way: int(count) for way, count in re.findall(r"^(\w+): (\d+) files of broker/", printed, re.MULTILINE)}
    assert counts.keys() == MOST.keys()
    assert all(counts[way] <= most for way, most in MOST.items()), printed
