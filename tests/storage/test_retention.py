"""What is removed from a log, when, and what stays readable."""

import contextlib
from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage.log.retention import SEGMENTS_PER_STEP
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import NOW, append, batch, headers_of, idempotent, open_small, truncate


@pytest.fixture
def files() -> ForgetfulFiles:
    return ForgetfulFiles()


SIZE = len(batch(b"x" * 50))


def test_segments_with_too_old_records_are_deleted(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=2 * SIZE, retention_ms=1000)
    for number in range(8):
        append(log, batch(b"x" * 50, timestamp=NOW + 100 * number))
    assert log.apply_retention(NOW + 1100) == 0
    assert log.apply_retention(NOW + 1101) == 1
    assert (log.segments.base_offsets, log.state.log_start_offset) == ([2, 4, 6], 2)
    assert log.apply_retention(NOW + 10_000) == 3
    assert (log.segments.base_offsets, log.state.log_start_offset, log.state.log_end_offset) == ([8], 8, 8)
    assert append(log) == 8


def test_retention_by_size_keeps_at_least_that_much(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=2 * SIZE, retention_bytes=5 * SIZE, retention_ms=-1)
    for _ in range(8):
        append(log, batch(b"x" * 50))
    assert log.apply_retention(NOW) == 1
    assert (log.state.log_start_offset, log.segments.size_in_bytes) == (2, 6 * SIZE)


def test_nothing_above_the_high_watermark_is_deleted(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=2 * SIZE, retention_ms=1)
    for _ in range(8):
        append(log, batch(b"x" * 50))
    log.update_high_watermark(3)
    assert log.apply_retention(NOW + 10_000) == 1
    assert log.state.log_start_offset == 2


def test_a_compacted_log_keeps_old_records(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=2 * SIZE, retention_ms=1, retention_bytes=1, cleanup_policy="compact")
    for _ in range(8):
        append(log, batch(b"x" * 50))
    assert log.apply_retention(NOW + 10_000) == 0
    log.start.delete_records_before(5)
    assert log.apply_retention(NOW + 10_000) == 2


def test_without_limits_nothing_is_deleted(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=2 * SIZE, retention_ms=-1, retention_bytes=-1)
    for _ in range(8):
        append(log, batch(b"x" * 50))
    assert log.apply_retention(NOW + 10**12) == 0


def test_records_without_a_timestamp_are_as_old_as_their_file(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=2 * SIZE, retention_ms=1000)
    for _ in range(4):
        append(log, batch(b"x" * 50, timestamp=-1))
    assert log.apply_retention(1000) == 0  # files in memory have a modification time in 1970
    assert log.apply_retention(1001) == 2


def test_deleted_files_keep_their_content_until_their_removal(files: ForgetfulFiles) -> None:
    clock = ManualClock(wall_ms=NOW)
    log = open_small(files, clock=clock, segment_bytes=2 * SIZE, retention_ms=1000, file_delete_delay_ms=5000)
    for number in range(4):
        append(log, idempotent(number, b"x" * 50))
    before = set(files.list_directory("/data/orders-0"))
    assert log.apply_retention(NOW + 2000) == 2
    names = set(files.list_directory("/data/orders-0"))
    renamed = {name for name in names if name.endswith(".deleted")}
    assert {name.removesuffix(".deleted") for name in renamed} <= before
    assert f"{0:020d}.log.deleted" in renamed
    assert f"{2:020d}.snapshot.deleted" in renamed
    assert {due - clock.now_ms() for due, _ in log.folder.removals.waiting} == {5000}
    assert {path.rpartition("/")[2] for _, path in log.folder.removals.waiting} == renamed


@pytest.mark.parametrize("suffix", [".log", ".index", ".snapshot"])
def test_no_segment_is_deleted_before_an_earlier_one(
    files: ForgetfulFiles, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """The disk fails for a file of the second segment, and the broker crashes before the recovery point is written: a
    gap between the segments would look like damage, and recovery would remove what comes after it.
    """
    log = open_small(files, segment_bytes=2 * SIZE, retention_ms=1000)
    for number in range(10):
        append(log, idempotent(number, b"x" * 50, timestamp=NOW + 100 * number))
    rename = files.rename

    def refuse(source: str, target: str) -> None:
        if source.endswith(f"{2:020d}{suffix}"):
            raise OSError(5, "Input/output error")
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(files, "rename", refuse)
        with pytest.raises(ProtocolError):
            log.apply_retention(NOW + 1600)
        with contextlib.suppress(ProtocolError):
            log.apply_retention(NOW + 1600)
    crashed: dict[str, Any] = {"clean": False, "contiguous": True, "recovery_point": 1}
    log = open_small(files, options=crashed, retention_ms=-1)
    assert log.state.log_end_offset == 10
    log.update_high_watermark(10)
    log.start.delete_records_before(6)
    log.apply_retention(NOW)
    assert log.segments.base_offsets == [6, 8]


# ---- DeleteRecords


def test_deleted_records_are_unreadable_immediately_and_retention_deletes_their_segments(
    files: ForgetfulFiles,
) -> None:
    log = open_small(files, segment_bytes=2 * SIZE, retention_ms=-1)
    for _ in range(8):
        append(log, batch(b"x" * 50))
    assert log.start.delete_records_before(5) == 5
    with pytest.raises(ProtocolError) as error:
        log.reader.read(4, 1)
    assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [header.base_offset for header in headers_of(log)] == [5, 6, 7]
    assert len(log.segments) == 4
    assert log.apply_retention(NOW) == 2
    assert log.segments.base_offsets == [4, 6]
    assert finished(log.search.offset_for_timestamp(-2)) == (-1, 5, 0)
    assert finished(log.search.offset_for_timestamp(0)) == (NOW, 5, 0)


def test_minus_one_deletes_up_to_the_high_watermark(files: ForgetfulFiles) -> None:
    log = open_small(files)
    for _ in range(4):
        append(log)
    log.update_high_watermark(3)
    assert log.start.delete_records_before(-1) == 3
    log.start.delete_records_before(1)
    assert log.state.log_start_offset == 3  # never moves back


@pytest.mark.parametrize("offset", [-2, 4, 100])
def test_the_log_start_cannot_pass_the_high_watermark(files: ForgetfulFiles, offset: int) -> None:
    log = open_small(files)
    for _ in range(4):
        append(log)
    log.update_high_watermark(3)
    with pytest.raises(ProtocolError) as error:
        log.start.delete_records_before(offset)
    assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.state.log_start_offset == 0


def test_leader_epochs_that_end_before_the_log_start_are_dropped(files: ForgetfulFiles) -> None:
    log = open_small(files)
    for epoch in (0, 0, 2, 2, 7):
        append(log, epoch=epoch)
    log.start.delete_records_before(3)
    assert log.leader_epochs.entries == [(2, 3), (7, 4)]


# ---- truncation


def test_a_truncation_removes_batches_epochs_and_producer_state(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=3 * SIZE, index_interval_bytes=SIZE)
    for number in range(10):
        append(log, idempotent(number, b"x" * 50, timestamp=NOW + number), epoch=number // 4)
    log.flush()
    assert truncate(log, 5)
    assert (log.state.log_end_offset, log.state.high_watermark, log.state.recovery_point) == (5, 5, 5)
    assert log.segments.base_offsets == [0, 3]
    assert [header.base_offset for header in headers_of(log)] == [0, 1, 2, 3, 4]
    assert log.leader_epochs.entries == [(0, 0), (1, 4)]
    assert log.producers.state.producers[1].last_sequence == 4
    assert finished(log.search.offset_for_timestamp(-3)) == (NOW + 4, 4, 1)
    assert append(log, idempotent(5, b"new")) == 5
    assert not truncate(log, 6)


def test_a_log_can_be_truncated_below_its_start(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=2 * SIZE, retention_ms=1)
    for _ in range(8):
        append(log, batch(b"x" * 50))
    log.apply_retention(NOW + 1000)
    assert log.state.log_start_offset == 8
    assert truncate(log, 3)
    assert (log.state.log_start_offset, log.state.log_end_offset, log.segments.base_offsets) == (3, 3, [3])
    assert append(log) == 3


def test_a_flush_that_began_before_a_truncation_does_not_count_after_it(files: ForgetfulFiles) -> None:
    log = open_small(files)
    for _ in range(4):
        append(log)
    job = log.begin_flush()
    assert job is not None
    truncate(log, 1)
    for _ in range(3):
        append(log)
    job.run()
    log.flusher.finish(job)
    assert log.state.recovery_point <= 1


def test_thousands_of_segments_are_deleted_in_steps_and_the_log_is_usable_in_between(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=SIZE, retention_ms=1000)
    for _ in range(100):
        append(log, batch(b"x" * 50))
    deleted = []
    for count in log.retention_steps(NOW + 10_000):
        deleted.append(count)
        assert count <= SEGMENTS_PER_STEP
        assert log.state.log_start_offset == log.segments.base_offsets[0] == sum(deleted)
        if len(deleted) == 1:
            assert headers_of(log)[0].base_offset == SEGMENTS_PER_STEP
            append(log, batch(b"x" * 50, timestamp=NOW + 10_000))
    assert deleted == [32, 32, 32, 4]
    assert (log.state.log_start_offset, log.state.log_end_offset) == (100, 101)
    assert len(log.folder.removals.waiting) >= 100


def test_retention_by_size_after_deleted_records_runs_in_steps(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=SIZE, retention_bytes=10 * SIZE, retention_ms=-1)
    for _ in range(100):
        append(log, batch(b"x" * 50))
    log.start.delete_records_before(40)
    assert list(log.retention_steps(NOW)) == [32, 32, 26]
    assert log.state.log_start_offset == 90


def test_retention_also_deletes_records_of_open_transactions(files: ForgetfulFiles) -> None:
    """As in Kafka, which considers only the high watermark: the rest of the transaction starts at the log's start."""
    log = open_small(files, segment_bytes=SIZE, retention_ms=1000)
    append(log, idempotent(0, b"x" * 50, is_transactional=True))
    for _ in range(5):
        append(log, batch(b"x" * 50))
    append(log, batch(b"x" * 50, timestamp=NOW + 9_500))
    assert log.last_stable_offset == 0
    log.apply_retention(NOW + 10_000)
    assert log.state.log_start_offset == log.last_stable_offset == 6
    assert log.state.high_watermark == 7
    assert log.producers.state.has_ongoing_transaction(1)
    log.close()
    again = open_small(files, segment_bytes=SIZE, retention_ms=1000)
    again.update_high_watermark(7)
    assert again.last_stable_offset == 6


def test_retention_stops_at_the_high_watermark(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=SIZE, retention_ms=1000)
    for _ in range(6):
        log.append_as_leader(batch(b"x" * 50), 0, api_version=9)
    log.update_high_watermark(4)
    assert log.apply_retention(NOW + 10_000) == 4
    assert log.state.log_start_offset == 4
