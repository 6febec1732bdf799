"""A follower that appends what it fetches has its leader's log, and an append that fails changes nothing."""

import errno
import os
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.batch_header import BatchHeader
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import iter_batches
from odradek.storage.files import OsFiles
from odradek.storage.log.follow import UnexpectedAppendOffset
from odradek.storage.log.log import Log
from odradek.storage.log.truncation import StartOver, Truncate
from odradek.storage.segment.index import MAX_RELATIVE_OFFSET
from odradek.storage.segment.segment_cache import SegmentCache
from odradek.storage.segment.tail import Tails
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles
from tests.soak import seeds
from tests.storage.followed_logs import (
    SETTINGS,
    Killed,
    MortalFiles,
    aborted_transactions,
    catch_up,
    derived,
    fetched,
    lead_on,
    leader_with,
    stored_bytes,
)
from tests.storage.small_logs import NOW, append, batch, headers_of, idempotent, open_small, truncate
from tests.storage.vector_logs import config_of, copy_of, open_manager, partition_folders

SEEDS = seeds(4, of=12, in_soak=300)


def code_of(log: Log, records: bytes) -> ErrorCode | None:
    try:
        log.append_as_follower(records)
    except ProtocolError as error:
        return error.code
    return None


def everything(log: Log) -> tuple[object, ...]:
    """Returns all that an append may change, on the disk and in memory, except for what only a crash would show."""
    index = [(len(segment.offset_index), len(segment.time_index)) for segment in log.segments]
    sizes = [
        (segment.base_offset, segment.size, segment.file.size(), segment.max_timestamp) for segment in log.segments
    ]
    names = [name for name in log.files.list_directory(log.folder.path) if not name.endswith(".snapshot")]
    return (stored_bytes(log), derived(log), index, sizes, names, repr(log.state), log.segments.active.created_ms)


def at_offset(data: bytes, offset: int, epoch: int = 0) -> bytes:
    return offset.to_bytes(8, "big") + data[8:12] + epoch.to_bytes(4, "big") + data[16:]


# ---- what is appended


@pytest.mark.soak("300 seeds", minutes=1)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_ends_with_its_leaders_log_whatever_the_sizes_of_its_fetches(seed: int) -> None:
    source = random.Random(seed)
    leader = leader_with(120, source)
    log = open_small(ForgetfulFiles(), **SETTINGS)
    catch_up(log, leader, lambda: source.choice((1, 200, 2000, 50_000)))
    assert stored_bytes(log) == stored_bytes(leader)
    assert derived(log) == derived(leader)
    assert log.segments.base_offsets == leader.segments.base_offsets
    assert log.last_stable_offset == leader.last_stable_offset
    for segment, leaders in zip(log.segments, leader.segments, strict=True):
        for offset in range(leaders.base_offset, leader.state.log_end_offset + 1):
            assert segment.locate(offset) == leaders.locate(offset)
        assert segment.max_timestamp == leaders.max_timestamp
        assert len(segment.offset_index) == len(leaders.offset_index)
        assert len(segment.time_index) == len(leaders.time_index)


@pytest.mark.parametrize("seed", seeds(2, of=6))
def test_a_follower_that_was_killed_recovers_to_the_same(seed: int) -> None:
    source = random.Random(seed)
    leader = leader_with(80, source)
    files = MortalFiles()
    catch_up(open_small(files, **SETTINGS), leader, lambda: source.choice((500, 5000)))
    again = open_small(files.after_kill(), options={"clean": False, "contiguous": True}, **SETTINGS)
    assert stored_bytes(again) == stored_bytes(leader)
    assert derived(again) == derived(leader)


def test_the_result_names_what_was_appended() -> None:
    log = open_small(ForgetfulFiles(), flush_messages=4)
    leader = open_small(ForgetfulFiles())
    append(leader, batch(b"a", b"b", timestamp=NOW + 7))
    append(leader, batch(b"c", timestamp=NOW))
    data = fetched(leader, 0)
    info = log.append_as_follower(data + data[:30])
    assert info is not None
    assert (info.first_offset, info.last_offset, info.record_count) == (0, 2, 3)
    assert (info.size_in_bytes, info.max_timestamp, info.flush_required) == (len(data), NOW + 7, False)
    append(leader, batch(b"d"))
    info = log.append_as_follower(memoryview(fetched(leader, 3)))
    assert info is not None
    assert (info.first_offset, info.last_offset, info.flush_required) == (3, 3, True)
    log.flush()
    append(leader)
    info = log.append_as_follower(fetched(leader, 4))
    assert info is not None
    assert not info.flush_required


def test_of_records_cut_at_any_byte_the_whole_batches_are_appended() -> None:
    leader = open_small(ForgetfulFiles())
    for size in (3, 40, 100):
        append(leader, batch(b"x" * size))
    data = fetched(leader, 0)
    ends = [position + header.size_in_bytes for position, header in iter_batches(data)]
    for cut in range(len(data) + 1):
        log = open_small(ForgetfulFiles())
        info = log.append_as_follower(data[:cut])
        whole = sum(end <= cut for end in ends)
        assert log.state.log_end_offset == whole
        assert (info is None) == (whole == 0)
        assert stored_bytes(log) == data[: [0, *ends][whole]]


def test_each_segments_part_of_a_fetch_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = leader_with(60, random.Random(3))
    files = ForgetfulFiles()
    log = open_small(files, **SETTINGS)
    taken: list[int] = []

    def take(wanted: int) -> int:
        taken.append(wanted)
        return wanted

    monkeypatch.setattr(files, "take", take)
    log.append_as_follower(fetched(leader, 0))
    assert len(log.segments) > 3
    sizes = [segment.size for segment in log.segments]
    assert [size for size in taken if size in sizes] == sizes


def test_an_abort_in_the_same_fetch_as_its_records_is_in_the_transaction_index() -> None:
    source = random.Random(8)
    leader = leader_with(100, source, segment_bytes=1 << 20)
    expected = aborted_transactions(leader)
    assert len(expected) == 3
    log = open_small(ForgetfulFiles(), **SETTINGS)
    log.append_as_follower(fetched(leader, 0))
    assert aborted_transactions(log) == expected


def test_batches_larger_than_the_followers_segments_get_a_segment_each() -> None:
    leader = open_small(ForgetfulFiles())
    for _ in range(3):
        append(leader, batch(b"x" * 500))
    log = open_small(ForgetfulFiles(), segment_bytes=300)
    catch_up(log, leader)
    assert log.segments.base_offsets == [0, 1, 2]
    assert stored_bytes(log) == stored_bytes(leader)


def test_a_segment_rolls_by_time_within_a_fetch() -> None:
    leader = open_small(ForgetfulFiles(), segment_ms=1000)
    for number in range(6):
        append(leader, batch(timestamp=NOW + 400 * number))
    log = open_small(ForgetfulFiles(), segment_ms=1000)
    catch_up(log, leader)
    assert log.segments.base_offsets == leader.segments.base_offsets == [0, 3]


def test_a_segment_rolls_within_a_fetch_when_its_index_is_full() -> None:
    settings: dict[str, Any] = {"segment_index_bytes": 40, "index_interval_bytes": 1}
    leader = open_small(ForgetfulFiles(), **settings)
    for number in range(20):
        append(leader, batch(timestamp=NOW + number))
    log = open_small(ForgetfulFiles(), **settings)
    catch_up(log, leader)
    assert log.segments.base_offsets == leader.segments.base_offsets
    assert len(log.segments) > 3


# ---- gaps


def test_gaps_are_kept_and_survive_a_kill_between_segments_too() -> None:
    """A topic that was compacted once and is not any more: the leader's log has gaps, also between segments."""
    files = MortalFiles()
    log = open_small(files, segment_bytes=200)
    offsets = [0, 7, 8, 30, 31, 90, 200]
    data = b"".join(at_offset(batch(b"x" * 40), offset, epoch=offset // 30) for offset in offsets)
    info = log.append_as_follower(data)
    assert info is not None
    assert (info.first_offset, info.last_offset, info.record_count) == (0, 200, 7)
    assert len(log.segments) > 2
    log.update_high_watermark(201)
    assert [header.base_offset for header in headers_of(log)] == offsets
    assert log.leader_epochs.entries == [(0, 0), (1, 30), (3, 90), (6, 200)]
    again = open_small(files.after_kill(), segment_bytes=200, options={"clean": False, "contiguous": True})
    assert stored_bytes(again) == data
    assert again.state.log_end_offset == 201


@pytest.mark.parametrize("leads", [False, True])
def test_a_log_that_was_truncated_within_a_gap_leaves_none_between_its_segments(leads: bool) -> None:
    files = MortalFiles()
    log = open_small(files, segment_bytes=300, cleanup_policy="compact")
    log.append_as_follower(at_offset(batch(b"x" * 100), 0) + at_offset(batch(b"x" * 20), 9))
    assert log.segments.base_offsets == [0]
    truncate(log, 5)
    assert log.state.log_end_offset == 5
    if leads:
        append(log, batch(b"y" * 100))
    else:
        log.append_as_follower(at_offset(batch(b"y" * 100), 7))
    assert log.segments.base_offsets == [0, 1]
    options = {"clean": False, "contiguous": True}
    again = open_small(files.after_kill(), segment_bytes=300, cleanup_policy="compact", options=options)
    assert [header.base_offset for header in headers_of(again)] == [0, 5 if leads else 7]
    assert stored_bytes(again) == stored_bytes(log)


def test_a_gap_beyond_the_range_of_a_segment_begins_a_new_one_at_the_batch() -> None:
    files = MortalFiles()
    log = open_small(files, cleanup_policy="compact")
    far = MAX_RELATIVE_OFFSET + 5
    log.append_as_follower(at_offset(batch(b"far"), far) + at_offset(batch(b"on"), far + 1))
    log.append_as_follower(at_offset(batch(b"farther"), 3 * far))
    assert log.segments.base_offsets == [0, far, 3 * far]
    log.update_high_watermark(3 * far + 1)
    assert [header.base_offset for header in headers_of(log)] == [far, far + 1, 3 * far]
    options = {"clean": False, "contiguous": True}
    again = open_small(files.after_kill(), cleanup_policy="compact", options=options)
    assert stored_bytes(again) == stored_bytes(log)


def test_an_empty_log_takes_a_batch_that_begins_before_its_start() -> None:
    """The leader's records were deleted up to the middle of a batch."""
    leader = open_small(ForgetfulFiles())
    append(leader, batch(b"a", b"b", b"c", b"d"), epoch=2)
    append(leader, batch(b"e"), epoch=2)
    leader.start.delete_records_before(2)
    files = MortalFiles()
    log = open_small(files)
    truncate(log, StartOver(2))
    catch_up(log, leader)
    assert (log.state.log_start_offset, log.state.log_end_offset, log.segments.base_offsets) == (2, 5, [0])
    assert stored_bytes(log) == stored_bytes(leader)
    assert headers_of(log)[0].base_offset == 0
    assert append(log, batch(b"f"), epoch=3) == 5
    options = {"clean": False, "log_start_offset": 2}
    again = open_small(files.after_kill(), options=options)
    assert (again.state.log_start_offset, again.state.log_end_offset) == (2, 6)
    assert again.leader_epochs.entries == [(2, 2), (3, 5)]


# ---- what is refused


def test_batches_below_the_log_end_are_refused() -> None:
    leader = leader_with(30, random.Random(1))
    log = open_small(ForgetfulFiles(), **SETTINGS)
    catch_up(log, leader)
    before = everything(log)
    last = headers_of(leader)[-1]
    for data in (fetched(leader, 0), fetched(leader, last.base_offset)):
        with pytest.raises(UnexpectedAppendOffset) as error:
            log.append_as_follower(data)
        first = next(iter_batches(data))[1]
        assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert (error.value.first_offset, error.value.last_offset) == (first.base_offset, first.last_offset)
    assert everything(log) == before


@pytest.mark.parametrize("offsets", [(5, 5), (6, 5), (5, 9, 8)])
def test_offsets_that_do_not_ascend_are_refused(offsets: tuple[int, ...]) -> None:
    log = open_small(ForgetfulFiles())
    before = everything(log)
    assert code_of(log, b"".join(at_offset(batch(), offset) for offset in offsets)) is ErrorCode.CORRUPT_MESSAGE
    assert everything(log) == before


def test_a_damaged_byte_anywhere_leaves_the_log_unchanged() -> None:
    log = open_small(ForgetfulFiles())
    leader = open_small(ForgetfulFiles())
    for number in range(3):
        append(leader, idempotent(number, b"value"))
    data = fetched(leader, 0)
    before = everything(log)
    _, second = list(iter_batches(data))[1:]
    for position in range(second[0] + 16, second[0] + second[1].size_in_bytes):
        damaged = bytearray(data)
        damaged[position] ^= 0x41
        assert code_of(log, bytes(damaged)) is ErrorCode.CORRUPT_MESSAGE, position
    assert everything(log) == before


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("last_offset_delta", -1, ErrorCode.CORRUPT_MESSAGE),
        ("base_offset", 0x7FFFFFFFFFFFFFFF, ErrorCode.CORRUPT_MESSAGE),
        ("base_offset", -1, ErrorCode.UNKNOWN_SERVER_ERROR),
        ("magic", 1, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ("magic", 3, ErrorCode.CORRUPT_MESSAGE),
        ("batch_length", 13, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_impossible_headers_are_refused(field: str, value: int, code: ErrorCode) -> None:
    data = batch(b"a")
    header: BatchHeader = next(iter_batches(data))[1]
    length = header.batch_length
    setattr(header, field, value)
    if field == "last_offset_delta":
        header.seal(data[61:])
        assert header.batch_length == length
    log = open_small(ForgetfulFiles())
    before = everything(log)
    assert code_of(log, header.pack() + data[61:]) is code
    assert everything(log) == before


def test_nothing_is_appended_while_the_log_is_truncated() -> None:
    leader = leader_with(20, random.Random(2))
    log = open_small(ForgetfulFiles(), **SETTINGS)
    catch_up(log, leader)
    truncation = log.truncation(Truncate(3))
    assert truncation.begin()
    lead_on(leader, 1, random.Random(1))
    with pytest.raises(UnexpectedAppendOffset):
        log.append_as_follower(fetched(leader, log.state.log_end_offset))
    for job in truncation.steps():
        if job is not None:
            job()
    catch_up(log, leader)
    assert stored_bytes(log) == stored_bytes(leader)


# ---- disks


def test_a_disk_full_at_any_byte_leaves_the_log_unchanged_even_if_the_fetch_fills_many_segments() -> None:
    source = random.Random(4)
    leader = leader_with(12, source)
    start = leader.state.log_end_offset
    lead_on(leader, 30, source)
    data = fetched(leader, start)
    failed = 0
    for room in range(0, len(data) + 2000, 29):
        files = ForgetfulFiles()
        log = open_small(files, **SETTINGS)
        log.append_as_follower(fetched(leader, 0)[: -len(data)])
        before = everything(log)
        files.room = room
        code = code_of(log, data)
        if code is not None:
            failed += 1
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            assert everything(log) == before
        files.room = None
        catch_up(log, leader)
        assert stored_bytes(log) == stored_bytes(leader)
        assert derived(log) == derived(leader)
    assert failed > 100


def test_a_torn_tail_that_cannot_be_removed_now_is_removed_before_the_next_append() -> None:
    source = random.Random(4)
    leader = leader_with(40, source)
    files = ForgetfulFiles()
    log = open_small(files, **SETTINGS)
    files.fail_truncate = OSError(errno.EIO, os.strerror(errno.EIO))
    files.room = 2500
    assert code_of(log, fetched(leader, 0)) is ErrorCode.KAFKA_STORAGE_ERROR
    files.room = None
    assert code_of(log, fetched(leader, 0)) is ErrorCode.KAFKA_STORAGE_ERROR
    files.fail_truncate = None
    append(log, batch(b"another leader's"))
    assert [name for name in files.list_directory(log.folder.path) if name.endswith(".log")] == [f"{0:020d}.log"]
    assert log.segments.active.file.size() == log.segments.active.size
    truncate(log, 0)
    catch_up(log, leader)
    assert derived(log) == derived(leader)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_kill_at_any_access_leaves_a_prefix_of_the_leaders_log(compacted: bool) -> None:
    source = random.Random(6)
    settings = {**SETTINGS, "cleanup_policy": "compact" if compacted else "delete"}
    leader = leader_with(8, source)
    start = leader.state.log_end_offset
    lead_on(leader, 25, source)
    whole = stored_bytes(leader)
    data = fetched(leader, start)
    for left in range(1000):
        files = MortalFiles()
        log = open_small(files, **settings)
        log.append_as_follower(whole[: -len(data)])
        files.left = left
        try:
            log.append_as_follower(data)
            break
        except Killed:
            files.left = None
        again = open_small(files.after_kill(), options={"clean": False, "contiguous": True}, **settings)
        found = stored_bytes(again)
        assert whole.startswith(found)
        assert len(found) >= len(whole) - len(data)
        catch_up(again, leader)
        assert derived(again) == derived(leader)
    assert left > 20


# ---- memory


def test_a_large_fetch_is_not_copied(tmp_path: Path) -> None:
    value = bytes(range(256)) * 4 * 16
    data = b"".join(at_offset(batch(value), offset) for offset in range(640))
    assert len(data) > 10 << 20
    tails = Tails()
    log = open_small(OsFiles(), str(tmp_path / "orders-0"), options={"cache": SegmentCache(tails=tails)})
    tracemalloc.start()
    try:
        log.append_as_follower(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert (log.state.log_end_offset, tails.held_bytes) == (640, 0)


def test_a_leaders_tail_is_dropped_when_it_follows_and_begins_anew_when_it_leads() -> None:
    tails = Tails()
    log = open_small(ForgetfulFiles(), clock=ManualClock(wall_ms=NOW), options={"cache": SegmentCache(tails=tails)})
    append(log, batch(b"led"), epoch=1)
    assert tails.held_bytes > 0
    log.append_as_follower(at_offset(batch(b"followed"), 1, epoch=2))
    assert tails.held_bytes == 0
    append(log, batch(b"led again"), epoch=3)
    assert [header.partition_leader_epoch for header in headers_of(log)] == [1, 2, 3]


# ---- the logs of a real broker


@pytest.mark.parametrize("partition", partition_folders("clean"), ids=str)
def test_a_follower_of_kafkas_log_derives_the_same_from_it_as_a_recovery(partition: object, tmp_path: Path) -> None:
    manager = open_manager(copy_of("clean", tmp_path / "data", str(partition), "meta.properties"))
    (kafkas,) = manager.logs.values()
    data = stored_bytes(kafkas)
    if data and data[16] < 2:
        pytest.skip("message format 0 or 1")
    log = open_small(ForgetfulFiles(), clock=ManualClock(wall_ms=NOW))
    log.update_config(config_of(kafkas.topic_partition.topic))
    log.append_as_follower(data)
    recovered = open_small(log.files, clock=ManualClock(wall_ms=NOW), options={"clean": False})
    assert stored_bytes(log) == data
    assert derived(log) == derived(recovered)
    end = log.state.log_end_offset if data else 0
    assert (log.producers.state.map_end_offset, aborted_transactions(log)) == (end, aborted_transactions(kafkas))
    known = {epoch for epoch, _ in kafkas.leader_epochs.entries}
    assert {epoch for epoch, _ in log.leader_epochs.entries} <= known
    manager.release()
