"""The most recent batches are read from memory: the same bytes as on the disk, with one limit for all logs together."""

import os
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import iter_batches
from odradek.storage.file_slice import FileSlice
from odradek.storage.files import Buffer, Files, OsFiles
from odradek.storage.log.log import Log
from odradek.storage.log.read import FetchData
from odradek.storage.segment.segment_cache import SegmentCache
from odradek.storage.segment.tail import ENTRY_BYTES, TAIL_BATCHES, TAIL_BYTES, Tail, Tails
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles, Inode, MemoryFile
from tests.storage.small_logs import NOW, append, batch, open_small, truncate

KB, MB = 1 << 10, 1 << 20


class CountedFile(MemoryFile):
    """Records every read."""

    def __init__(self, disk: "CountingFiles", path: str, inode: Inode) -> None:
        super().__init__(disk, path, inode)
        self._reads = disk.reads

    def read(self, position: int, length: int) -> Buffer:
        self._reads.append((self.path, position, length))
        return super().read(position, length)

    def read_cached(self, position: int, length: int) -> Buffer | None:
        self._reads.append((self.path, position, length))
        return super().read_cached(position, length)


class CountingFiles(ForgetfulFiles):
    """Records every read of a log file."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int, int]] = []

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> MemoryFile:
        file = super().open(path, create=create, exclusive=exclusive)
        if path.endswith(".log"):
            return CountedFile(self, path, file.inode)
        return file


@pytest.fixture
def files() -> CountingFiles:
    return CountingFiles()


@pytest.fixture
def tails() -> Tails:
    return Tails()


def open_log(files: Files, tails: Tails | None, directory: str = "/data/orders-0", **settings: Any) -> Log:
    return open_small(files, directory, options={"cache": SegmentCache(tails=tails)}, **settings)


def offsets(data: FetchData) -> list[int]:
    assert not isinstance(data.records, FileSlice)
    return [header.base_offset for _, header in iter_batches(bytes(data.records))]


def test_a_consumer_at_the_end_of_the_log_reads_no_file(files: CountingFiles, tails: Tails) -> None:
    log = open_log(files, tails)
    for offset in range(50):
        append(log, batch(b"x" * 100))
        files.reads.clear()
        assert offsets(log.reader.read(offset, MB, may_block=False, sendable=True)) == [offset]
        assert files.reads == []
    assert offsets(log.reader.read(20, MB)) == list(range(20, 50))
    assert files.reads == []


def test_reads_from_the_tail_do_not_need_the_page_cache(files: CountingFiles, tails: Tails) -> None:
    log = open_log(files, tails)
    append(log)
    files.cold.add(log.segments.active.path(".log"))
    assert log.reader.read(0, MB, may_block=False).cold is None


def test_a_batch_is_returned_by_reference(files: CountingFiles, tails: Tails) -> None:
    """Two hundred consumers need only one copy."""
    log = open_log(files, tails)
    append(log, batch(b"x" * 20_000))
    assert log.reader.read(0, MB).records is log.reader.read(0, MB).records


@pytest.mark.parametrize("limit", [1, 61, 70, 100, 1000])
def test_max_bytes_cuts_reads_from_the_tail_like_reads_from_the_disk(limit: int) -> None:
    logs = [open_log(ForgetfulFiles(), tails) for tails in (Tails(), None)]
    for number in range(10):
        for log in logs:
            append(log, batch(b"x" * number, timestamp=NOW))
    for offset in range(10):
        kept, plain = (log.reader.read(offset, limit, min_one_message=False) for log in logs)
        assert bytes(kept.records) == bytes(plain.records)  # type: ignore[arg-type]
        assert kept.first_batch_incomplete == plain.first_batch_incomplete
        assert kept.offset_metadata == plain.offset_metadata


def test_a_read_below_the_high_watermark_ends_there(files: CountingFiles, tails: Tails) -> None:
    log = open_log(files, tails)
    append(log)
    log.append_as_leader(batch(), 0, api_version=9)
    assert offsets(log.reader.read(0, MB, upper=log.positions.high_watermark)) == [0]
    assert files.reads == []


def test_truncated_batches_are_not_served_again(files: CountingFiles, tails: Tails) -> None:
    log = open_log(files, tails)
    for value in (b"a", b"b", b"old"):
        append(log, batch(value))
    truncate(log, 2)
    assert (len(tails), tails.held_bytes) == (0, 0)
    append(log, batch(b"new"))
    assert b"new" in bytes(log.reader.read(2, MB).records)  # type: ignore[arg-type]
    assert b"old" not in bytes(log.reader.read(0, MB).records)  # type: ignore[arg-type]


def test_a_sealed_segment_has_no_tail(files: CountingFiles, tails: Tails) -> None:
    log = open_log(files, tails)
    append(log)
    log.roll()
    assert (len(tails), tails.held_bytes) == (0, 0)
    append(log)
    files.reads.clear()
    assert offsets(log.reader.read(1, MB)) == [1]
    assert files.reads == []
    assert offsets(log.reader.read(0, MB)) == [0]
    assert files.reads != []


def test_a_failed_append_adds_nothing_to_the_tail(files: CountingFiles, tails: Tails) -> None:
    log = open_log(files, tails)
    append(log, batch(b"whole"))
    files.room = 10
    with pytest.raises(ProtocolError) as refused:
        log.append_as_leader(batch(b"torn"), 0, api_version=9)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    files.room = None
    append(log, batch(b"next"))
    records = bytes(log.reader.read(0, MB).records)  # type: ignore[arg-type]
    assert b"whole" in records
    assert b"next" in records
    assert b"torn" not in records


def test_a_closed_log_has_no_tail(files: CountingFiles, tails: Tails) -> None:
    log = open_log(files, tails)
    append(log)
    log.close()
    assert (len(tails), tails.held_bytes) == (0, 0)


def test_logs_without_appends_have_no_tail(files: CountingFiles, tails: Tails) -> None:
    for number in range(20):
        open_log(files, tails, f"/data/idle-{number}")
    assert (len(tails), tails.held_bytes) == (0, 0)


def test_the_tails_of_all_logs_stay_within_the_limit(files: CountingFiles) -> None:
    """The log with the oldest last append loses its tail first."""
    tails = Tails(max_bytes=10 * KB)
    logs = [open_log(files, tails, f"/data/orders-{number}") for number in range(50)]
    for _ in range(3):
        for log in logs:
            append(log, batch(b"x" * KB))
            assert tails.held_bytes <= 10 * KB
    kept = [log for log in logs if is_served_from_memory(files, log)]
    assert kept == logs[-len(kept) :]
    assert 5 <= len(kept) <= 10


def is_served_from_memory(files: CountingFiles, log: Log) -> bool:
    files.reads.clear()
    log.reader.read(log.state.log_end_offset - 1, MB)
    return not files.reads


@pytest.mark.parametrize("size", [10, 1000, 16_000, 100_000])
def test_the_tail_of_one_log_is_limited(files: CountingFiles, tails: Tails, size: int) -> None:
    log = open_log(files, tails)
    for _ in range(3 * TAIL_BATCHES if size < 1000 else 60):
        append(log, batch(b"x" * size))
        assert tails.held_bytes <= TAIL_BYTES + TAIL_BATCHES * ENTRY_BYTES
    assert is_served_from_memory(files, log)


@pytest.mark.parametrize(("size", "batches"), [(70, 1), (70, 100), (5000, 1), (5000, 20)])
def test_held_bytes_covers_the_memory_used(size: int, batches: int) -> None:
    tails = Tails(max_bytes=1 << 40)
    kept: list[Tail] = []
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(200):
        tail: Tail | None = None
        for number in range(batches):
            tail = tails.keep(tail, [bytes(17), memoryview(bytes(size))[17:]], number * size, size)
        assert tail is not None
        kept.append(tail)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken <= 1.1 * tails.held_bytes


def test_a_batch_larger_than_a_tail_is_read_from_its_file(files: CountingFiles, tails: Tails) -> None:
    log = open_log(files, tails)
    append(log)
    append(log, batch(b"x" * TAIL_BYTES))
    assert tails.held_bytes == 0
    assert offsets(log.reader.read(1, MB)) == [1]
    append(log)
    assert is_served_from_memory(files, log)


@pytest.fixture
def real_files(tmp_path: Path) -> tuple[OsFiles, str]:
    return OsFiles(), str(tmp_path / "orders-0")


@pytest.mark.parametrize("seed", range(3))
def test_reads_always_return_the_files_bytes(real_files: tuple[OsFiles, str], seed: int) -> None:
    """Appends, rolls, truncation, DeleteRecords and retention in any order, with evictions caused by another log."""
    files, directory = real_files
    source = random.Random(seed)
    tails = Tails(max_bytes=40 * KB)
    clock = ManualClock(wall_ms=NOW)
    options = {"cache": SegmentCache(tails=tails)}
    log = open_small(files, directory, clock, options, segment_bytes=50_000, retention_bytes=120_000)
    other = open_small(ForgetfulFiles(), "/data/other-0", clock, options)
    for _ in range(400):
        chance = source.random()
        if chance < 0.85:
            append(log, batch(source.randbytes(source.choice((1, 100, 3000, 9000)))))
        elif chance < 0.88:
            truncate(log, source.randint(log.state.log_start_offset, log.state.log_end_offset))
        elif chance < 0.90:
            log.roll()
        elif chance < 0.92:
            log.start.delete_records_before(source.randint(log.state.log_start_offset, log.state.high_watermark))
        elif chance < 0.95:
            log.apply_retention(clock.wall_ms())
        else:
            append(other, batch(b"x" * 30_000))
        assert tails.held_bytes <= 40 * KB
        assert_reads_are_the_files_bytes(log, source)


def assert_reads_are_the_files_bytes(log: Log, source: random.Random) -> None:
    offset = source.randint(log.state.log_start_offset, log.state.log_end_offset)
    found = log.reader.read(offset, source.choice((1, 500, 10_000, MB)), may_block=True)
    if found.records:
        where = found.offset_metadata
        path = f"{log.folder.path}/{where.segment_base_offset:020}.log"
        descriptor = os.open(path, os.O_RDONLY)
        try:
            stored = os.pread(descriptor, len(found.records), where.relative_position)
        finally:
            os.close(descriptor)
        assert bytes(found.records) == stored  # type: ignore[arg-type]
