"""The row of the test kit, small."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.checkout import THIS, Checkout
from benchmarks.contestants import ApacheKafka, Odradek
from benchmarks.measurement import TakesNoPart
from benchmarks.snapshot_row import Snapshots


@pytest.mark.long
def test_it_has_a_reading_of_each_metric(tmp_path: Path) -> None:
    row = Snapshots(0.01)
    readings = row.measure(Odradek(tmp_path))
    assert list(readings) == [metric.name for metric in row.metrics]
    assert all(reading.value > 0 for reading in readings.values())


def test_brokers_without_snapshots_take_no_part(tmp_path: Path) -> None:
    older = THIS._replace(directory=tmp_path)
    assert isinstance(older, Checkout)
    with pytest.raises(TakesNoPart, match="it has no snapshots"):
        Snapshots(0.01).measure(Odradek(tmp_path, older))
    with pytest.raises(TakesNoPart, match="does not run inside a test"):
        Snapshots(0.01).measure(ApacheKafka(tmp_path))
