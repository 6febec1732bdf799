"""A full disk: appends fail with KAFKA_STORAGE_ERROR, lose nothing, and work again once there is space."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.protocol.control_records import ControlType
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.record_validation import AppendOrigin
from odradek.protocol.records import build_end_transaction_marker
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import read_offsets
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.files import OsFiles
from odradek.storage.log.log import Log
from odradek.storage.log_config import LogConfig
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import NOW, all_bytes, append, batch, headers_of, idempotent, open_small

SETTINGS: dict[str, Any] = {"segment_bytes": 400, "index_interval_bytes": 50}


def append_fails(log: Log, data: bytes) -> None:
    with pytest.raises(ProtocolError) as error:
        append(log, data)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def append_code(log: Log, data: bytes) -> ErrorCode | None:
    """Returns the error of an append; None if it succeeded."""
    try:
        append(log, data)
    except ProtocolError as error:
        return error.code
    return None


def test_a_disk_full_at_any_byte_fails_only_the_append() -> None:
    needed = 1300  # slightly less than twelve appends need
    for room in range(needed):
        files = ForgetfulFiles()
        log = open_small(files, **SETTINGS)
        append(log, idempotent(0))
        files.room = room
        sequence = 1
        failed = 0
        while failed < 3:
            before = all_bytes(log)
            end = log.state.log_end_offset
            code = append_code(log, idempotent(sequence, b"x" * 20))
            if code is None:
                sequence += 1
            else:
                failed += 1
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
                assert log.state.log_end_offset == end
                assert all_bytes(log) == before
                segment = log.segments.active
                assert files.size(segment.path(".log")) == segment.size, room
        assert sequence <= 12, room
        files.room = None
        info = log.append_as_leader(idempotent(sequence, b"x" * 20), 0, api_version=9)
        assert (info.duplicate, info.first_offset) == (False, sequence)
        assert len(headers_of(log)) == sequence + 1
        log.close()
        again = open_small(files, **SETTINGS)
        assert len(headers_of(again)) == sequence + 1
        assert again.producers.state.producers[1].last_sequence == sequence


def test_a_torn_tail_that_cannot_be_truncated_is_truncated_before_the_next_append() -> None:
    files = ForgetfulFiles()
    log = open_small(files)
    append(log)
    whole = all_bytes(log)
    path = log.segments.active.path(".log")
    files.room = 30
    refusing = True

    def truncate(size: int) -> None:
        if refusing:
            raise OSError(5, "the disk does not answer")
        del files.content(path)[size:]

    log.segments.active.file.truncate = truncate  # type: ignore[method-assign]
    append_fails(log, batch(b"x" * 100))
    assert files.size(path) == len(whole) + 30
    assert all_bytes(log) == whole
    files.room = None
    append_fails(log, batch())  # the torn tail is still there
    refusing = False
    append(log, batch(b"y"))
    assert [header.base_offset for header in headers_of(log)] == [0, 1]
    assert files.size(path) == log.segments.size_in_bytes


def test_a_failed_roll_leaves_the_old_segment_active() -> None:
    files = ForgetfulFiles()
    log = open_small(files, **SETTINGS)
    while log.segments.size_in_bytes + len(batch(b"x" * 50)) <= 400:
        append(log, batch(b"x" * 50))
    names = files.list_directory("/data/orders-0")
    files.room = 0
    append_fails(log, batch(b"x" * 50))
    assert log.segments.base_offsets == [0]
    assert files.list_directory("/data/orders-0") == names
    files.room = None
    append(log, batch(b"x" * 50))
    assert len(log.segments.base_offsets) == 2


def test_a_failed_flush_prevents_appends_until_the_log_is_opened_again() -> None:
    files = ForgetfulFiles()
    log = open_small(files)
    append(log)
    files.fail_sync = OSError(5, "the disk does not answer")
    with pytest.raises(ProtocolError) as error:
        log.flush()
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    files.fail_sync = None
    append_fails(log, batch())
    assert len(headers_of(log)) == 1
    assert log.state.recovery_point == 0
    again = open_small(files, options={"clean": False})
    append(again)
    again.flush()
    assert again.state.recovery_point == 2


def test_a_failed_append_is_logged(logged: list[dict[str, object]]) -> None:
    files = ForgetfulFiles()
    log = open_small(files)
    files.room = 10
    append_fails(log, batch())
    (entry,) = [entry for entry in logged if entry["log_level"] == "error"]
    assert (entry["event"], entry["partition"]) == ("append failed", "orders-0")
    assert "space" in str(entry["reason"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 256 KiB."""
    target = tmp_path / "disk"
    target.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "odradek-test", str(target)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a tmpfs needs root and the right to mount")
    try:
        yield target
    finally:
        subprocess.run(["umount", "-l", str(target)], check=True)


def test_a_log_survives_a_real_full_disk(small_disk: Path) -> None:
    log = open_small(OsFiles(), str(small_disk / "orders-0"), segment_bytes=64 << 10)
    size = 0
    while (code := append_code(log, batch(b"x" * 3000))) is None:
        size += 1
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert 60 < size < 90
    append_fails(log, batch(b"x" * 3000))
    assert len(headers_of(log)) == log.state.log_end_offset == size
    # DeleteRecords frees space, and appends work again
    log.start.delete_records_before(50)
    assert log.apply_retention(0) > 0
    for _, path in log.folder.removals.waiting:
        os.unlink(path)
    append(log, batch(b"x" * 3000))
    log.close()
    again = open_small(
        OsFiles(),
        str(small_disk / "orders-0"),
        options={"clean": False, "log_start_offset": 50},
        segment_bytes=64 << 10,
    )
    assert (again.state.log_start_offset, again.state.log_end_offset) == (50, size + 1)
    again.close()


def test_an_abort_on_a_full_disk_leaves_the_transaction_open_until_a_later_abort() -> None:
    """Either both the entry in the transaction index and the marker are there, or neither."""
    reached: set[int] = set()
    for room in range(0, 34 + 78 + 100, 3):
        files = ForgetfulFiles()
        log = open_small(files, index_interval_bytes=50)
        append(log, idempotent(0, is_transactional=True))
        files.room = room
        code = append_code_of_abort(log)
        files.room = None
        if code is not None:
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            assert log.last_stable_offset == 0
            assert log.state.log_end_offset == 1
            assert log.segments.active.transaction_index.entries() == []
            assert append_code_of_abort(log) is None
        reached.add(0 if code is None else 1)
        assert [entry.last_offset for entry in log.segments.active.transaction_index.entries()] == [1]
        assert log.last_stable_offset == 2
        log.close()
        again = open_small(files, index_interval_bytes=50)
        again.update_high_watermark(2)
        data = again.reader.read(0, 1 << 20)
        assert [(entry.first_offset, entry.last_offset) for entry in again.reader.aborted_transactions(data)] == [
            (0, 1)
        ]
        assert not again.producers.state.ongoing
    assert reached == {0, 1}


def append_code_of_abort(log: Log, epoch: int = 0) -> ErrorCode | None:
    marker = build_end_transaction_marker(
        ControlType.ABORT, timestamp=NOW, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    try:
        log.append_as_leader(marker, epoch, origin=AppendOrigin.COORDINATOR)
    except ProtocolError as error:
        return error.code
    log.update_high_watermark(log.state.log_end_offset)
    return None


def crashed_log(files: ForgetfulFiles) -> ForgetfulFiles:
    """Returns the disk after a crash of a log with several segments, producers, aborted transactions and two epochs."""
    log = open_small(files, **SETTINGS)
    for number in range(12):
        append(log, idempotent(2 * number, b"x" * 30, is_transactional=True), epoch=number // 6)
        append(log, idempotent(2 * number + 1, b"y", is_transactional=True), epoch=number // 6)
        assert append_code_of_abort(log, number // 6) is None
    files.make_durable()
    after = files.crash()
    for name in after.list_directory("/data/orders-0"):
        if name.endswith((".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")):
            after.remove(f"/data/orders-0/{name}")  # after a crash these may have any content
    return after


def test_a_log_is_recovered_completely_on_a_nearly_full_disk() -> None:
    whole = crashed_log(ForgetfulFiles())
    expected = open_small(whole, options={"clean": False}, **SETTINGS)
    for room in (*range(1, 600, 23), 1000, 2000):
        files = crashed_log(ForgetfulFiles())
        files.room = room
        log = open_small(files, options={"clean": False}, **SETTINGS)
        log.update_high_watermark(log.state.log_end_offset)
        assert all_bytes(log) == all_bytes(expected)
        data = log.reader.read(0, 1 << 20)
        assert log.reader.aborted_transactions(data) == expected.reader.aborted_transactions(data)
        assert log.leader_epochs.entries == expected.leader_epochs.entries
        assert finished(log.search.offset_for_timestamp(NOW)) == finished(expected.search.offset_for_timestamp(NOW))
        log.assign_epoch_start_offset(2)
        files.room = 0
        append_fails(log, batch(b"z" * 200))
        files.room = None
        append(log, batch(b"z"), epoch=2)
        log.close()
        again = open_small(files, options={"recovery_point": log.state.log_end_offset}, **SETTINGS)
        assert again.leader_epochs.entries[-1] == (2, expected.state.log_end_offset)
        assert again.reader.read(0, 1 << 20).records
        again.update_high_watermark(again.state.log_end_offset)
        for base_offset in expected.segments.base_offsets:
            data = expected.reader.read(base_offset, 1 << 20)
            assert again.reader.aborted_transactions(data) == expected.reader.aborted_transactions(data)


def test_a_log_with_unwritten_derived_data_is_not_closed_cleanly() -> None:
    files = crashed_log(ForgetfulFiles())
    files.room = 1
    log = open_small(files, options={"clean": False}, **SETTINGS)
    with pytest.raises(ProtocolError):
        log.close()
    assert not log.state.closed


class NoRoomInOneFolder(ForgetfulFiles):
    """Refuses new files in `folder`."""

    folder = "none"

    def _new(self, path: str) -> Any:
        if os.path.dirname(path) == self.folder:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super()._new(path)


def test_a_log_that_a_full_disk_keeps_closed_does_not_affect_others_and_keeps_its_checkpoints() -> None:
    files, clock = NoRoomInOneFolder(), ManualClock(wall_ms=NOW)
    whole, empty = TopicPartition("orders", 0), TopicPartition("orders", 1)
    manager = LogManager(["/data"], files, clock)
    manager.open()
    manager.load()
    for partition in (whole, empty):
        log = manager.get_or_create(partition, None, LogConfig())
        append(log)
        log.start.delete_records_before(1)
    assert manager.shutdown() == {}
    for name in files.list_directory("/data/orders-1"):
        files.remove(f"/data/orders-1/{name}")
    files.folder = "/data/orders-1"
    again = LogManager(["/data"], files, clock)
    again.open()
    again.load()
    assert list(again.logs) == [whole]
    files.folder = "none"
    assert "No space left on device" in again.shutdown()["/data"]
    assert not files.exists("/data/.kafka_cleanshutdown")
    assert read_offsets(files, "/data/log-start-offset-checkpoint") == {whole: 1, empty: 1}
    last = LogManager(["/data"], files, clock)
    last.open()
    last.load()
    assert last.logs[empty].state.log_start_offset == 1
    assert last.shutdown() == {}


def test_no_later_sync_makes_the_records_durable_whose_sync_has_failed() -> None:
    """The system may have dropped their pages: syncs that succeed, also of what another flush began, prove nothing."""
    files = ForgetfulFiles()
    log = open_small(files, **SETTINGS)
    append(log, batch(b"kept"))
    log.flush()
    append(log, batch(b"lost"))
    first, other = log.begin_flush(), log.begin_flush()
    assert first is not None
    assert other is not None
    files.fail_sync = OSError(errno.EIO, "the disk does not answer")
    first.run()
    files.fail_sync = None
    other.run()
    for job in (first, other):
        with pytest.raises(ProtocolError):
            log.flusher.finish(job)
    assert log.begin_flush() is None
    assert (log.state.recovery_point, log.state.log_end_offset) == (1, 2)
    append_fails(log, batch(b"refused"))
