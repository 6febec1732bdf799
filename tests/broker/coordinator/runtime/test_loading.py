"""Loading a partition's shard in slices, past damaged data and with concurrent changes."""

import asyncio
import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from structlog.testing import capture_logs

from odradek.broker.coordinator.runtime.loading import MOST_LINES, RECORDS_PER_SLICE
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import Compression, Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log.recovery import open_log
from odradek.storage.segment.segment import LogSegment
from tests.broker.coordinator.runtime.harness import (
    PARTITION,
    TOPIC,
    RecordingShard,
    RuntimeHarness,
    overwrite,
    runtime_harness,
)

VECTORS = Path(__file__).parents[3] / "vectors"
LENGTH = 8
MAGIC = 16
BODY = 61


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[RuntimeHarness]:
    with runtime_harness(tmp_path) as harness:
        yield harness


def batches(harness: RuntimeHarness) -> list[tuple[int, int]]:
    """Returns (offset, position in the first segment) of each batch."""
    segment = harness.manager.partitions.find(PARTITION).log.segments[0]
    return [(batch.base_offset, batch.position) for batch in segment.scan(0)]


def numbered(harness: RuntimeHarness, count: int, size: int = 20) -> dict[bytes, bytes]:
    """Writes `count` batches with a different key each and returns values by key."""
    written = {b"key %03d" % number: b"%03d" % number * size for number in range(count)}
    for item in written.items():
        assert harness.write(item).is_done
    return written


def without(written: dict[bytes, bytes], *numbers: int) -> dict[bytes, bytes]:
    gone = {b"key %03d" % number for number in numbers}
    return {key: value for key, value in written.items() if key not in gone}


def reload(harness: RuntimeHarness) -> tuple[RecordingShard, list[Any]]:
    """Loads the shard again and returns it with the errors logged meanwhile."""
    with capture_logs() as lines:
        shard = harness.load_again()
    return shard, [line for line in lines if line["log_level"] == "error"]


def refusal(harness: RuntimeHarness) -> ErrorCode | None:
    try:
        harness.runtime.shard_for("g")
    except ProtocolError as error:
        return error.code
    return None


# After the start


def test_only_empty_logs_are_loaded_before_the_broker_serves(harness: RuntimeHarness) -> None:
    other = TopicPartition(PARTITION.topic, 1)
    harness.lead()
    harness.lead(other)
    harness.write((b"key", b"v"))
    harness.runtime.stop()
    harness.runtime = harness.new_runtime(may_load=False)
    harness.runtime.start()
    harness.tasks.run()
    assert refusal(harness) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.runtime.shard_of(other.partition) is not None
    harness.runtime.begin_loading()
    harness.tasks.run()
    assert not harness.runtime.loading


# Slices


def test_loading_yields_to_the_event_loop_and_is_reported_meanwhile(harness: RuntimeHarness) -> None:
    harness.lead()
    for _ in range(10):
        harness.write(*[(b"key %d" % number, b"v") for number in range(RECORDS_PER_SLICE // 2)])
    harness.runtime.stop()
    harness.runtime = harness.new_runtime()
    harness.runtime.start()
    turns = 0
    while harness.runtime.loading:
        assert refusal(harness) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (harness.runtime.shards(), harness.shard.events) == ([], [])
        before = len(harness.shard.offsets)
        harness.tasks.turn()
        assert len(harness.shard.offsets) - before <= RECORDS_PER_SLICE
        turns += 1
    assert turns > 5
    assert refusal(harness) is None
    assert (harness.shard.events, len(harness.shard.offsets)) == (["loaded"], 5 * RECORDS_PER_SLICE)


def test_the_smallest_log_is_loaded_first(tmp_path: Path) -> None:
    keys = [TopicPartition(TOPIC, partition) for partition in range(3)]
    with runtime_harness(tmp_path, partitions=3) as harness:
        for key, count in zip(keys, (300, 1000, 50), strict=True):
            harness.lead(key)
            harness.write(*[(b"%d" % number, b"v") for number in range(count)], key=key)
        harness.runtime.stop()
        harness.runtime = harness.new_runtime()
        harness.runtime.start()
        order: list[int] = []
        while harness.runtime.loading:
            harness.tasks.turn()
            shards: Any = harness.runtime.shards()
            order += [shard.partition for shard in shards if shard.partition not in order]
        assert order == [2, 0, 1]


@pytest.mark.parametrize("buffer_bytes", [1, 100, 5000])
def test_no_more_than_the_buffer_or_a_batch_is_read_at_a_time(tmp_path: Path, buffer_bytes: int) -> None:
    with runtime_harness(tmp_path, load_buffer_bytes=buffer_bytes) as harness:
        harness.lead(segment_bytes=20_000)
        written = numbered(harness, 300, size=50)
        largest = max(
            size
            for segment in harness.manager.partitions.find(PARTITION).log.segments
            for size in [batch.size for batch in segment.scan(0)]
        )
        harness.disk.reads.clear()
        assert harness.load_again().values == written
        assert max(harness.disk.reads) <= max(buffer_bytes, largest)


def test_data_outside_the_page_cache_is_read_in_a_thread(harness: RuntimeHarness) -> None:
    harness.lead(segment_bytes=2000)
    written = numbered(harness, 100)
    segments = len(harness.manager.partitions.find(PARTITION).log.segments)
    harness.disk.cold = True
    shard, errors = reload(harness)
    assert (shard.values, errors) == (written, [])
    assert harness.tasks.thread_calls == segments > 3


def test_a_compressed_batch_is_inflated_in_a_thread_and_replayed_in_slices(harness: RuntimeHarness) -> None:
    harness.lead()
    written = {b"key %d" % number: b"v" for number in range(3 * RECORDS_PER_SLICE)}
    records = [Record(number, 0, key, value) for number, (key, value) in enumerate(written.items())]
    harness.manager.partitions.find(PARTITION).log.append_as_leader(
        build_batch(records, compression=Compression.GZIP), 0, api_version=9
    )
    shard, errors = reload(harness)
    assert (shard.values, errors) == (written, [])
    assert harness.tasks.thread_calls == 1


# Transactions


def test_a_transactions_records_are_pending_until_its_marker(harness: RuntimeHarness) -> None:
    harness.lead()
    harness.write((b"a", b"1"), producer_id=5, producer_epoch=0)
    harness.write((b"b", b"2"), producer_id=6, producer_epoch=1)
    harness.write((b"c", b"3"), producer_id=7, producer_epoch=0)
    harness.mark(5, committed=True)
    harness.mark(6, 1, committed=False)
    shard = harness.load_again()
    assert shard.values == {b"a": b"1"}
    assert shard.pending == {7: [CoordinatorRecord(b"c", b"3")]}
    assert shard.events == [("ended", 5, 0, True), ("ended", 6, 1, False), "loaded"]
    harness.mark(7)
    assert shard.values == {b"a": b"1", b"c": b"3"}


def test_a_marker_that_is_appended_while_loading_ends_the_transaction_once(harness: RuntimeHarness) -> None:
    harness.lead()
    harness.write((b"a", b"1"), producer_id=5, producer_epoch=0)
    harness.write(*[(b"%d" % number, b"v") for number in range(3 * RECORDS_PER_SLICE)])
    harness.runtime.stop()
    harness.runtime = harness.new_runtime()
    harness.runtime.start()
    harness.tasks.turn()
    assert harness.runtime.loading
    harness.mark(5)
    harness.tasks.run()
    assert harness.shard.events == [("ended", 5, 0, True), "loaded"]
    assert harness.shard.values[b"a"] == b"1"


# Lost, stopped, changed


def test_losing_leadership_ends_the_load(harness: RuntimeHarness) -> None:
    harness.lead()
    harness.write(*[(b"%d" % number, b"v") for number in range(3 * RECORDS_PER_SLICE)])
    harness.runtime.stop()
    harness.runtime = harness.new_runtime()
    harness.runtime.start()
    harness.tasks.turn()
    shard, seen = harness.shard, len(harness.shard.offsets)
    assert 0 < seen < 3 * RECORDS_PER_SLICE
    harness.manager.stop_replica(PARTITION)
    harness.tasks.run()
    assert (shard.events, len(shard.offsets)) == (["unloaded"], seen)
    harness.lead(epoch=1)
    harness.tasks.run()
    assert (harness.shard.events, len(harness.shard.values)) == (["loaded"], 3 * RECORDS_PER_SLICE)


def test_stopping_the_broker_ends_the_load(harness: RuntimeHarness) -> None:
    harness.lead()
    numbered(harness, 20)
    harness.runtime.stop()
    harness.runtime = harness.new_runtime()
    harness.runtime.start()
    harness.runtime.stop()
    harness.tasks.run()
    assert (harness.shard.events, harness.shard.offsets) == (["unloaded"], [])


def test_segments_replaced_during_a_load_are_loaded_once(tmp_path: Path) -> None:
    with runtime_harness(tmp_path, load_buffer_bytes=500) as harness:
        partition = harness.lead(segment_bytes=2000)
        written = numbered(harness, 100)
        log = partition.log
        harness.runtime.stop()
        harness.runtime = harness.new_runtime()
        harness.runtime.start()
        turns = 0
        while harness.runtime.loading:
            harness.tasks.turn()
            turns += 1
            for slot, old in enumerate(log.segments[:-1] if turns % 20 == 0 else ()):
                log.segments[slot] = LogSegment(log.files, log.folder.path, old.base_offset, log.config, 0)
                old.close_files()
        assert turns > 20
        assert harness.shard.offsets == list(range(100))
        assert harness.shard.values == written


def test_a_log_moved_to_another_directory_during_a_load_is_loaded_once(tmp_path: Path) -> None:
    with runtime_harness(tmp_path / "here", load_buffer_bytes=500) as harness:
        partition = harness.lead(segment_bytes=2000)
        written = numbered(harness, 100)
        harness.runtime.stop()
        harness.runtime = harness.new_runtime()
        harness.runtime.start()
        for _ in range(10):
            harness.tasks.turn()
        here, there = partition.log, tmp_path / "there" / str(PARTITION)
        here.flush()
        shutil.copytree(here.folder.path, there)
        partition.log = open_log(harness.disk, str(there), PARTITION, here.config, harness.clock)
        here.segments.close_files()
        shutil.rmtree(here.folder.path)
        assert 0 < len(harness.shard.offsets) < 100
        with capture_logs() as lines:
            harness.tasks.run()
        assert harness.shard.offsets == list(range(100))
        assert harness.shard.values == written
        assert [line for line in lines if line["log_level"] == "error"] == []
        partition.log.segments.close_files()


def test_the_load_begins_at_the_log_start_offset(harness: RuntimeHarness) -> None:
    harness.lead(cleanup_policy="compact,delete", segment_bytes=2000)
    written = numbered(harness, 100)
    harness.manager.partitions.find(PARTITION).delete_records(57)
    shard, errors = reload(harness)
    assert (shard.values, errors) == (without(written, *range(57)), [])


# Damage


def test_a_batch_with_a_wrong_checksum_is_skipped_and_the_rest_loads(harness: RuntimeHarness) -> None:
    harness.lead()
    written = numbered(harness, 10)
    overwrite(harness.log_file(), batches(harness)[4][1] + BODY + 10, b"\xff\xff")
    shard, errors = reload(harness)
    assert shard.values == without(written, 4)
    assert shard.events == ["loaded"]
    damage, summary = errors
    assert "checksum" in damage["reason"]
    assert (damage["partition"], damage["segment"]) == (str(PARTITION), 0)
    assert (summary["event"], summary["records"], summary["passed_over"]) == ("coordinator loaded", 9, 1)


def test_adjacent_batches_with_wrong_checksums_are_skipped_one_by_one(harness: RuntimeHarness) -> None:
    harness.lead()
    written = numbered(harness, 10)
    for number in (0, 1, 8, 9):
        overwrite(harness.log_file(), batches(harness)[number][1] + BODY + 10, b"\xff\xff")
    assert reload(harness)[0].values == without(written, 0, 1, 8, 9)


@pytest.mark.parametrize(
    ("where", "data"),
    [
        (LENGTH, struct.pack(">i", 1 << 30)),
        (LENGTH, struct.pack(">i", -1)),
        (LENGTH, struct.pack(">i", 3)),
        (LENGTH, struct.pack(">i", 60)),
        (MAGIC, b"\x07"),
        (0, bytes(BODY)),
        (0, b"\xff" * BODY),
    ],
)
def test_bytes_that_are_not_a_batch_are_skipped_up_to_the_next_index_entry(
    harness: RuntimeHarness, where: int, data: bytes
) -> None:
    harness.lead(index_interval_bytes=1000)
    written = numbered(harness, 60)
    segment = harness.manager.partitions.find(PARTITION).log.segments[0]
    damaged = 20
    starts = batches(harness)
    position = dict(starts)[damaged]
    places = [segment.offset_index.entry(number)[1] for number in range(len(segment.offset_index))]
    resumes = next(offset for offset, start in starts if start == min(p for p in places if p > position))
    overwrite(harness.log_file(), position + where, data)
    shard, errors = reload(harness)
    assert shard.values == without(written, *range(damaged, resumes))
    assert 1 <= resumes - damaged < 20
    assert errors[0]["bytes"] == dict(starts)[resumes] - position


def test_loading_continues_after_a_segment_that_ends_in_garbage(harness: RuntimeHarness) -> None:
    harness.lead(segment_bytes=2000, index_interval_bytes=1 << 20)
    written = numbered(harness, 60)
    log = harness.manager.partitions.find(PARTITION).log
    first, second = log.segments[:2]
    offsets = [batch.base_offset for batch in first.scan(0)]
    start = [batch.position for batch in first.scan(0)][3]
    overwrite(harness.log_file(), start, bytes(first.size - start))
    shard, errors = reload(harness)
    assert shard.values == without(written, *offsets[3:])
    assert second.base_offset == offsets[-1] + 1
    assert errors[0]["bytes"] == first.size - start


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: sleep(0))


@pytest.mark.usefixtures("no_pauses")
def test_a_shard_does_not_begin_without_a_segment_that_cannot_be_read(harness: RuntimeHarness) -> None:
    """Clients would hear that nobody has committed what stands in it."""
    harness.lead(segment_bytes=2000)
    written = numbered(harness, 60)
    log = harness.manager.partitions.find(PARTITION).log
    harness.disk.unreadable = {f"{log.segments[1].base_offset:020d}.log"}
    harness.runtime.stop()
    harness.runtime = harness.new_runtime()
    with capture_logs() as lines:
        harness.runtime.start()
        for _ in range(100):
            harness.tasks.turn()
    errors = [line for line in lines if line["log_level"] == "error"]
    assert {line["event"] for line in errors} == {"coordinator not loaded"}
    assert [line["exc_info"] for line in errors[:3]] == [True, False, False]
    assert refusal(harness) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.disk.unreadable = set()
    harness.tasks.run()
    assert harness.shard.values == written


@pytest.mark.usefixtures("no_pauses")
def test_the_pauses_before_a_coordinator_is_loaded_again_double_up_to_a_minute(harness: RuntimeHarness) -> None:
    harness.lead(segment_bytes=2000)
    numbered(harness, 60)
    log = harness.manager.partitions.find(PARTITION).log
    harness.disk.unreadable = {f"{log.segments[1].base_offset:020d}.log"}
    harness.runtime.stop()
    harness.runtime = harness.new_runtime()
    with capture_logs() as lines:
        harness.runtime.start()
        for _ in range(100):
            harness.tasks.turn()
    pauses = [line["again_in_ms"] for line in lines if line["event"] == "coordinator not loaded"]
    assert pauses[:9] == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]
    harness.disk.unreadable = set()
    harness.tasks.run()
    assert not harness.runtime.loading


def test_loading_continues_after_a_segment_file_that_was_cut_short(harness: RuntimeHarness) -> None:
    harness.lead(segment_bytes=2000)
    written = numbered(harness, 60)
    log = harness.manager.partitions.find(PARTITION).log
    with harness.log_file().open("r+b") as file:
        file.truncate(100)
    shard, errors = reload(harness)
    assert shard.values == without(written, *range(log.segments[1].base_offset))
    assert errors


def test_a_batch_with_impossible_offsets_is_skipped(harness: RuntimeHarness) -> None:
    harness.lead()
    written = numbered(harness, 10)
    overwrite(harness.log_file(), dict(batches(harness))[5], struct.pack(">q", 1 << 40))
    overwrite(harness.log_file(), dict(batches(harness))[7], struct.pack(">q", 2))
    assert reload(harness)[0].values == without(written, 5, 7)


def test_records_that_the_shard_cannot_decode_are_skipped(harness: RuntimeHarness) -> None:
    harness.lead(cleanup_policy="delete")
    keyless = [Record(offset, 0, key, b"v") for offset, key in enumerate((b"a", b"bad one", None, b"b"))]
    harness.manager.appends.append_as_coordinator(PARTITION, build_batch(keyless))
    harness.write((b"c", b"v"))
    shard, errors = reload(harness)
    assert set(shard.values) == {b"a", b"b", b"c"}
    assert [(line["offset"], line["event"]) for line in errors[:-1]] == [
        (1, "internal topic record not decoded"),
        (2, "internal topic record not decoded"),
    ]


def test_malformed_records_with_a_right_checksum_fail_only_their_batch(harness: RuntimeHarness) -> None:
    """The checksum is right: the records were written like this."""
    harness.lead()
    for key in (b"a", b"x", b"b"):
        harness.write((key, b"v"))
    position = dict(batches(harness))[1]
    broken = bytearray(build_batch([Record(1, 0, b"x", b"v")], base_offset=1))
    assert len(broken) == dict(batches(harness))[2] - position
    broken[-3] = 0x7F  # the length of the value
    broken[17:21] = struct.pack(">I", crc32c(bytes(broken[21:])))
    overwrite(harness.log_file(), position, bytes(broken))
    shard, errors = reload(harness)
    assert set(shard.values) == {b"a", b"b"}
    assert errors[0]["event"] == "internal topic batch not decoded"
    assert errors[0]["offset"] == 1


def test_a_thousand_faults_are_counted_but_not_all_logged(harness: RuntimeHarness) -> None:
    harness.lead()
    harness.write(*[(b"bad %d" % number, b"v") for number in range(1000)], replay=False)
    harness.write((b"a", b"v"))
    shard, errors = reload(harness)
    assert shard.values == {b"a": b"v"}
    assert len(errors) == MOST_LINES + 1
    assert errors[-1]["passed_over"] == 1000


def test_an_unknown_control_record_ends_no_transaction(harness: RuntimeHarness) -> None:
    harness.lead(cleanup_policy="delete")
    harness.write((b"a", b"1"), producer_id=5, producer_epoch=0)
    snapshot_header = Record(0, 0, struct.pack(">hh", 0, 3), b"")
    control = build_batch([snapshot_header], producer_id=5, producer_epoch=0, is_control=True)
    assert harness.manager.appends.append_as_coordinator(PARTITION, control).error == 0
    shard, errors = reload(harness)
    assert (shard.events, list(shard.pending), errors) == (["loaded"], [5], [])


@pytest.mark.parametrize("name", ["magic0_none", "magic0_gzip", "magic1_none", "magic1_lz4"])
def test_batches_of_old_message_formats_are_skipped(tmp_path: Path, name: str) -> None:
    """The directory of an old Kafka has such batches, followed by newer ones."""
    vectors = map(json.loads, (VECTORS / "records" / "batches.jsonl").read_text().splitlines())
    old = bytes.fromhex(next(vector["hex"] for vector in vectors if vector["name"] == name))  # offsets 0 to 5
    new = build_batch([Record(6, 0, b"a", b"v"), Record(7, 0, b"b", b"v")], base_offset=6)
    folder = tmp_path / str(PARTITION)
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(old + new)
    with runtime_harness(tmp_path) as harness, capture_logs() as lines:
        harness.lead()
        harness.tasks.run()
        assert set(harness.shard.values) == {b"a", b"b"}
    assert sum("internal topic bytes" in line["event"] for line in lines) >= 1
