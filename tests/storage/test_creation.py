"""Creating partitions: what a failure leaves behind, and the cost of unused partitions and segments."""

import gc
import os
import uuid
from pathlib import Path

import pytest

from odradek.broker.background.stepwise import finished
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.directories import log_manager
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.files import OsFiles
from odradek.storage.log.segments import LogSegments
from odradek.storage.log_config import LogConfig
from odradek.storage.segment.segment import LogSegment
from odradek.storage.segment.segment_cache import SegmentCache
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import NOW, append, batch, headers_of, open_small

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=7)


class NoRoomFor(ForgetfulFiles):
    """A disk that refuses files whose names contain `name`."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "nothing"

    def _refuse(self, path: str) -> None:
        if self.name in path:
            raise OSError(28, os.strerror(28), path)

    def _new(self, path: str):  # type: ignore[no-untyped-def]
        self._refuse(path)
        return super()._new(path)

    def replace_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self._refuse(path)
        super().replace_file(path, data, sync=sync)

    def list_directory(self, path: str) -> list[str]:
        self._refuse(path)
        return super().list_directory(path)


@pytest.mark.parametrize("name", ["orders-0", ".log", ".index", ".timeindex", "partition.metadata"])
def test_a_partition_can_be_created_after_a_failure_once_there_is_space(name: str) -> None:
    files = NoRoomFor()
    clock = ManualClock(wall_ms=NOW)
    manager = LogManager(["/data"], files, clock)
    manager.open()
    files.name = name
    with pytest.raises(ProtocolError) as refusal:
        manager.get_or_create(ORDERS, TOPIC_ID, LogConfig())
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.get(ORDERS) is None
    assert not files.exists("/data/orders-0")
    files.name = "nothing"
    log = manager.get_or_create(ORDERS, uuid.UUID(int=8), LogConfig())
    assert log.append_as_leader(batch(), 0, api_version=9).first_offset == 0
    removal = manager.take_removals()
    assert removal is not None
    removal.run()
    assert [folder for folder in files.list_directory("/data") if folder.startswith("orders")] == ["orders-0"]


def test_a_new_log_is_created_in_a_directory_that_has_not_failed() -> None:
    files = ForgetfulFiles()
    manager = LogManager(["/a", "/b"], files, ManualClock(wall_ms=NOW))
    manager.open()
    files.broken = {"/a"}
    with pytest.raises(ProtocolError):
        manager.get_or_create(ORDERS, TOPIC_ID, LogConfig())
    for number in range(3):
        log = manager.get_or_create(TopicPartition("orders", number), TOPIC_ID, LogConfig())
        assert manager.directory_of(log) == "/b"


@pytest.mark.parametrize(("failed", "expected"), [(["orders-0"], "/b"), (["orders-0", "orders-1"], "/a")])
def test_a_directory_with_a_log_that_has_failed_gets_new_logs_only_if_no_other_is_left(
    failed: list[str], expected: str
) -> None:
    manager = LogManager(["/a", "/b"], ForgetfulFiles(), ManualClock(wall_ms=NOW))
    manager.open()
    logs = [manager.get_or_create(TopicPartition("orders", number), TOPIC_ID, LogConfig()) for number in range(2)]
    assert [log.folder.path for log in logs] == ["/a/orders-0", "/b/orders-1"]
    for log in logs:
        if str(log.topic_partition) in failed:
            log.folder.fail(OSError(5, os.strerror(5)))
    created = manager.get_or_create(TopicPartition("orders", 2), TOPIC_ID, LogConfig())
    assert manager.directory_of(created) == expected


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def open_files() -> int:
    gc.collect()  # the logs of other tests
    return len(os.listdir("/proc/self/fd"))


def new_manager(data: Path) -> LogManager:
    manager = LogManager([str(data)], OsFiles(), ManualClock(wall_ms=NOW))
    manager.open()
    return manager


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux's list of open files")
@pytest.mark.parametrize("ends_well", [True, False])
def test_an_unused_partition_has_no_open_files(data: Path, ends_well: bool) -> None:
    manager = new_manager(data)
    before = open_files()
    logs = [manager.get_or_create(TopicPartition("orders", number), TOPIC_ID, LogConfig()) for number in range(50)]
    assert open_files() == before
    for log in logs:
        log.append_as_leader(batch(b"one"), 0, api_version=9)
    assert open_files() <= before + 50, "the records' file, while they are written"
    if ends_well:
        manager.shutdown()
    else:
        for log in logs:
            log.segments.close_files()
        manager.release()
    again = new_manager(data)
    before = open_files()
    again.load()
    assert len(again.logs) == 50
    assert open_files() == before
    assert again.logs[ORDERS].reader.read(0, 1000).records
    again.shutdown()


def test_a_search_by_time_does_not_open_segments_that_it_can_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_small(ForgetfulFiles(), segment_bytes=200)
    for number in range(20):
        append(log, batch(b"x" * 40, timestamp=NOW + number))
    assert len(log.segments) > 8
    finished(log.search.offset_for_timestamp(NOW))
    used: list[int] = []
    use = LogSegments.use

    def noted(segments: LogSegments, segment: LogSegment) -> LogSegment:
        used.append(segment.base_offset)
        return use(segments, segment)

    monkeypatch.setattr(LogSegments, "use", noted)
    late = log.segments[-2].base_offset
    found = finished(log.search.offset_for_timestamp(NOW + late))
    assert found is not None
    assert found.offset == late
    assert used == [late]
    used.clear()
    assert finished(log.search.offset_for_timestamp(-3)) is not None
    assert len(set(used)) == 1


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux's list of open files")
def test_many_rolled_segments_are_flushed_with_few_open_files(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_manager, "SEGMENTS_PER_FLUSH", 5)
    manager = new_manager(data)
    logs = [
        manager.get_or_create(TopicPartition("orders", number), TOPIC_ID, LogConfig({"segment.bytes": "150"}))
        for number in range(4)
    ]
    for log in logs:
        while len(log.segments) < 13:
            append(log)
    before = open_files()
    rounds = 0
    while any(log.segments.unsynced for log in logs):
        rounds += 1
        for log, job in filter(None, manager.take_flush_jobs()):
            assert open_files() <= before + 5 * 3 + 2
            job.run()
            log.flusher.finish(job)
    assert rounds == 3
    assert all(log.state.recovery_point == log.segments.active.base_offset for log in logs)
    manager.shutdown()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux's list of open files")
def test_segments_that_roll_faster_than_they_are_flushed_have_few_open_files(data: Path) -> None:
    manager = LogManager([str(data)], OsFiles(), ManualClock(wall_ms=NOW), cache=SegmentCache(8))
    manager.open()
    before = open_files()
    logs = [
        manager.get_or_create(TopicPartition("orders", number), TOPIC_ID, LogConfig({"segment.bytes": "150"}))
        for number in range(2)
    ]
    for log in logs:
        while len(log.segments) < 60:
            append(log)
        assert len(log.segments.unsynced) == 59
    assert open_files() <= before + 8 + len(logs)
    for log, job in filter(None, manager.take_flush_jobs()):
        job.run()
        log.flusher.finish(job)
        assert not log.segments.unsynced
        assert log.state.recovery_point == log.segments.active.base_offset
    assert open_files() <= before + 8 + len(logs)
    assert len(headers_of(logs[0])) == logs[0].state.log_end_offset
    manager.shutdown()
    assert open_files() <= before
