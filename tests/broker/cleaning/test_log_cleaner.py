"""The log cleaner in a running broker, on the loop and in its own process, while topics are used and changed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from odradek.broker.cleaning import cleaner_process, log_cleaner
from odradek.broker.cleaning.cleaner_process import CleanerProcess
from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.metrics.families import FAMILIES
from odradek.broker.server import Broker
from odradek.protocol.records import Record, build_batch, iter_batches, read_records
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import CLEANER_OFFSET, read_offsets
from odradek.storage.cleaner.cleaned_segment import CleanedSegment
from odradek.storage.log.log import Log
from odradek.storage.log.truncation import Truncate
from odradek.testing import in_process_broker
from tests.patience import until
from tests.storage.small_logs import bytes_of, truncate_in

PARTITION = TopicPartition("t", 0)
QUICK: dict[str, object] = {
    "log.cleaner.backoff.ms": "10",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.bytes": "20000",
    "log.cleanup.policy": "compact",
}
PROCESS_OR_LOOP = pytest.mark.parametrize("small_bytes", [0, 1 << 40], ids=["in a process", "on the loop"])


@asynccontextmanager
async def broker_with_topic(**settings: Any) -> AsyncIterator[tuple[Broker, Log]]:
    async with in_process_broker(QUICK, **settings) as broker:
        await create(broker)
        yield broker, log_of(broker)


async def create(broker: Broker) -> None:
    await broker.controller.topics.create([NewTopic("t", 1)], timeout_ms=10_000)


def log_of(broker: Broker) -> Log:
    log: Log = broker.replica_manager.partitions.find(PARTITION).log
    return log


def put(broker: Broker, first: int, count: int, keys: int = 20, size: int = 500) -> None:
    """Appends records and syncs the sealed segments, as the broker would within a second."""
    partition = broker.replica_manager.partitions.find(PARTITION)
    for number in range(first, first + count):
        value = b"%d " % number + b"v" * size
        records = [Record(0, 1_700_000_000_000, b"%d" % (number % keys), value)]
        partition.append_as_leader(build_batch(records), -1, 9)
    log_of(broker).flush()


def found(log: Log) -> dict[bytes | None, list[int]]:
    """Returns the offsets of each key, read as a consumer reads."""
    offsets: dict[bytes | None, list[int]] = {}
    offset = log.state.log_start_offset
    while offset < log.state.log_end_offset:
        data = bytes_of(log.reader.read(offset, 1 << 20))
        for position, header in iter_batches(data):
            for record in read_records(data, position, header):
                assert record.value is not None
                assert record.value.startswith(b"%d " % record.offset)
                offsets.setdefault(record.key, []).append(record.offset)
            offset = header.next_offset
    return offsets


def is_clean(log: Log) -> Callable[[], bool]:
    return lambda: log.state.cleaned_offset == log.segments.active.base_offset


@PROCESS_OR_LOOP
async def test_a_compacted_topic_is_cleaned_while_it_is_read(small_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_cleaner, "SMALL_BYTES", small_bytes)
    async with broker_with_topic(log_segment_delete_delay_ms=0) as (broker, log):
        put(broker, 0, 400)
        before = log.segments.size_in_bytes
        await until(is_clean(log))
        assert log.segments.size_in_bytes < before / 4
        sealed = log.segments.active.base_offset
        kept = {offset for offsets in found(log).values() for offset in offsets if offset < sealed}
        assert kept == set(range(sealed - 20, sealed))
        directory = broker.log_manager.directory_of(log)
        await until(lambda: read_offsets(broker.files, f"{directory}/{CLEANER_OFFSET}") == {PARTITION: sealed})
        await until(lambda: not [n for n in os.listdir(log.folder.path) if not n.endswith(NAMES_THAT_STAY)])


NAMES_THAT_STAY = (".log", "index", ".snapshot", ".metadata", "checkpoint")


@PROCESS_OR_LOOP
async def test_appends_and_reads_during_many_cleans_lose_no_records(
    small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_cleaner, "SMALL_BYTES", small_bytes)
    async with broker_with_topic() as (broker, log):
        for turn in range(40):
            put(broker, turn * 60, 60)
            await asyncio.sleep(0.01)
            offsets = found(log)
            assert {key: max(each) for key, each in offsets.items()} == {
                b"%d" % (number % 20): number for number in range(turn * 60 + 40, turn * 60 + 60)
            }
        await until(is_clean(log))


async def test_a_topic_is_cleaned_only_while_its_policy_is_compact() -> None:
    async with broker_with_topic(log_cleanup_policy="delete") as (broker, log):
        put(broker, 0, 200)
        await asyncio.sleep(0.1)
        assert log.state.cleaned_offset is None
        broker.replica_manager.update_log_config("t", broker.config.log_config({"cleanup.policy": "compact"}))
        await until(is_clean(log))
        cleaned = log.state.cleaned_offset
        broker.replica_manager.update_log_config("t", broker.config.log_config({"cleanup.policy": "delete"}))
        put(broker, 200, 200)
        await asyncio.sleep(0.1)
        assert log.state.cleaned_offset == cleaned
        broker.replica_manager.update_log_config("t", broker.config.log_config({"cleanup.policy": "compact,delete"}))
        await until(is_clean(log))


class SlowSteps:
    """Pauses a clean after its first steps until `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        original = log_cleaner.LogCleaner._pace

        async def pace(cleaner: Any, size: int) -> None:
            self.reached.set()
            await self.go.wait()
            await original(cleaner, size)

        monkeypatch.setattr(log_cleaner.LogCleaner, "_pace", pace)


@PROCESS_OR_LOOP
@pytest.mark.parametrize("change", ["deleted", "made anew", "truncated", "deleted by policy"])
async def test_a_change_that_replaces_a_log_aborts_its_clean_and_the_next_clean_succeeds(
    small_bytes: int, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_cleaner, "SMALL_BYTES", small_bytes)
    slow = SlowSteps(monkeypatch)
    async with broker_with_topic() as (broker, log):
        put(broker, 0, 300)
        await slow.reached.wait()
        await change_under_way(broker, log, change)
        slow.go.set()
        await until(lambda: not broker.log_cleaner or not broker.log_cleaner.manager.in_progress)
        assert not log.state.being_cleaned
        if change != "deleted":
            put(broker, log_of(broker).state.log_end_offset, 300)
            if change == "deleted by policy":
                broker.replica_manager.update_log_config("t", broker.config.log_config({}))
            await until(is_clean(log_of(broker)))
            ends = {key: max(each) for key, each in found(log_of(broker)).items()}
            end = log_of(broker).state.log_end_offset
            assert ends == {b"%d" % (number % 20): number for number in range(end - 20, end)}
        assert broker.log_cleaner is not None
        assert not any(broker.log_cleaner.manager.uncleanable().values())


async def change_under_way(broker: Broker, log: Log, change: str) -> None:
    if change.startswith(("deleted", "made")) and change != "deleted by policy":
        await broker.controller.topics.delete(["t"], timeout_ms=10_000)
        if change == "made anew":
            await create(broker)
            put(broker, 0, 100)
    elif change == "truncated":
        truncate_in(broker.log_manager, {PARTITION: Truncate(log.state.log_end_offset // 40 * 20)})
    else:
        broker.replica_manager.update_log_config("t", broker.config.log_config({"cleanup.policy": "delete"}))


@PROCESS_OR_LOOP
async def test_records_can_be_deleted_during_a_clean(small_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_cleaner, "SMALL_BYTES", small_bytes)
    slow = SlowSteps(monkeypatch)
    async with broker_with_topic() as (broker, log):
        put(broker, 0, 300)
        await slow.reached.wait()
        log.start.delete_records_before(250)
        assert log.apply_retention(0) == 0
        slow.go.set()
        await until(is_clean(log))
        assert min(offset for offsets in found(log).values() for offset in offsets) >= 250
        put(broker, 300, 100)
        await until(is_clean(log))
        assert log.apply_retention(0) >= 0


async def test_a_damaged_log_is_marked_uncleanable_and_others_are_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_cleaner, "SMALL_BYTES", 0)
    async with broker_with_topic(log_cleaner_backoff_ms=50) as (broker, log):
        await broker.controller.topics.create([NewTopic("other", 1)], timeout_ms=10_000)
        file = broker.files.open(log.segments.active.path(".log"))
        put(broker, 0, 100)
        file.write((b"\xff\xff",), 100)
        file.close()
        assert broker.log_cleaner is not None
        manager = broker.log_cleaner.manager
        await until(lambda: any(manager.uncleanable().values()))
        rows = {
            family.name: list(family.read(broker.metric_sources()))
            for family in FAMILIES
            if "logcleaner" in family.name
        }
        directory = broker.log_manager.directory_of(log)
        assert rows["kafka_log_logcleanermanager_uncleanable_partitions_count"] == [((directory,), 1)]
        assert rows["kafka_log_logcleanermanager_uncleanable_bytes"][0][1] > 0
        assert len(log.segments) > 1
        await broker.controller.topics.delete(["t"], timeout_ms=10_000)
        await until(lambda: not any(manager.uncleanable().values()))


async def test_a_clean_on_a_full_disk_is_retried_in_the_next_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[CleanedSegment] = []
    finish = CleanedSegment.finish

    def full_once(segment: CleanedSegment, modified_ms: int) -> None:
        if not failures:
            failures.append(segment)
            raise OSError(28, "No space left on device")
        finish(segment, modified_ms)

    monkeypatch.setattr(CleanedSegment, "finish", full_once)
    monkeypatch.setattr(log_cleaner, "SMALL_BYTES", 1 << 40)
    async with broker_with_topic() as (broker, log):
        put(broker, 0, 100)
        await until(lambda: failures)
        await until(is_clean(log))
        assert broker.log_cleaner is not None
        assert not any(broker.log_cleaner.manager.uncleanable().values())


async def test_the_metrics_describe_the_last_clean() -> None:
    async with broker_with_topic() as (broker, log):
        put(broker, 0, 400)
        await until(is_clean(log))
        await until(lambda: broker.log_cleaner is not None and broker.log_cleaner.last)
        rows = {family.name: [value for _, value in family.read(broker.metric_sources())] for family in FAMILIES}
        assert 0 < rows["kafka_log_logcleaner_cleaner_recopy_percent"][0] < 50
        assert rows["kafka_log_logcleaner_deadthreadcount"] == [0]
        assert rows["kafka_log_logcleanermanager_max_dirty_percent"][0] <= 100
        assert rows["kafka_log_logcleanermanager_uncleanable_partitions_count"] == [0]


async def test_the_cleaner_process_is_started_on_demand_and_ends_with_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_cleaner, "SMALL_BYTES", 0)
    pids: list[int] = []
    start = CleanerProcess._start

    async def started(process: CleanerProcess) -> Any:
        result = await start(process)
        pids.append(result.pid)
        return result

    monkeypatch.setattr(CleanerProcess, "_start", started)
    async with broker_with_topic() as (broker, log):
        await asyncio.sleep(0.1)
        assert pids == []
        put(broker, 0, 300)
        await until(is_clean(log))
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        assert pids


async def test_killing_the_cleaner_process_leaves_the_log_unchanged_and_marked_uncleanable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_cleaner, "SMALL_BYTES", 0)
    slow = SlowSteps(monkeypatch)
    processes: list[Any] = []
    start = CleanerProcess._start

    async def started(process: CleanerProcess) -> Any:
        processes.append(await start(process))
        return processes[-1]

    monkeypatch.setattr(CleanerProcess, "_start", started)
    async with broker_with_topic() as (broker, log):
        put(broker, 0, 300)
        before = found(log)
        await slow.reached.wait()
        os.kill(processes[0].pid, signal.SIGKILL)
        slow.go.set()
        assert broker.log_cleaner is not None
        manager = broker.log_cleaner.manager
        await until(lambda: any(manager.uncleanable().values()))
        assert found(log) == before


async def test_a_broker_stopped_during_a_clean_restarts_without_losing_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_cleaner, "SMALL_BYTES", 0)
    with monkeypatch.context() as patch:
        slow = SlowSteps(patch)
        async with broker_with_topic(data_dir=tmp_path) as (broker, log):
            put(broker, 0, 300)
            before = found(log)
            await slow.reached.wait()
    async with in_process_broker(QUICK, data_dir=tmp_path) as broker:
        log = log_of(broker)
        assert not [name for name in os.listdir(log.folder.path) if name.endswith(".cleaned")]
        latest = {key: max(offsets) for key, offsets in before.items()}
        await until(is_clean(log))
        assert {key: max(offsets) for key, offsets in found(log).items()} == latest


async def test_a_broker_that_stops_expects_files_of_a_clean_that_cannot_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = asyncio.Event()

    def full(segment: CleanedSegment) -> None:
        raise OSError(28, "No space left on device")

    async def pace(cleaner: Any, size: int) -> None:
        if any(name.endswith(".cleaned") for name in os.listdir(log.folder.path)):
            begun.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(CleanedSegment, "discard", full)
    monkeypatch.setattr(log_cleaner.LogCleaner, "_pace", pace)
    monkeypatch.setattr(log_cleaner, "SMALL_BYTES", 1 << 40)
    with structlog.testing.capture_logs() as logs:
        async with broker_with_topic() as (broker, log):
            put(broker, 0, 300)
            await begun.wait()
    assert [line["event"] for line in logs if line["log_level"] == "error"] == []


async def test_cleaners_share_the_throttle_and_their_number_follows_the_setting() -> None:
    async with broker_with_topic() as (broker, log):
        cleaner = broker.log_cleaner
        assert cleaner is not None
        broker.config.apply_dynamic({"log.cleaner.threads": "3"}, {})
        cleaner.settings_changed()
        assert cleaner.dead == 0
        assert len([task for task in asyncio.all_tasks() if task.get_name().startswith("log cleaner")]) == 3
        broker.config.apply_dynamic({"log.cleaner.threads": "1"}, {})
        await until(lambda: len([t for t in asyncio.all_tasks() if t.get_name().startswith("log cleaner")]) == 1)
        put(broker, 0, 200)
        await until(is_clean(log))


# The broker's settings


async def test_without_the_cleaner_nothing_is_cleaned() -> None:
    async with broker_with_topic(log_cleaner_enable=False) as (broker, log):
        put(broker, 0, 100)
        await asyncio.sleep(0.1)
        assert (broker.log_cleaner, log.state.cleaned_offset) == (None, None)


async def test_a_changed_backoff_ends_the_current_wait() -> None:
    async with broker_with_topic(log_cleaner_backoff_ms=3_600_000) as (broker, log):
        put(broker, 0, 100)
        await asyncio.sleep(0.05)
        assert log.state.cleaned_offset is None
        change(broker, "log.cleaner.backoff.ms", "10")
        await until(is_clean(log))


async def test_a_changed_byte_rate_ends_the_current_wait() -> None:
    async with broker_with_topic(log_cleaner_io_max_bytes_per_second=1) as (broker, log):
        put(broker, 0, 100)
        assert broker.log_cleaner is not None
        manager = broker.log_cleaner.manager
        await until(lambda: manager.in_progress)
        change(broker, "log.cleaner.threads", "2")
        await asyncio.sleep(0.05)
        assert PARTITION in manager.in_progress, "other settings let nobody off"
        change(broker, "log.cleaner.io.max.bytes.per.second", "1e9")
        await until(is_clean(log))


def change(broker: Broker, name: str, value: str) -> None:
    broker.config.apply_dynamic({name: value}, {})
    assert broker.log_cleaner is not None
    broker.log_cleaner.settings_changed()


async def test_cleaners_do_not_exceed_the_bytes_per_second() -> None:
    async with broker_with_topic(log_cleaner_io_max_bytes_per_second=1) as (broker, log):
        put(broker, 0, 100)
        assert broker.log_cleaner is not None
        manager = broker.log_cleaner.manager
        await until(lambda: manager.in_progress)
        await asyncio.sleep(0.2)
        assert (PARTITION in manager.in_progress, log.state.cleaned_offset) == (True, None)


async def test_all_cleaners_together_use_the_configured_memory_for_keys_and_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_cleaner, "SMALL_BYTES", 0)
    settings = {
        "log.cleaner.dedupe.buffer.size": "8000000",
        "log.cleaner.io.buffer.load.factor": "0.5",
        "log.cleaner.io.buffer.size": "400000",
        "log.cleaner.threads": "2",
    }
    async with in_process_broker({**QUICK, **settings}) as broker:
        await create(broker)
        assert broker.log_cleaner is not None
        jobs = []
        begin = broker.log_cleaner.manager.begin

        def begun(*arguments: Any) -> Any:
            jobs.append(arguments[1:])
            return begin(*arguments)

        monkeypatch.setattr(broker.log_cleaner.manager, "begin", begun)
        put(broker, 0, 100)
        await until(lambda: jobs)
        assert jobs[0] == (2_000_000, 100_000)


async def test_the_cleaner_process_ignores_packages_of_the_same_names_in_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("odradek", "storage"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('somebody else')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(log_cleaner, "SMALL_BYTES", 0)
    async with broker_with_topic() as (broker, log):
        put(broker, 0, 300)
        await until(is_clean(log))


@pytest.mark.parametrize("when", ["before the job is sent", "after it"])
async def test_the_output_of_a_process_that_cannot_start_is_the_reason_for_an_uncleanable_log(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    start = CleanerProcess._start

    async def exited(self: CleanerProcess) -> asyncio.subprocess.Process:
        process = await start(self)
        assert process.stdin is not None
        await until(process.stdin.is_closing)
        return process

    if when == "before the job is sent":
        monkeypatch.setattr(CleanerProcess, "_start", exited)
    monkeypatch.setattr(log_cleaner, "SMALL_BYTES", 0)
    monkeypatch.setattr(cleaner_process, "PROGRAM", "import this_is_missing")
    with structlog.testing.capture_logs() as lines:
        async with broker_with_topic() as (broker, _):
            put(broker, 0, 300)
            assert broker.log_cleaner is not None
            manager = broker.log_cleaner.manager
            await until(lambda: any(manager.uncleanable().values()))
    assert any("No module named 'this_is_missing'" in str(line) for line in lines), lines
