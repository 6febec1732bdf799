"""The rows of clusters, measured with few partitions and records, and a contestant that takes no part."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks.checkout import Checkout
from benchmarks.cluster_rows import ReplicatedProduce, ThousandPartitions, VisitsPerFetch
from benchmarks.contestants import Kind, Odradek
from benchmarks.measurement import TakesNoPart
from benchmarks.visits import counted

SESSION_TIMEOUT_MS = 1500


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Odradek]:
    """Only says which version the brokers of the clusters have."""
    broker = Odradek(tmp_path)
    yield broker
    broker.remove()


@pytest.mark.long
def test_a_cluster_survives_the_kills_of_its_row(broker: Odradek, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session ends a time-out after its last ping, which was up to a third of it before the kill."""
    monkeypatch.setattr("benchmarks.cluster_rows.SETTLE_S", 0)
    monkeypatch.setattr("benchmarks.cluster_rows.PAUSE_S", 0.1)
    row = ThousandPartitions(6, idle_s=0.1, session_timeout_ms=SESSION_TIMEOUT_MS, warm_s=0.1)
    readings = row.measure(broker)
    assert list(readings) == [metric.name for metric in row.metrics]
    created, _, memory, vanished, led, served, again, controller_vanished, _, started = (
        reading.value for reading in readings.values()
    )
    assert min(created, memory, again, started) > 0
    assert min(vanished, controller_vanished) > SESSION_TIMEOUT_MS / 1000 * 0.6
    assert led < served


@pytest.mark.long
def test_the_processor_time_of_all_three_brokers_counts(broker: Odradek) -> None:
    row = ReplicatedProduce(2000, 100, warm_s=0.1)
    readings = row.measure(broker)
    assert list(readings) == [metric.name for metric in row.metrics]
    speed, leader, p50, p99, _ = readings.values()
    assert 0 < leader.value < speed.cpu_us_per_operation
    assert 0 < p50.value <= p99.value
    assert p50.operations == 100


def test_fetches_visit_only_the_busy_partition() -> None:
    counter = counted(20, 10)
    assert 0 < counter.visits <= 4 * counter.fetches


def test_an_older_version_without_clusters_takes_no_part(tmp_path: Path) -> None:
    old = Checkout(tmp_path, sys.executable)
    kind = Kind("before", lambda workspace: Odradek(workspace, old, "before"))
    session = program.Session(tmp_path, [kind])
    results = session.run([ThousandPartitions(), VisitsPerFetch()], rounds=2)
    assert not any(result.readings["before"] for result in results)
    assert [note.partition(":")[0] for note in session.notes] == ["cluster partitions", "cluster visits"]
    with pytest.raises(TakesNoPart):
        VisitsPerFetch().measure(kind.make(tmp_path))
