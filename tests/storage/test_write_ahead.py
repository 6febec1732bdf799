"""A large batch's records are written before the batch is appended, and are not part of the log until then."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import ValidatedBatch
from odradek.storage.files import Buffer, File, OsFile, OsFiles
from odradek.storage.log.log import Log
from odradek.storage.log.write_ahead import PIECE_BYTES
from odradek.storage.log_config import LogConfig
from tests.storage.small_logs import append, batch, bytes_of, headers_of, open_small

LARGE = batch(b"x" * (2 * PIECE_BYTES + 1000))
STEPS = 3


class CountedFile(OsFile):
    """Reports the size of each write to its disk."""

    def __init__(self, path: str, disk: CountedWrites) -> None:
        super().__init__(path, os.open(path, os.O_RDWR))
        self.disk = disk

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        error, self.disk.error = self.disk.error, None
        if error is not None:
            raise error
        self.disk.sizes.append(sum(map(len, parts)))
        return super().write(parts, position)


class CountedWrites(OsFiles):
    """Records the size of each write to a log; `error` is raised by the next one."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.error: OSError | None = None

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> File:
        file = super().open(path, create=create, exclusive=exclusive)
        if not path.endswith(".log"):
            return file
        file.close()
        return CountedFile(path, self)


@pytest.fixture
def files() -> CountedWrites:
    return CountedWrites()


@pytest.fixture
def log(files: CountedWrites, tmp_path: Path) -> Log:
    """Returns a log with one small batch."""
    log = open_again(files, tmp_path)
    append(log)
    files.sizes.clear()
    return log


def open_again(files: OsFiles, root: Path) -> Log:
    return open_small(files, str(root / "orders-0"), max_message_bytes=1 << 30, segment_bytes=5 * PIECE_BYTES)


def checked(log: Log) -> ValidatedBatch:
    return log.validation(LARGE, 0, 9).at_once()


def append_checked(log: Log, large: ValidatedBatch) -> int:
    first_offset = log.append_as_leader(large, 0, api_version=9).first_offset
    log.update_high_watermark(log.state.log_end_offset)
    return first_offset


def counts(log: Log) -> list[int]:
    """Returns the size of each batch; asserts that the active file ends where the log does."""
    assert log.segments.active.file.size() == log.segments.active.size
    return [header.size_in_bytes for header in headers_of(log)]


def test_a_batch_is_written_in_pieces_and_its_append_writes_only_the_header(log: Log, files: CountedWrites) -> None:
    before, large = log.segments.active.size, checked(log)
    for _ in log.write_ahead(large):
        assert (log.state.log_end_offset, log.segments.active.size) == (1, before)
    assert files.sizes == [PIECE_BYTES, PIECE_BYTES, len(LARGE) - 17 - 2 * PIECE_BYTES]
    assert append_checked(log, large) == 1
    assert files.sizes[STEPS:] == [17]
    assert log.writer.ahead is None
    assert bytes_of(log.reader.read(1, 1 << 30))[61:] == LARGE[61:]
    assert counts(log) == [before, len(LARGE)]


@pytest.mark.parametrize("steps", [1, STEPS])
def test_another_append_in_between_truncates_the_written_ahead_records(log: Log, steps: int) -> None:
    before, large = log.segments.active.size, checked(log)
    writing = log.write_ahead(large)
    for _ in range(steps):
        next(writing)
    append(log)
    assert counts(log) == [before, before]
    assert list(writing) == []
    assert append_checked(log, large) == 2
    assert counts(log) == [before, before, len(LARGE)]


def test_a_segment_without_space_for_the_batch_is_rolled_first(log: Log) -> None:
    for _ in range(3):
        large = checked(log)
        assert sum(1 for _ in log.write_ahead(large)) == STEPS
        append_checked(log, large)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert counts(log)[1:] == [len(LARGE)] * 3


def test_a_roll_in_between_removes_the_records_from_the_old_segment(log: Log) -> None:
    before, large = log.segments.active.size, checked(log)
    writing = log.write_ahead(large)
    next(writing)
    log.roll()
    assert list(writing) == []
    assert log.segments[0].file.size() == before
    assert append_checked(log, large) == 1
    assert counts(log) == [before, len(LARGE)]


def test_records_given_up_are_truncated_before_the_next_append(log: Log) -> None:
    before = log.segments.active.size
    for _ in log.write_ahead(checked(log)):
        pass
    log.writer.give_up_ahead()
    assert append(log) == 1
    assert counts(log) == [before, before]


@pytest.mark.parametrize("steps", [1, STEPS])
def test_recovery_removes_written_ahead_records(files: CountedWrites, log: Log, steps: int, tmp_path: Path) -> None:
    before = log.segments.active.size
    writing = log.write_ahead(checked(log))
    for _ in range(steps):
        next(writing)
    log.segments.close_files()
    again = open_again(files, tmp_path)
    assert (again.state.log_end_offset, again.segments.active.file.size()) == (1, before)


def test_a_full_disk_leaves_the_log_unchanged(log: Log, files: CountedWrites) -> None:
    before, large = log.segments.active.size, checked(log)
    writing = log.write_ahead(large)
    next(writing)
    files.error = OSError(28, "No space left on device")
    with pytest.raises(ProtocolError) as refusal:
        next(writing)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.writer.ahead is None
    assert counts(log) == [before]
    assert append_checked(log, large) == 1


def test_a_batch_larger_than_a_segment_is_not_written_ahead(log: Log) -> None:
    large = checked(log)
    log.update_config(LogConfig({"segment.bytes": PIECE_BYTES}))
    assert list(log.write_ahead(large)) == []
    assert log.writer.ahead is None
