"""Truncated batches never reappear, batches that get their offsets are never lost, and many logs are truncated at once
without a sync on the loop.
"""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import iter_batches
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import CLEANER_OFFSET, RECOVERY_POINT, read_offsets
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import Log
from odradek.storage.log.segments import LogSegments
from odradek.storage.log.truncation import StartOver, Target, Truncate
from odradek.storage.log_config import LogConfig
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles
from tests.soak import seeds
from tests.storage.followed_logs import (
    Killed,
    MortalFiles,
    aborted_transactions,
    catch_up,
    derived,
    described_producers,
    fetched,
    lead_on,
    leader_with,
    stored_bytes,
)
from tests.storage.small_logs import NOW, PARTITION, append, batch, headers_of, open_small, truncate, truncate_in

SEEDS = seeds(3, of=8, in_soak=600)
DELETED = LogConfig({"segment.bytes": 900, "index.interval.bytes": 150, "retention.ms": -1})
COMPACTED = LogConfig({"segment.bytes": 900, "index.interval.bytes": 150, "cleanup.policy": "compact"})


def started(files: ForgetfulFiles, config: LogConfig = DELETED) -> LogManager:
    files.make_directories("/data")
    files.sync_directory("/")
    manager = LogManager(["/data"], files, ManualClock(wall_ms=NOW), random_source=random.Random(1))
    manager.open()
    manager.claim(1, "cluster")
    manager.load(lambda topic: config)
    return manager


def log_in(manager: LogManager, number: int = 0, config: LogConfig = DELETED) -> Log:
    return manager.get_or_create(TopicPartition("orders", number), None, config)


def keep_house(manager: LogManager, *, everything: bool) -> None:
    """What a broker does at intervals: flushes, or only those of sealed segments, and checkpoints."""
    for log in manager.logs.values():
        if everything:
            log.flush()
    for log, job in filter(None, manager.take_flush_jobs()):
        job.run()
        log.flusher.finish(job)
    manager.checkpoints.write_all()


def base_offsets(log: Log) -> list[int]:
    return [header.base_offset for _, header in iter_batches(stored_bytes(log))]


def part_below(data: bytes, offset: int) -> bytes:
    """Returns the batches of a log that end below the offset."""
    ends = [position + header.size_in_bytes for position, header in iter_batches(data) if header.last_offset < offset]
    return data[: max(ends, default=0)]


# ---- what a truncation leaves


@pytest.mark.parametrize("seed", seeds(4, of=10))
def test_a_truncated_log_is_as_if_the_rest_had_never_been_appended(seed: int) -> None:
    source = random.Random(seed)
    leader = leader_with(100, source)
    offset = source.choice(base_offsets(leader))
    log = open_small(ForgetfulFiles(), segment_bytes=900, index_interval_bytes=150)
    expected = open_small(ForgetfulFiles(), segment_bytes=900, index_interval_bytes=150)
    catch_up(log, leader)
    expected.append_as_follower(part_below(stored_bytes(leader), offset))
    truncate(log, offset)
    expected.update_high_watermark(leader.state.log_end_offset)
    assert stored_bytes(log) == stored_bytes(expected)
    assert derived(log) == derived(expected)
    assert (log.state.log_end_offset, log.state.high_watermark, log.last_stable_offset) == (
        offset,
        offset,
        expected.last_stable_offset,
    )
    catch_up(log, leader, lambda: source.choice((300, 3000)))
    assert stored_bytes(log) == stored_bytes(leader)
    assert derived(log) == derived(leader)


def test_a_batch_that_contains_the_offset_is_removed_and_fetched_again() -> None:
    log = open_small(ForgetfulFiles())
    append(log, batch(b"a", b"b"))
    append(log, batch(b"c", b"d", b"e"))
    whole = stored_bytes(log)
    assert truncate(log, 4)
    assert (log.state.log_end_offset, log.state.high_watermark) == (2, 2)
    log.append_as_follower(whole[len(part_below(whole, 2)) :])
    assert stored_bytes(log) == whole


def test_producers_that_the_truncation_does_not_touch_keep_their_last_five_batches() -> None:
    leader = leader_with(60, random.Random(2))
    log = open_small(ForgetfulFiles())
    catch_up(log, leader)
    before = {producer: list(entry.batches) for producer, entry in log.producers.state.producers.items()}
    append(log, batch(b"only this one"))
    truncate(log, log.state.log_end_offset - 1)
    assert {producer: entry.batches for producer, entry in log.producers.state.producers.items()} == before
    assert max(len(batches) for batches in before.values()) == 5


def test_an_epoch_without_batches_is_dropped_even_if_there_is_nothing_to_truncate() -> None:
    log = open_small(ForgetfulFiles())
    append(log, epoch=1)
    log.assign_epoch_start_offset(2)
    assert not truncate(log, 1)
    assert log.leader_epochs.entries == [(1, 0)]


@pytest.mark.parametrize("offset", [0, 5, 40, 41, 1000])
def test_a_log_starts_over_at_any_offset(offset: int) -> None:
    files = MortalFiles()
    files.make_directories("/data/orders-0")
    files.make_durable()
    log = open_small(files, segment_bytes=400)
    leader = open_small(ForgetfulFiles(), segment_bytes=400)
    for number in range(40):
        append(leader, batch(b"x" * 50), epoch=number // 10)
    catch_up(log, leader)
    log.flush()
    assert truncate(log, StartOver(offset))
    assert (
        log.state.log_start_offset,
        log.state.high_watermark,
        log.state.log_end_offset,
        log.state.recovery_point,
    ) == (offset,) * 4
    assert (log.segments.base_offsets, log.segments.size_in_bytes, log.leader_epochs.entries) == ([offset], 0, [])
    assert (log.producers.state.producers, log.producers.snapshots.offsets) == ({}, [])
    append(log, batch(b"new"), epoch=9)
    log.flush()
    for after in (files.after_kill(), files.after_power_cut(None)):
        again = open_small(after, segment_bytes=400, options={"clean": False, "recovery_point": offset})
        assert [header.base_offset for header in headers_of_all(again)] == [offset]
        assert (again.state.log_start_offset, again.leader_epochs.entries) == (offset, [(9, offset)])


def headers_of_all(log: Log) -> list[Any]:
    log.update_high_watermark(log.state.log_end_offset)
    return headers_of(log)


def test_a_log_truncated_below_its_start_starts_over_there() -> None:
    files = ForgetfulFiles()
    manager = started(files)
    log = log_in(manager)
    for _ in range(40):
        append(log, batch(b"x" * 50))
    log.start.delete_records_before(35)
    log.apply_retention(NOW)
    assert log.segments.base_offsets[0] > 20
    keep_house(manager, everything=True)
    assert truncate_in(manager, {PARTITION: Truncate(20)}) == {PARTITION: None}
    append(log, batch(b"new"))
    log.flush()
    again = log_in(started(files.crash()))
    assert (again.state.log_start_offset, again.state.log_end_offset, base_offsets(again)) == (20, 21, [20])


def test_a_log_truncated_below_its_deleted_records_keeps_what_follows_after_a_crash() -> None:
    """The checkpointed start of the log is lowered first, or else a restart would remove what is appended below it."""
    files = ForgetfulFiles()
    manager = started(files)
    log = log_in(manager)
    for _ in range(8):
        append(log, batch(b"x" * 50))
    log.start.delete_records_before(7)
    keep_house(manager, everything=True)
    assert truncate_in(manager, {PARTITION: Truncate(3)}) == {PARTITION: None}
    append(log, batch(b"new"))
    log.flush()
    again = log_in(started(files.crash()))
    assert (again.state.log_start_offset, again.state.log_end_offset) == (3, 4)


# ---- many logs


def prepared(count: int, files: ForgetfulFiles) -> tuple[LogManager, dict[TopicPartition, Target]]:
    """Returns logs with several segments, flushed and checkpointed, and where to truncate them."""
    manager = started(files)
    targets: dict[TopicPartition, Target] = {}
    for number in range(count):
        log = log_in(manager, number)
        for _ in range(30):
            append(log, batch(b"x" * 50))
        targets[log.topic_partition] = StartOver(100) if number % 5 == 4 else Truncate(number % 31)
        log.state.cleaned_to(20)
    keep_house(manager, everything=True)
    return manager, targets


def test_many_logs_are_truncated_with_one_write_of_the_checkpoints_and_no_sync_on_the_loop() -> None:
    files = ForgetfulFiles()
    manager, targets = prepared(100, files)
    steps = manager.truncation_steps(targets)
    files.synced_paths.clear()
    jobs = []
    results: Any = None
    while results is None:
        before = [log.state.log_end_offset for log in manager.logs.values()]
        try:
            job = next(steps)
        except StopIteration as end:
            results = end.value
            break
        assert files.synced_paths == []  # nothing outside of the jobs
        after = [log.state.log_end_offset for log in manager.logs.values()]
        assert sum(old != new for old, new in zip(before, after, strict=True)) <= 1
        if job is not None:
            job()
            jobs.append(list(files.synced_paths))
            files.synced_paths.clear()
    assert results == dict.fromkeys(targets)
    checkpoints = [path for paths in jobs for path in paths if path.endswith("-offset-checkpoint")]
    assert len(checkpoints) == len(set(checkpoints)) <= 4
    assert set(jobs[0]) == set(checkpoints)
    assert len(jobs) < 20
    recovery_points = read_offsets(files, f"/data/{RECOVERY_POINT}")
    for partition, target in targets.items():
        log = manager.logs[partition]
        assert log.state.log_end_offset == min(target.offset, 30 if isinstance(target, Truncate) else 100)
        assert recovery_points[partition] <= min(target.offset, 30)


def test_a_step_touches_a_bounded_number_of_files() -> None:
    files = MortalFiles()
    manager = started(files)
    log = manager.get_or_create(PARTITION, None, LogConfig({"segment.bytes": 120}))
    for _ in range(300):
        append(log, batch(b"x" * 50))
    assert len(log.segments) == 300
    most = 0
    for job in manager.truncation_steps({PARTITION: Truncate(3)}):
        if job is not None:
            files.left = None
            job()
        elif files.left is not None:
            most = max(most, 100_000 - files.left)
        files.left = 100_000
    assert log.state.log_end_offset == 3
    assert 30 < most < 200


def test_partitions_fail_alone() -> None:
    files = ForgetfulFiles()
    manager, targets = prepared(4, files)
    broken, gone = sorted(targets)[:2]
    manager.logs[broken].folder.fail(OSError(5, "Input/output error"))
    del manager.logs[gone]
    results = truncate_in(manager, {partition: Truncate(7) for partition in targets})
    codes = {partition: error and error.code for partition, error in results.items()}
    assert codes.pop(broken) is ErrorCode.KAFKA_STORAGE_ERROR
    assert codes.pop(gone) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(codes.values()) == {None}
    assert all(manager.logs[partition].state.log_end_offset == 7 for partition in codes)


def test_a_log_deleted_between_the_steps_is_left_alone() -> None:
    manager, _ = prepared(2, ForgetfulFiles())
    first, second = sorted(manager.logs)
    steps = manager.truncation_steps({first: Truncate(3), second: Truncate(3)})
    results: Any = None
    deleted = False
    while results is None:
        try:
            job = next(steps)
        except StopIteration as end:
            results = end.value
            break
        if job is not None:
            job()
            if not deleted:
                manager.delete(first)
                deleted = True
    assert results[first].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (results[second], manager.logs[second].state.log_end_offset) == (None, 3)


def test_if_the_checkpoints_cannot_be_written_nothing_is_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    files = ForgetfulFiles()
    manager, targets = prepared(3, files)
    before = {partition: stored_bytes(log) for partition, log in manager.logs.items()}

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(files, "replace_file", fail)
        results = truncate_in(manager, targets)
    errors = [error for error in results.values() if error is not None]
    assert [error.code for error in errors] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert {partition: stored_bytes(log) for partition, log in manager.logs.items()} == before
    for log in manager.logs.values():
        log.flush()
        assert (log.state.recovery_point, log.state.truncating_to) == (30, None)


@pytest.mark.parametrize("steps_taken", [0, 1, 4, 6, 9])
def test_a_truncation_given_up_leaves_a_prefix_that_can_be_truncated_again(steps_taken: int) -> None:
    manager, targets = prepared(3, ForgetfulFiles())
    before = {partition: stored_bytes(log) for partition, log in manager.logs.items()}
    steps = manager.truncation_steps(targets)
    for _ in range(steps_taken):
        job = next(steps)
        if job is not None:
            job()
    steps.close()
    for partition, log in manager.logs.items():
        assert before[partition].startswith(stored_bytes(log))
        assert log.state.truncating_to is None
    assert truncate_in(manager, targets) == dict.fromkeys(targets)


def test_a_log_whose_files_cannot_be_removed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    files = ForgetfulFiles()
    manager, _ = prepared(1, files)
    (log,) = manager.logs.values()

    def fail(source: str, target: str) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(files, "rename", fail)
        results = truncate_in(manager, {PARTITION: Truncate(3)})
    assert results[PARTITION].code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(ProtocolError):
        append(log)


def test_a_log_that_cannot_begin_at_the_new_offset_is_empty_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    files = ForgetfulFiles()
    log = open_small(files, segment_bytes=400)
    truncate(log, StartOver(174))
    append(log, batch(b"x"), epoch=3)

    def fail(segments: LogSegments, base_offset: int, config: LogConfig) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(LogSegments, "create", fail)
        with pytest.raises(ProtocolError):
            truncate(log, Truncate(0))
    state = log.state
    assert (state.log_start_offset, state.high_watermark, state.log_end_offset) == (174, 174, 174)
    assert (log.segments.base_offsets, log.leader_epochs.entries, log.producers.state.producers) == ([174], [], {})
    assert truncate(log, Truncate(0))
    assert (log.segments.base_offsets, state.log_start_offset, state.log_end_offset) == ([0], 0, 0)


# ---- together with other work


def run_until_cut(manager: LogManager, targets: Mapping[TopicPartition, Target]) -> Any:
    """Takes the steps up to the first after the checkpoints are written."""
    steps = manager.truncation_steps(targets)
    for job in steps:
        if job is not None:
            job()
            return steps
    raise AssertionError


def finish(steps: Any) -> None:
    for job in steps:
        if job is not None:
            job()


def test_flushes_between_the_steps_do_not_count_for_what_will_be_removed() -> None:
    files = ForgetfulFiles()
    manager, _ = prepared(1, files)
    (log,) = manager.logs.values()
    before = log.begin_flush()
    append(log, batch(b"x"))
    job = before or log.begin_flush()
    assert job is not None
    steps = run_until_cut(manager, {PARTITION: Truncate(10)})
    job.run()
    log.flusher.finish(job)
    keep_house(manager, everything=True)
    assert log.state.recovery_point <= 10
    assert read_offsets(files, f"/data/{RECOVERY_POINT}")[PARTITION] <= 10
    assert read_offsets(files, f"/data/{CLEANER_OFFSET}")[PARTITION] <= 10
    finish(steps)
    assert log.state.log_end_offset == 10
    log.flush()
    assert log.state.recovery_point == 10


def test_retention_and_moves_wait_for_the_truncation() -> None:
    manager, _ = prepared(1, ForgetfulFiles())
    (log,) = manager.logs.values()
    log.update_config(LogConfig({"segment.bytes": 900, "retention.bytes": 1, "retention.ms": -1}))
    move = manager.moves.begin(PARTITION, "/data")
    while (job := move.next_job()) is not None:
        job.run()
        move.finished(job)
    steps = run_until_cut(manager, {PARTITION: Truncate(10)})
    assert log.apply_retention(NOW) == 0
    assert not manager.moves.finish(move)
    finish(steps)
    assert log.apply_retention(NOW) > 0


# ---- crashes


def crash_in(files: MortalFiles, source: random.Random) -> MortalFiles:
    chance = source.random()
    if chance < 0.4:
        return files.after_kill()
    return files.after_power_cut(None if chance < 0.6 else source)


@pytest.mark.parametrize("config", [DELETED, COMPACTED], ids=["deleted", "compacted"])
@pytest.mark.parametrize("target", [Truncate(11), Truncate(3), StartOver(7), StartOver(0), StartOver(500)], ids=repr)
def test_a_crash_at_any_access_leaves_a_prefix_and_no_crash_afterwards_brings_anything_back(
    config: LogConfig, target: Target
) -> None:
    whole = b""
    for left in range(1000):
        source = random.Random(left)
        files = MortalFiles()
        manager = started(files, config)
        log = log_in(manager, 0, config)
        leader = leader_with(25, random.Random(5))
        catch_up(log, leader)
        keep_house(manager, everything=True)
        files.make_durable()
        whole = stored_bytes(log)
        kept = part_below(whole, target.offset) if isinstance(target, Truncate) else b""
        files.left = left
        try:
            assert truncate_in(manager, {PARTITION: target}) == {PARTITION: None}
            survived = True
        except Killed:
            survived = False
        files.left = None
        after = crash_in(files, source)
        again = log_in(started(after, config), 0, config)
        found = stored_bytes(again)
        assert whole.startswith(found), left
        assert found.startswith(kept), left
        if survived:
            assert found == kept
            assert stored_bytes(log) == kept
            break
    assert left > 5


class Follower:
    """A follower's log that follows one leader after the other, on a disk that dies."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.config = self.random.choice((DELETED, COMPACTED))
        self.files = MortalFiles()
        self.leader = leader_with(5, self.random)
        self.flushed = 0
        self.open()

    def open(self) -> None:
        self.manager = started(self.files, self.config)
        self.log = log_in(self.manager, 0, self.config)

    @property
    def start(self) -> int:
        return self.log.state.log_start_offset

    def fetch(self) -> None:
        lead_on(self.leader, self.random.randrange(12), self.random)
        data = fetched(self.leader, self.log.state.log_end_offset)
        if data:
            self.log.append_as_follower(data[: self.random.choice((400, 2000, 90_000))])
        self.log.update_high_watermark(
            self.random.randint(self.log.state.high_watermark, self.log.state.log_end_offset)
        )

    def flush(self) -> None:
        keep_house(self.manager, everything=self.random.random() < 0.6)
        self.flushed = self.log.state.recovery_point

    def follow_another(self) -> None:
        """The new leader does not have the end of the log."""
        bases = [base for base in base_offsets(self.leader) if base >= self.start]
        if not bases:
            return
        offset = self.random.choice(bases[-12:])
        truncate(self.leader, offset)
        self.truncate(Truncate(offset))

    def start_over(self) -> None:
        offset = self.random.choice(base_offsets(self.leader) or [0])
        self.truncate(StartOver(offset))

    def truncate(self, target: Target) -> None:
        if self.random.random() < 0.5:
            self.files.left = self.random.randrange(40)
        expected = part_below(stored_bytes(self.log), target.offset) if isinstance(target, Truncate) else b""
        before = stored_bytes(self.log)
        self.flushed = min(self.flushed, target.offset)
        try:
            assert truncate_in(self.manager, {PARTITION: target}) == {PARTITION: None}
        except Killed:
            self.files = crash_in(self.files, self.random)
            self.open()
            found = stored_bytes(self.log)
            assert before.startswith(found)
            if isinstance(target, Truncate):
                assert found.startswith(part_below(before, min(self.flushed, target.offset)))
            self.flushed = 0
            assert truncate_in(self.manager, {PARTITION: target}) == {PARTITION: None}
            expected = part_below(found, target.offset) if isinstance(target, Truncate) else b""
        self.files.left = None
        assert stored_bytes(self.log) == expected

    def crash(self) -> None:
        before, start, end = stored_bytes(self.log), self.start, self.log.state.log_end_offset
        self.files = crash_in(self.files, self.random)
        self.open()
        found = stored_bytes(self.log)
        assert before.startswith(found)
        assert min(self.flushed, end) <= self.log.state.log_end_offset <= end or not found
        assert found.startswith(part_below(before, self.flushed))
        self.flushed = min(self.flushed, self.log.state.log_end_offset)
        if not found and self.log.state.log_end_offset != start:
            self.truncate(StartOver(start))

    def restart(self) -> None:
        before = stored_bytes(self.log)
        assert self.manager.shutdown() == {}
        self.open()
        assert stored_bytes(self.log) == before
        self.flushed = self.log.state.log_end_offset

    def check(self) -> None:
        data, whole = stored_bytes(self.log), stored_bytes(self.leader)
        missing = part_below(whole, self.start)
        assert whole[len(missing) :].startswith(data)
        expected = open_small(ForgetfulFiles(), segment_bytes=900)
        expected.append_as_follower(data)
        assert self.log.leader_epochs.entries == expected.leader_epochs.entries
        assert aborted_transactions(self.log) == aborted_transactions(expected)
        assert described_producers(self.log) == described_producers(expected)


@pytest.mark.soak("600 seeds", minutes=1)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_has_its_leaders_batches_after_any_truncations_and_crashes(seed: int) -> None:
    follower = Follower(seed)
    steps = [follower.fetch, follower.flush, follower.follow_another, follower.start_over, follower.crash]
    for step in follower.random.choices([*steps, follower.restart], [30, 10, 8, 2, 6, 2], k=100):
        getattr(follower, step.__name__)()
        follower.check()


def test_a_failed_directory_does_not_keep_the_logs_in_others_from_being_truncated() -> None:
    files = ForgetfulFiles()
    manager = LogManager(["/broken", "/sound"], files, ManualClock(wall_ms=NOW), random_source=random.Random(1))
    manager.open()
    manager.claim(1, "cluster")
    manager.load()
    partitions = [TopicPartition("orders", number) for number in range(2)]
    logs = [manager.get_or_create(partition, None, LogConfig()) for partition in partitions]
    assert [manager.directory_of(log) for log in logs] == ["/broken", "/sound"]
    for log in logs:
        for _ in range(3):
            append(log)
        log.flush()
    files.broken = {"/broken"}
    with pytest.raises(OSError, match="error"):
        manager.take_checkpoint(RECOVERY_POINT)()
    assert read_offsets(files, f"/sound/{RECOVERY_POINT}") == {partitions[1]: 2}
    results = truncate_in(manager, dict.fromkeys(partitions, Truncate(1)))
    assert [None if error is None else error.code for error in results.values()] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        None,
    ]
    assert [log.state.log_end_offset for log in logs] == [3, 1]
