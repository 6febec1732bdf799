"""The rows that need no program but a broker, measured with few requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import wire
from benchmarks.admin_row import SmallRequests, exchanges, expect_success
from benchmarks.contestants import Odradek
from benchmarks.start_rows import PARTITIONS_OF_A_TOPIC, StartAfterKill, StartWithOffsets
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offsets import OffsetCommitResponse


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Odradek]:
    broker = Odradek(tmp_path)
    yield broker
    broker.remove()


def test_small_requests_are_measured_one_by_one(broker: Odradek) -> None:
    broker.start()
    row = SmallRequests(0.001)
    row.warm_up(broker)
    readings = row.measure(broker)
    assert list(readings) == [exchange.name for exchange in exchanges(1)] == [metric.name for metric in row.metrics]
    assert all(reading.value > 0 and reading.cpu_us_per_operation > 0 for reading in readings.values())


def test_an_error_response_fails_the_measurement() -> None:
    partition = OffsetCommitResponse.OffsetCommitResponsePartition(
        partition_index=0, error_code=ErrorCode.INVALID_REQUEST
    )
    topic = OffsetCommitResponse.OffsetCommitResponseTopic(name="t", partitions=[partition])
    errors = wire.errors_in(OffsetCommitResponse(topics=[topic]))
    assert errors == {ErrorCode.INVALID_REQUEST}
    with pytest.raises(RuntimeError, match="commits: INVALID_REQUEST"):
        expect_success(errors, "commits")
    expect_success(set(), "commits")


@pytest.mark.long
def test_a_restart_after_a_kill_serves_the_appended_records(broker: Odradek, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("os.sync", lambda: None)
    monkeypatch.setattr("benchmarks.start_rows.PARTITIONS_OF_A_TOPIC", 5)
    row = StartAfterKill(10)
    first, again = row.measure(broker).values()
    assert row.partitions == 10 < PARTITIONS_OF_A_TOPIC
    assert min(first.cpu_seconds, again.cpu_seconds) > 0
    assert first.operations == again.operations == 10


@pytest.mark.long
def test_a_restart_serves_the_committed_offsets(broker: Odradek, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("os.sync", lambda: None)
    monkeypatch.setattr("benchmarks.start_rows.PARTITIONS_OF_A_GROUP", 20)
    readings = [reading.value for reading in StartWithOffsets(200).measure(broker).values()]
    assert len(readings) == 4
    assert readings[1] >= readings[0] > 0
    assert readings[3] >= readings[2] > 0
