"""A small log, truncated or changed at every position, opens with the batches that are still intact."""

import struct
from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.protocol.records import check_crc, iter_batches
from odradek.storage.checkpoint import read_epochs
from odradek.storage.log.log import Log
from odradek.storage.segment.batch_scan import scan_batches
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import NOW, all_bytes, append, batch, bytes_of, headers_of, idempotent, open_small

FOLDER = "/data/orders-0"
SETTINGS: dict[str, Any] = {"segment_bytes": 420, "index_interval_bytes": 60}
# No checksum covers a batch's base offset (0-7) and leader epoch (12-15): Kafka accepts any value.
UNPROTECTED = {*range(8), *range(12, 16)}


def small_log(files: ForgetfulFiles) -> Log:
    """Returns a log of several segments with a few batches each, with and without a producer, in two epochs."""
    log = open_small(files, **SETTINGS)
    for number in range(6):
        append(log, idempotent(2 * number, b"x" * number, b"y", timestamp=NOW + number), epoch=number // 3)
        append(log, batch(b"z" * number, timestamp=NOW + number), epoch=number // 3)
    return log


def reopened(files: ForgetfulFiles, clean: bool, recovery_point: int = 0) -> Log:
    return open_small(files, options={"clean": clean, "recovery_point": recovery_point}, **SETTINGS)


def check_usable(log: Log) -> None:
    """The log can be written, read to its end, and opened again."""
    end = log.state.log_end_offset
    assert append(log, batch(b"after")) == end
    assert headers_of(log)[-1].base_offset == end
    for header in headers_of(log):
        found = log.reader.read(header.last_offset, 1)
        assert next(iter_batches(bytes_of(found)))[1].base_offset == header.base_offset
    assert finished(log.search.offset_for_timestamp(0)) is not None


def batches_with_place(log: Log) -> list[tuple[int, int, int, int]]:
    """Returns (segment's base offset, position, size, base offset) of every batch."""
    return [
        (segment.base_offset, found.position, found.size, found.base_offset)
        for segment in log.segments
        for found in scan_batches(segment.file, 0, segment.size)
    ]


def test_the_small_log_has_everything_the_tests_need() -> None:
    log = small_log(ForgetfulFiles())
    assert len(log.segments) >= 3
    assert all(len(segment.offset_index) for segment in log.segments[:-1])


def test_a_log_truncated_at_any_byte_recovers_to_its_last_complete_batch() -> None:
    files = ForgetfulFiles()
    log = small_log(files)
    path = log.segments.active.path(".log")
    content = bytes(files.content(path))
    base = log.segments.active.base_offset
    places = [place for place in batches_with_place(log) if place[0] == base]
    whole = all_bytes(log)
    before = len(whole) - len(content)
    for cut in range(len(content) + 1):
        files.content(path)[:] = content[:cut]
        again = reopened(files, clean=False)
        kept = max([position + size for _, position, size, _ in places if position + size <= cut], default=0)
        assert all_bytes(again) == whole[: before + kept], cut
        assert files.size(path) == kept
        check_usable(again)
        files.content(path)[:] = content
        for name in [name for name in files.names if name.endswith(".snapshot")]:
            files.remove(name)


def test_zeros_at_the_end_of_a_segment_are_truncated() -> None:
    files = ForgetfulFiles()
    log = small_log(files)
    whole = all_bytes(log)
    for zeros in (1, 11, 12, 60, 61, 5000):
        files.content(log.segments.active.path(".log")).extend(bytes(zeros))
        assert all_bytes(reopened(files, clean=False)) == whole


def test_a_changed_byte_of_a_segment_loses_at_most_the_data_after_it() -> None:
    files = ForgetfulFiles()
    log = small_log(files)
    whole = all_bytes(log)
    places = batches_with_place(log)
    files.make_durable()
    for number, (segment_base, position, size, base_offset) in enumerate(places):
        start = sum(place[2] for place in places[:number])
        for within in range(size):
            disk = files.crash()
            path = f"{FOLDER}/{segment_base:020d}.log"
            disk.content(path)[position + within] ^= 0x10
            again = reopened(disk, clean=False)
            found = all_bytes(again)
            assert found[:start] == whole[:start], (base_offset, within)
            if within in UNPROTECTED:
                assert found[start + 16 : start + size] in (b"", whole[start + 16 : start + size])
            else:
                assert found == whole[:start], (base_offset, within)
            check_usable(again)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_changed_byte_of_an_index_does_not_change_reads(suffix: str, clean: bool) -> None:
    files = ForgetfulFiles()
    log = small_log(files)
    whole = all_bytes(log)
    times = [finished(log.search.offset_for_timestamp(NOW + number)) for number in range(7)]
    log.close()
    files.make_durable()
    for path in [name for name in files.names if name.endswith(suffix)]:
        for position in range(files.size(path)):
            for change in (0x01, 0x80):
                disk = files.crash()
                disk.content(path)[position] ^= change
                again = reopened(disk, clean, recovery_point=log.state.log_end_offset)
                assert all_bytes(again) == whole, (path, position)
                for offset in range(again.state.log_end_offset):
                    found = next(iter_batches(bytes_of(again.reader.read(offset, 1))))[1]
                    assert found.base_offset <= offset <= found.last_offset, (path, position, offset)
                if suffix == ".index":
                    assert [finished(again.search.offset_for_timestamp(NOW + number)) for number in range(7)] == times
                check_usable(again)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("content", [b"", b"\x01", b"\xff" * 24, b"\x00" * 48, b"garbage that is no index.."])
@pytest.mark.parametrize("clean", [True, False])
def test_an_invalid_index_is_rebuilt(suffix: str, content: bytes, clean: bool) -> None:
    files = ForgetfulFiles()
    log = small_log(files)
    log.flush()
    log.close()
    whole = all_bytes(log)
    expected = {name: bytes(files.content(name)) for name in files.names if name.endswith(suffix)}
    for path in expected:
        files.content(path)[:] = content
    again = reopened(files, clean)
    assert all_bytes(again) == whole
    times = [finished(again.search.offset_for_timestamp(NOW + number)) for number in range(6)]
    assert [found.offset for found in times if found] == [0, 3, 6, 9, 12, 15]
    if content not in (b"", b"\x00" * 48):  # an empty index, or one of zeros, is incomplete but not wrong
        again.close()
        assert {name: bytes(files.content(name)) for name in expected} == expected


@pytest.mark.parametrize("clean", [True, False])
def test_missing_indexes_are_rebuilt(clean: bool) -> None:
    files = ForgetfulFiles()
    log = small_log(files)
    log.close()
    expected = {name: bytes(files.content(name)) for name in files.names if name.endswith("index")}
    for path in expected:
        files.remove(path)
    again = reopened(files, clean)
    assert [len(segment.offset_index) for segment in again.segments] == [
        len(expected[segment.path(".index")]) // 8 for segment in again.segments
    ]
    again.close()
    assert {name: bytes(files.content(name)) for name in expected} == expected


def test_an_index_without_a_segment_is_removed() -> None:
    files = ForgetfulFiles()
    small_log(files).close()
    stray = f"{FOLDER}/{777:020d}.index"
    files.open(stray, create=True)
    reopened(files, clean=True)
    assert not files.exists(stray)


def test_only_segments_from_the_recovery_point_on_are_read_again() -> None:
    files = ForgetfulFiles()
    log = small_log(files)
    first, second = log.segments[0], log.segments[1]
    damage = struct.pack(">I", 0xDEADBEEF)
    files.content(first.path(".log"))[17:21] = damage
    again = reopened(files, clean=False, recovery_point=second.base_offset)
    assert again.state.log_end_offset == log.state.log_end_offset
    assert not check_crc(bytes_of(again.reader.read(0, 1)), 0, headers_of(again)[0])
    thorough = reopened(files, clean=False, recovery_point=second.base_offset - 1)
    assert thorough.state.log_end_offset == 0


def test_segments_after_a_damaged_one_are_deleted() -> None:
    files = ForgetfulFiles()
    log = small_log(files)
    second = log.segments[1]
    files.content(second.path(".log"))[40] ^= 1
    again = reopened(files, clean=False)
    assert (again.state.log_end_offset, again.segments.base_offsets) == (second.base_offset, [0, second.base_offset])
    assert {path.rpartition(".")[2] for _, path in again.folder.removals.waiting} == {"deleted"}
    check_usable(again)


COMPACTED: dict[str, Any] = {**SETTINGS, "cleanup_policy": "compact"}


def test_the_segments_after_a_lost_end_of_one_are_deleted_in_compacted_logs_too() -> None:
    """A power cut may lose the end of a segment that was not synced, and keep the next segment."""
    files = ForgetfulFiles()
    log = open_small(files, **COMPACTED)
    while len(log.segments) < 3:
        append(log)
    second, third = log.segments.base_offsets[1:]
    lost = list(scan_batches(log.segments[1].file, 0, log.segments[1].size))[-2]
    del files.content(log.segments[1].path(".log"))[lost.position :]
    options = {"clean": False, "contiguous": True, "recovery_point": second + 1}
    again = open_small(files, options=options, **COMPACTED)
    assert (again.state.log_end_offset, again.segments.base_offsets) == (lost.base_offset, [0, second])
    assert lost.base_offset < third
    check_usable(again)


@pytest.mark.parametrize("known", ["recovery_point", "cleaned_offset"])
def test_the_gaps_that_a_clean_leaves_between_segments_stay(known: str) -> None:
    """Our cleaner does not clean after the checkpointed recovery point; Kafka's does, and then notes how far."""
    files = ForgetfulFiles()
    log = open_small(files, **COMPACTED)
    while len(log.segments) < 4:
        append(log)
    second, third, _ = log.segments.base_offsets[1:]
    whole = all_bytes(log)
    removed = list(scan_batches(log.segments[1].file, 0, log.segments[1].size))[-1]
    del files.content(log.segments[1].path(".log"))[removed.position :]
    options = {"clean": False, "contiguous": True, "recovery_point": second, known: third}
    again = open_small(files, options=options, **COMPACTED)
    assert again.segments.base_offsets == log.segments.base_offsets
    assert len(all_bytes(again)) == len(whole) - removed.size


def test_a_torn_tail_is_found_even_after_a_shutdown_marked_as_clean() -> None:
    files = ForgetfulFiles()
    log = small_log(files)
    whole = all_bytes(log)
    log.close()
    files.content(log.segments.active.path(".log")).extend(b"torn")
    again = reopened(files, clean=True)
    assert all_bytes(again) == whole
    check_usable(again)


def test_epochs_and_producers_are_rebuilt_from_the_batches() -> None:
    files = ForgetfulFiles()
    log = small_log(files)
    epochs, last = log.leader_epochs.entries, log.producers.state.producers[1].batches[-1]
    for name in [name for name in files.names if name.endswith((".snapshot", "leader-epoch-checkpoint"))]:
        files.remove(name)
    again = reopened(files, clean=False)
    assert again.leader_epochs.entries == epochs
    assert again.producers.state.producers[1].batches[-1] == last


@pytest.mark.parametrize("content", [b"", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\nx y\n", b"\xff\xff", b"0\n1\n-1 0\n"])
def test_a_corrupt_leader_epoch_checkpoint_is_rebuilt(content: bytes) -> None:
    files = ForgetfulFiles()
    log = small_log(files)
    log.flush()
    files.content(f"{FOLDER}/leader-epoch-checkpoint")[:] = content
    again = reopened(files, clean=False, recovery_point=log.state.log_end_offset)
    assert again.leader_epochs.entries == log.leader_epochs.entries
    again.flush()
    assert read_epochs(files, f"{FOLDER}/leader-epoch-checkpoint") == log.leader_epochs.entries


def test_an_interrupted_replacement_of_segments_is_finished_or_undone() -> None:
    files = ForgetfulFiles()
    log = small_log(files)
    whole = all_bytes(log)
    log.close()
    first = log.segments[0]
    for suffix in (".log", ".index", ".timeindex"):
        files.replace_file(first.path(suffix) + ".cleaned", b"half of it")
    assert all_bytes(reopened(files, clean=True)) == whole
    assert not [name for name in files.names if name.endswith(".cleaned")]
    merged = bytes(files.content(log.segments[0].path(".log")) + files.content(log.segments[1].path(".log")))
    files.replace_file(first.path(".log") + ".swap", merged)
    files.replace_file(first.path(".index") + ".swap", b"")
    files.replace_file(first.path(".timeindex") + ".swap", b"")
    again = reopened(files, clean=True)
    assert again.segments.base_offsets == [0, *log.segments.base_offsets[2:]]
    assert all_bytes(again) == whole
    assert not [name for name in files.names if name.endswith(".swap")]


def test_a_log_that_ends_before_its_start_offset_restarts_empty_there() -> None:
    files = ForgetfulFiles()
    small_log(files).close()
    again = open_small(files, options={"clean": True, "log_start_offset": 500}, **SETTINGS)
    assert (again.state.log_start_offset, again.state.log_end_offset) == (500, 500)
    check_usable(again)


def test_messages_of_old_formats_are_kept_and_skipped() -> None:
    """A directory written before Kafka 0.11 keeps its first batches, without any loss."""
    import zlib

    def old_message(offset: int, magic: int, value: bytes) -> bytes:
        body = bytes([magic, 0]) + (struct.pack(">q", NOW) if magic else b"")
        body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
        message = struct.pack(">I", zlib.crc32(body)) + body
        return struct.pack(">qi", offset, len(message)) + message

    old = old_message(0, 0, b"zero" * 10) + old_message(1, 1, b"one" * 20)
    files = ForgetfulFiles()
    open_small(files).close()
    files.content(f"{FOLDER}/{0:020d}.log")[:] = old
    log = reopened(files, clean=False)
    assert log.state.log_end_offset == 2
    assert append(log) == 2
    assert bytes_of(log.reader.read(0, len(old))) == old
    assert log.segments.active.locate(1) == (len(old_message(0, 0, b"zero" * 10)), len(old_message(1, 1, b"one" * 20)))
    files.content(f"{FOLDER}/{0:020d}.log")[len(old) - 1] ^= 1
    assert reopened(files, clean=False).state.log_end_offset == 1


def test_a_damaged_transaction_index_after_an_unreadable_segment_does_not_prevent_the_start() -> None:
    files = ForgetfulFiles()
    log = open_small(files)
    for number in range(8):
        append(log, idempotent(number))
    log.close()  # with a snapshot
    log = open_small(files)
    for number in range(8, 12):
        append(log, idempotent(number))
    log.roll()
    append(log, idempotent(12))
    position = list(log.segments[0].scan(0))[6].position
    content = files.content(log.segments[0].path(".log"))
    content[position:] = bytes(len(content) - position)
    files.open(log.segments[1].path(".txnindex"), create=True).write((b"x" * 34,), 0)
    files.remove(log.producers.snapshots.path(12))
    again = open_small(files, options={"clean": False})
    assert again.state.log_end_offset == 6
    check_usable(again)
