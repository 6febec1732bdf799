"""What a cleaning may not remove is missed, and what it may is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.storage.file_names import LOG_SUFFIX
from odradek.storage.log.log import Log
from tests.simulation.cleaning import Cleaning
from tests.simulation.disk import SimulatedDisk
from tests.simulation.log_contents import all_batches, contents_of
from tests.storage.cleaner.clean_logs import clean, end_transaction, put, seal
from tests.storage.small_logs import NOW, open_small

HORIZON_MS = 1000


@pytest.fixture
def log() -> Log:
    """A segment with records at 0 to 5, a committed transaction at 6 and 7, an aborted one at 8 and 9, and a tombstone
    at 10; and the active segment."""
    log = open_small(SimulatedDisk(), cleanup_policy="compact", delete_retention_ms=str(HORIZON_MS))
    for number in range(6):
        put(log, (b"key %d" % (number % 2), b"value"))
    put(log, (b"c", b"committed"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 1, committed=True)
    put(log, (b"c", b"aborted"), producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 2, committed=False)
    put(log, (b"gone", None))
    seal(log)
    return log


def remove(log: Log, base_offset: int) -> None:
    """Cuts a batch out of the first segment."""
    (batch,) = [each for each in all_batches(contents_of(log)) if each.header.base_offset == base_offset]
    disk = log.files
    assert isinstance(disk, SimulatedDisk)
    segment = log.segments[0]
    content = disk.content(segment.path(LOG_SUFFIX))
    del content[batch.position : batch.position + len(batch.content)]
    segment.size = len(content)


def judged(log: Log, change: Callable[[], object], *, stable_offset: int | None = None) -> list[str]:
    """What is found after the change."""
    stable_offset = log.last_stable_offset if stable_offset is None else stable_offset
    cleaning = Cleaning(log, stable_offset, NOW)
    change()
    return list(cleaning.judge(log))


def test_a_cleaning_is_sound(log: Log) -> None:
    assert judged(log, lambda: clean(log)) == []
    assert len(list(all_batches(contents_of(log)))) < 11


def test_nothing_beyond_the_last_stable_offset_may_change(log: Log) -> None:
    assert "although only 3 offsets are stable" in judged(log, lambda: clean(log), stable_offset=3)[0]


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        (0, ""),
        (5, "which was the last one of b'key 1'"),
        (6, "which was the last one of b'c'"),
        (10, "which was the last one of b'gone'"),
    ],
)
def test_the_last_record_of_a_key_must_stay(log: Log, offset: int, reason: str) -> None:
    found = judged(log, lambda: remove(log, offset))
    assert reason in found[0] if reason else found == []


def test_a_marker_must_stay_while_its_records_are_there(log: Log) -> None:
    clean(log)
    clean(log)
    found = judged(log, lambda: remove(log, 7))
    assert "no marker at 7, but the records at 6 that it ended" in found


def test_a_marker_must_stay_until_its_horizon(log: Log) -> None:
    assert any("no marker at 9, which was to stay until" in each for each in judged(log, lambda: remove(log, 9)))


def test_a_batch_must_stay_as_it_is(log: Log) -> None:
    def change_the_epoch() -> None:
        disk = log.files
        assert isinstance(disk, SimulatedDisk)
        disk.content(log.segments[0].path(LOG_SUFFIX))[15] = 3

    assert judged(log, change_the_epoch) == ["partition_leader_epoch 3, not 0, of the batch at 0"]
