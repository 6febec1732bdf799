"""The row of brokers inside the process, small."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.checkout import THIS
from benchmarks.contestants import ApacheKafka, Odradek
from benchmarks.in_process_row import InProcess
from benchmarks.measurement import TakesNoPart

OF_BEFORE = """
import contextlib, sys
print("of the older checkout", file=sys.stderr)
@contextlib.asynccontextmanager
async def in_process_broker():
    yield
in_process_cluster = in_process_broker
"""


def test_it_has_a_reading_of_each_metric(tmp_path: Path) -> None:
    row = InProcess(0.003)
    readings = row.measure(Odradek(tmp_path))
    assert list(readings) == [metric.name for metric in row.metrics]
    assert all(reading.value > 0 for reading in readings.values())


def test_an_older_checkout_runs_the_same_program_with_its_own_kit(tmp_path: Path) -> None:
    (tmp_path / "odradek").mkdir()
    (tmp_path / "odradek" / "__init__.py").touch()
    (tmp_path / "odradek" / "testing.py").write_text(OF_BEFORE)
    before = Odradek(tmp_path, THIS._replace(directory=tmp_path, python=sys.executable))
    row = InProcess(0.003)
    assert list(row.measure(before)) == [metric.name for metric in row.metrics]
    (tmp_path / "odradek" / "testing.py").write_text(OF_BEFORE + "raise SystemExit(1)")
    with pytest.raises(RuntimeError, match="of the older checkout"):
        InProcess(0.003).measure(before)


def test_kafka_takes_no_part(tmp_path: Path) -> None:
    with pytest.raises(TakesNoPart, match="does not run inside a test"):
        InProcess(0.003).measure(ApacheKafka(tmp_path))
