"""Moving a log from one directory of log.dirs to another while it is used, and failures during the move."""

import errno
import itertools
import random
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from odradek.protocol.errors import ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT, read_offsets
from odradek.storage.directories import future_replica as log_move
from odradek.storage.directories.future_replica import LogMove
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.file_names import future_folder, has_room_for_a_future, parse_future_folder
from odradek.storage.files import Files
from odradek.storage.log.log import Log
from odradek.storage.log.truncation import Truncate
from odradek.storage.log_config import LogConfig
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles, Inode
from tests.storage.small_logs import NOW, all_bytes, append, batch, idempotent, truncate_in

CLUSTER = "nlQg0zzARJuGzyqjahpCMg"
TOPIC_ID = uuid.UUID("52278a74-9d53-4a97-89a5-03a14210367d")
CONFIG = LogConfig({"segment.bytes": 400, "index.interval.bytes": 100, "retention.ms": -1})
PARTITION = TopicPartition("orders", 0)
A, B = "/a", "/b"


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes slices smaller than a batch."""
    monkeypatch.setattr(log_move, "SLICE_BYTES", 100)


def started(files: Files, clock: ManualClock | None = None) -> LogManager:
    manager = LogManager(
        [A, B], files, clock or ManualClock(wall_ms=NOW), random_source=random.Random(3), default_config=CONFIG
    )
    manager.open()
    manager.claim(1, CLUSTER)
    manager.load()
    return manager


def filled(manager: LogManager, batches: int = 12) -> Log:
    """Returns a log in the first directory: several segments, an idempotent producer, deleted records at the start."""
    manager.moves.prefer(PARTITION, A)
    log = manager.get_or_create(PARTITION, TOPIC_ID, CONFIG)
    log.assign_epoch_start_offset(2)
    for number in range(batches):
        append(log, idempotent(number, b"v" * 60), epoch=2)
    log.start.delete_records_before(2)
    assert manager.directory_of(log) == A
    assert len(log.segments) > 3
    return log


def carry_out(manager: LogManager, move: LogMove, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Runs all pieces one after the other, and `meanwhile` between any two."""
    for _ in range(1000):
        job = move.next_job()
        is_last = job is None
        job = job or move.settle()
        job.run()
        meanwhile()
        move.finished(job)
        if is_last and manager.moves.finish(move):
            return
    raise AssertionError("the move does not come to an end")


def folders(files: Files, directory: str) -> list[str]:
    return [name for name in files.list_directory(directory) if files.is_directory(f"{directory}/{name}")]


def test_a_moved_log_is_the_same_log_in_another_directory() -> None:
    files = ForgetfulFiles()
    manager = started(files)
    log = filled(manager)
    before = (all_bytes(log), log.state.log_start_offset, log.state.high_watermark, log.leader_epochs.entries)
    carry_out(manager, manager.moves.begin(PARTITION, B))
    assert manager.directory_of(log) == B
    assert manager.logs[PARTITION] is log
    assert (all_bytes(log), log.state.log_start_offset, log.state.high_watermark, log.leader_epochs.entries) == before
    assert folders(files, B) == ["orders-0"]
    (doomed,) = folders(files, A)
    assert doomed.endswith("-delete")
    append(log, idempotent(12), epoch=2)
    manager.shutdown()
    again = started(files)
    log = again.logs[PARTITION]
    assert again.directory_of(log) == B
    assert (log.state.log_start_offset, log.state.log_end_offset, log.folder.topic_id) == (2, 13, TOPIC_ID)
    assert all_bytes(log).startswith(before[0])
    assert log.leader_epochs.entries == before[3]
    assert append(log, idempotent(13), epoch=2) == 13


def test_the_old_folder_is_removed_after_its_delay() -> None:
    files, clock = ForgetfulFiles(), ManualClock(wall_ms=NOW)
    manager = started(files, clock)
    filled(manager)
    carry_out(manager, manager.moves.begin(PARTITION, B))
    assert manager.take_removals() is None
    clock.advance(CONFIG.file_delete_delay_ms)
    removal = manager.take_removals()
    assert removal is not None
    removal.run()
    assert folders(files, A) == []


def test_records_appended_during_a_move_are_copied() -> None:
    manager = started(ForgetfulFiles())
    log = filled(manager)
    sequence = iter(range(12, 30))

    def produce() -> None:
        number = next(sequence, None)
        if number is not None:
            append(log, idempotent(number, b"w" * 50), epoch=2)

    carry_out(manager, manager.moves.begin(PARTITION, B), produce)
    assert log.state.log_end_offset == 30
    assert manager.directory_of(log) == B
    copied = all_bytes(log)
    manager.shutdown()
    log = started(manager.files).logs[PARTITION]
    assert all_bytes(log) == copied
    assert log.producers.state.producers[1].last_sequence == 29


@pytest.mark.parametrize("segment_bytes", [100_000_000, 1000], ids=["one segment", "many segments"])
def test_a_move_catches_up_with_a_log_that_grows_faster_than_the_disk_syncs(
    segment_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_move, "REST_BYTES", 1000)
    files = ForgetfulFiles()
    manager = started(files)
    manager.moves.prefer(PARTITION, A)
    log = manager.get_or_create(PARTITION, TOPIC_ID, LogConfig({"segment.bytes": segment_bytes, "retention.ms": -1}))
    for number in range(5):
        append(log, idempotent(number, b"v" * 60))
    sequence = itertools.count(5)
    move = manager.moves.begin(PARTITION, B)

    def produce(path: str) -> None:
        if path == move.folder or path.startswith(f"{move.folder}/"):
            for number in itertools.islice(sequence, 50):
                append(log, idempotent(number, b"w" * 60))

    def producing(sync: Callable[[str], None]) -> Callable[[str], None]:
        def produce_and_sync(path: str) -> None:
            produce(path)
            sync(path)

        return produce_and_sync

    monkeypatch.setattr(files, "sync_file", producing(files.sync_file))
    monkeypatch.setattr(files, "sync_directory", producing(files.sync_directory))
    carry_out(manager, move)
    assert manager.directory_of(log) == B


def test_segments_deleted_by_retention_during_a_move_are_not_in_the_copy() -> None:
    files = ForgetfulFiles()
    manager = started(files)
    log = filled(manager)
    move = manager.moves.begin(PARTITION, B)
    for _ in range(4):
        job = move.next_job()
        assert job is not None
        job.run()
        move.finished(job)
    log.update_config(LogConfig({"segment.bytes": 400, "retention.bytes": 500, "retention.ms": -1}))
    assert log.apply_retention(NOW) > 1
    carry_out(manager, move)
    logs = [name for name in files.list_directory(f"{B}/orders-0") if name.endswith(".log")]
    assert len(logs) == len(log.segments)


def test_a_log_truncated_during_a_move_is_copied_again() -> None:
    manager = started(ForgetfulFiles())
    log = filled(manager)
    move = manager.moves.begin(PARTITION, B)

    def cut_to_five() -> None:
        assert truncate_in(manager, {PARTITION: Truncate(5)}) == {PARTITION: None}

    cut: Iterator[Callable[[], object]] = iter([lambda: None] * 4 + [cut_to_five, lambda: append(log, batch(b"new"))])
    carry_out(manager, move, lambda: next(cut, lambda: None)())
    assert log.state.log_end_offset == 6
    expected = all_bytes(log)
    manager.shutdown()
    assert all_bytes(started(manager.files).logs[PARTITION]) == expected


def test_a_log_truncated_before_a_slice_of_it_is_read_goes_on_moving() -> None:
    manager = started(ForgetfulFiles())
    log = filled(manager)
    move = manager.moves.begin(PARTITION, B)
    while (job := move.next_job()) is not None and job.segment is not log.segments[1]:
        job.run()
        move.finished(job)
    assert job is not None
    cut = log.segments[1].base_offset
    assert truncate_in(manager, {PARTITION: Truncate(cut)}) == {PARTITION: None}
    job.run()
    assert job.error is not None, "the segment is shorter"
    assert job.segment is log.segments.active, "and still part of the log"
    move.finished(job)
    append(log, batch(b"new"))
    carry_out(manager, move)
    expected = all_bytes(log)
    manager.shutdown()
    assert all_bytes(started(manager.files).logs[PARTITION]) == expected


def test_segments_that_were_synced_without_their_leader_epochs_are_synced_in_the_copy() -> None:
    files = ForgetfulFiles()
    manager = started(files)
    log = filled(manager)
    job = log.begin_flush(log.segments.active.base_offset)
    assert job is not None

    def refuse(*_arguments: Any, **_options: Any) -> None:
        raise OSError(errno.EIO, "the disk has an error")

    replace, files.replace_file = files.replace_file, refuse  # type: ignore[method-assign]
    job.run()
    files.replace_file = replace  # type: ignore[method-assign]
    assert job.epochs_error is not None
    with pytest.raises(ProtocolError):
        log.flusher.finish(job)
    assert (log.segments.unsynced, log.state.recovery_point) == ([], 2)
    move = manager.moves.begin(PARTITION, B)
    carry_out(manager, move)
    copies = {f"{move.folder}/{segment.base_offset:020}.log" for segment in log.segments[:-1]}
    assert copies <= set(files.synced_paths)


def test_a_flush_in_progress_at_the_swap_is_ignored() -> None:
    manager = started(ForgetfulFiles())
    log = filled(manager)
    move = manager.moves.begin(PARTITION, B)
    held: list[Any] = []

    def begin_flush() -> None:
        if not held and move.next_job() is None:
            append(log, idempotent(12), epoch=2)
            held.append(log.begin_flush())

    carry_out(manager, move, begin_flush)
    flushed = log.state.recovery_point
    held[0].error = OSError(errno.ENOENT, "its files have gone")
    log.flusher.finish(held[0])
    assert (log.state.recovery_point, log.folder.failure) == (flushed, None)
    log.flush()
    assert log.state.recovery_point == 13


def test_the_progress_of_a_move_is_reported_in_bytes_and_offsets() -> None:
    manager = started(ForgetfulFiles())
    log = filled(manager)
    move = manager.moves.begin(PARTITION, B)
    assert (move.size, move.end_offset) == (0, log.segments[0].base_offset)
    seen = []

    def look() -> None:
        seen.append((move.size, move.end_offset))
        assert move.end_offset <= log.state.log_end_offset
        assert move.synced_offset <= move.end_offset

    carry_out(manager, move, look)
    assert seen == sorted(seen)
    assert log.segments.size_in_bytes - 100 <= seen[-1][0] <= log.segments.size_in_bytes
    assert log.segments[-1].base_offset <= seen[-1][1]


def test_the_targets_checkpoints_list_the_log_before_the_swap() -> None:
    files = ForgetfulFiles()
    manager = started(files)
    log = filled(manager)
    log.flush()
    move = manager.moves.begin(PARTITION, B)
    manager.checkpoints.write(RECOVERY_POINT)
    assert read_offsets(files, f"{B}/{RECOVERY_POINT}") == {PARTITION: log.segments[0].base_offset}
    manager.checkpoints.write(LOG_START_OFFSET)
    assert read_offsets(files, f"{B}/log-start-offset-checkpoint") == {PARTITION: 2}
    carry_out(manager, move)
    assert read_offsets(files, f"{B}/{RECOVERY_POINT}") == {PARTITION: log.flusher.safe_recovery_point}
    assert read_offsets(files, f"{A}/{RECOVERY_POINT}") == {}


def test_a_full_target_disk_leaves_the_log_in_place() -> None:
    files = ForgetfulFiles()
    manager = started(files)
    log = filled(manager)
    before = all_bytes(log)
    move = manager.moves.begin(PARTITION, B)
    files.room = 900
    with pytest.raises(OSError, match="No space left"):
        carry_out(manager, move)
    manager.moves.abandon(PARTITION)
    files.room = None
    assert (all_bytes(log), manager.directory_of(log)) == (before, A)
    assert [name.rpartition("-")[2] for name in folders(files, B)] == ["delete"]
    append(log, idempotent(12), epoch=2)


def test_an_existing_target_folder_leaves_the_log_in_place() -> None:
    files = ForgetfulFiles()
    manager = started(files)
    log = filled(manager)
    files.make_directories(f"{B}/orders-0")
    with pytest.raises(FileExistsError):
        carry_out(manager, manager.moves.begin(PARTITION, B))
    assert manager.directory_of(log) == A
    append(log, idempotent(12), epoch=2)


def test_a_failed_log_is_not_moved() -> None:
    manager = started(ForgetfulFiles())
    log = filled(manager)
    move = manager.moves.begin(PARTITION, B)
    log.folder.fail(OSError(errno.EIO, "the disk is broken"))
    with pytest.raises(OSError, match="broken"):
        carry_out(manager, move)


def test_deleting_a_partition_cancels_its_move() -> None:
    files = ForgetfulFiles()
    manager = started(files)
    filled(manager)
    move = manager.moves.begin(PARTITION, B)
    job = move.next_job()
    assert job is not None
    manager.delete(PARTITION)
    assert move.abandoned
    job.run()
    assert job.error is not None  # its folder has been renamed
    assert all(name.endswith("-delete") for name in (*folders(files, A), *folders(files, B)))


def test_a_deleted_partition_does_not_come_back_by_a_future_folder_that_the_disk_kept() -> None:
    files = ForgetfulFiles()
    manager = started(files)
    filled(manager)
    move = manager.moves.begin(PARTITION, B)
    rename = files.rename

    def refusing(source: str, target: str) -> None:
        if source == move.folder:
            raise OSError(errno.EIO, "the target is broken")
        rename(source, target)

    files.rename = refusing  # type: ignore[method-assign]
    manager.moves.abandon(PARTITION)
    with pytest.raises(ProtocolError):
        manager.delete(PARTITION)
    assert PARTITION in manager.logs
    assert folders(files, A) == ["orders-0"]
    files.rename = rename  # type: ignore[method-assign]
    manager.delete(PARTITION)
    manager.shutdown()
    again = started(files)
    assert (again.logs, again.moves.completed) == ({}, set())


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_power_failure_while_a_moving_partition_is_deleted_does_not_bring_it_back(seed: int | None) -> None:
    outcomes = set()
    for ends_at in itertools.count():
        disk = FailingPower()
        manager = started(disk)
        filled(manager).flush()
        manager.moves.begin(PARTITION, B)
        disk.changes, disk.ends_at = 0, ends_at
        is_deleted = False
        try:
            manager.delete(PARTITION)
            is_deleted = True
        except PowerCut:
            pass
        disk.ends_at = None
        again = started(disk.crash(None if seed is None else random.Random(seed * 1000 + ends_at)))
        assert again.moves.completed == set(), ends_at
        outcomes.add(PARTITION in again.logs)
        if is_deleted:
            assert PARTITION not in again.logs
            break
    assert outcomes == {True, False}


def test_a_log_is_created_in_its_preferred_directory() -> None:
    manager = started(ForgetfulFiles())
    for number in range(4):
        manager.moves.prefer(TopicPartition("new", number), B)
    found = [manager.get_or_create(TopicPartition("new", number), TOPIC_ID, CONFIG) for number in range(4)]
    assert {manager.directory_of(log) for log in found} == {B}


def test_future_folders_are_named_like_kafkas() -> None:
    unique = uuid.UUID("52278a74-9d53-4a97-89a5-03a14210367d")
    name = future_folder(TopicPartition("a.b-c", 12), unique)
    assert name == "a.b-c-12.52278a749d534a9789a503a14210367d-future"
    assert parse_future_folder(name) == TopicPartition("a.b-c", 12)
    for other in ("a-0", "a-0-future", "a-0.xyz-future", "a.52278a749d534a9789a503a14210367d-future", "-future"):
        assert parse_future_folder(other) is None, other
    assert has_room_for_a_future(TopicPartition("x" * 213, 0))
    assert not has_room_for_a_future(TopicPartition("x" * 214, 0))


# ---- crashes


class PowerCut(BaseException):
    """The power fails before the next change reaches the disk."""


class FailingPower(ForgetfulFiles):
    """Counts the changes and raises PowerCut at number `ends_at`."""

    changes = 0
    ends_at: int | None = None

    def _tick(self) -> None:
        self.changes += 1
        if self.changes - 1 == self.ends_at:
            raise PowerCut

    def _change(self, directory: str, added: dict[str, Inode | None], removed: list[str]) -> None:
        self._tick()
        super()._change(directory, added, removed)

    def take(self, wanted: int) -> int:
        self._tick()
        return super().take(wanted)

    def sync_directory(self, path: str) -> None:
        self._tick()
        super().sync_directory(path)

    def count_sync(self, path: str) -> None:
        self._tick()
        super().count_sync(path)


@cache
def moved_until(ends_at: int | None) -> tuple[FailingPower, bytes, int]:
    """Moves a log until the power fails. Returns the disk, its durable records, and the number of changes made. Nobody
    changes the disk any more.
    """
    disk = FailingPower()
    manager = started(disk)
    log = filled(manager)
    log.flush()
    manager.checkpoints.write(RECOVERY_POINT)
    manager.checkpoints.write(LOG_START_OFFSET)
    manager.checkpoints.write(HIGH_WATERMARK)
    durable = all_bytes(log)
    disk.changes, disk.ends_at = 0, ends_at
    sequence = iter(range(12, 20))

    def produce() -> None:
        nonlocal durable
        number = next(sequence, None)
        if number is not None:
            append(log, idempotent(number, b"w" * 50), epoch=2)
            if number % 3 == 0:
                log.flush()
                durable = all_bytes(log)

    try:
        carry_out(manager, manager.moves.begin(PARTITION, B), produce)
    except PowerCut:
        pass
    disk.ends_at = None
    return disk, durable, disk.changes


def crashes() -> Iterator[int]:
    yield from range(moved_until(None)[2] + 1)


@pytest.mark.parametrize("seed", [None, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_a_power_failure_at_any_step_leaves_the_log_in_exactly_one_directory(seed: int | None) -> None:
    places = set()
    for ends_at in crashes():
        disk, durable, _ = moved_until(ends_at)
        manager = started(disk.crash(None if seed is None else random.Random(seed * 1000 + ends_at)))
        log = manager.logs[PARTITION]
        assert all_bytes(log).startswith(durable), ends_at
        assert (log.state.log_start_offset, log.folder.topic_id, log.leader_epochs.entries[0][0]) == (2, TOPIC_ID, 2), (
            ends_at
        )
        places.add(manager.directory_of(log))
        names = [name for path in (A, B) for name in folders(manager.files, path) if not name.endswith("-delete")]
        assert names == ["orders-0"], ends_at
        assert append(log, epoch=2) >= 12
        if manager.directory_of(log) == A and PARTITION in manager.moves.interrupted:
            carry_out(manager, manager.moves.begin(PARTITION, manager.moves.interrupted.pop(PARTITION)))
            assert manager.directory_of(log) == B
    assert places == {A, B}


def test_a_swap_interrupted_by_a_crash_is_finished_by_the_next_start(logged: list[Any]) -> None:
    files = ForgetfulFiles()
    manager = started(files)
    log = filled(manager)
    manager.checkpoints.write(LOG_START_OFFSET)
    expected = all_bytes(log)
    move = manager.moves.begin(PARTITION, B)
    rename = files.rename

    def only_the_first(source: str, target: str) -> None:
        if source == move.folder:
            raise PowerCut
        rename(source, target)

    files.rename = only_the_first  # type: ignore[method-assign]
    with pytest.raises(PowerCut):
        carry_out(manager, move)
    files.rename = rename  # type: ignore[method-assign]
    manager.release()
    again = started(files)
    assert again.directory_of(again.logs[PARTITION]) == B
    assert all_bytes(again.logs[PARTITION]) == expected
    assert [entry["partition"] for entry in logged if entry["event"] == "interrupted move completed"] == ["orders-0"]


def test_a_swap_that_fails_on_the_target_is_undone() -> None:
    files = ForgetfulFiles()
    manager = started(files)
    log = filled(manager)
    expected = all_bytes(log)
    move = manager.moves.begin(PARTITION, B)
    rename = files.rename

    def refusing(source: str, target: str) -> None:
        if source == move.folder:
            raise OSError(errno.EIO, "the target is broken")
        rename(source, target)

    files.rename = refusing  # type: ignore[method-assign]
    with pytest.raises(OSError, match="broken"):
        carry_out(manager, move)
    assert (manager.directory_of(log), folders(files, A)) == (A, ["orders-0"])
    assert all_bytes(log) == expected
    append(log, idempotent(12), epoch=2)
