"""What a clean keeps and removes: keys, tombstones, transactions, producers, offsets, segments."""

import random
from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.protocol.records import Compression, TimestampType
from odradek.storage.cleaner.candidates import log_to_clean
from odradek.storage.cleaner.cleaner import clean_steps, group_segments
from odradek.storage.cleaner.job import SourceSegment, UncleanableLog
from odradek.storage.cleaner.swap import replace_segments
from odradek.storage.log.log import Log
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles
from tests.storage.cleaner.clean_logs import batches, clean, contents, end_transaction, job_of, put, seal
from tests.storage.small_logs import NOW, append, batch, bytes_of, open_small, truncate

DAY = 86_400_000
HOUR = 3_600_000


@pytest.fixture
def files() -> ForgetfulFiles:
    return ForgetfulFiles()


def compacted(files: ForgetfulFiles, **settings: Any) -> Log:
    files.make_directories("/data")
    return open_small(files, cleanup_policy="compact", **settings)


def values(log: Log) -> dict[int, bytes | None]:
    return {offset: value for offset, _, value in contents(log)}


class TestKeys:
    def test_the_last_value_of_each_key_keeps_its_offset(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        put(log, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
        put(log, (b"b", b"4"), (b"c", b"5"))
        seal(log)
        put(log, (b"c", b"not clean"))
        done = clean(log)
        assert contents(log) == [
            (2, b"a", b"3"),
            (3, b"b", b"4"),
            (4, b"c", b"5"),
            (5, b"c", b"not clean"),
        ]
        assert (done.end_offset, log.state.cleaned_offset) == (5, 5)

    def test_keys_that_differ_only_after_their_first_kilobyte_are_distinct(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        long = b"k" * 1024
        put(log, (long + b"1", b"1"), (long + b"2", b"2"), (long + b"1", b"3"), (b"", b"4"), (b"", b"5"))
        seal(log)
        clean(log)
        assert list(values(log)) == [1, 2, 4]

    def test_records_without_a_key_are_removed(self, files: ForgetfulFiles) -> None:
        log = open_small(files, cleanup_policy="delete")
        put(log, (None, b"1"), (b"a", b"2"), (None, b"3"))
        seal(log)
        log.update_config(compacted(ForgetfulFiles()).config)
        done = clean(log)
        assert list(values(log)) == [1]
        assert done.stats.invalid_messages_read == 2

    @pytest.mark.parametrize("codec", list(Compression))
    def test_a_batch_that_loses_records_keeps_its_codec_offsets_sequence_and_times(
        self, files: ForgetfulFiles, codec: Compression
    ) -> None:
        log = compacted(files)
        pairs = [(b"%d" % (i % 3), b"v" * i) for i in range(9)]
        put(log, *pairs, producer_id=5, producer_epoch=2, base_sequence=7, compression=codec)
        put(log, (b"0", b""), producer_id=5, producer_epoch=2, base_sequence=16)
        seal(log)
        clean(log)
        header, records = next(iter(batches(log)))
        assert (header.base_offset, header.last_offset, header.base_sequence, header.last_sequence) == (0, 8, 7, 15)
        assert (header.producer_id, header.producer_epoch, header.compression) == (5, 2, codec)
        assert [(r.offset, r.sequence, r.timestamp, r.key) for r in records] == [(7, 14, NOW, b"1"), (8, 15, NOW, b"2")]

    def test_a_batch_that_loses_records_keeps_its_timestamps(self, files: ForgetfulFiles) -> None:
        for kind in TimestampType:
            log = open_small(
                ForgetfulFiles(),
                cleanup_policy="compact",
                message_timestamp_type="LogAppendTime" if kind else "CreateTime",
            )
            append(log, batch(b"1", b"2", b"3", timestamps=[NOW - 70_000, NOW - 5, NOW - 900_000]))
            put(log, (b"other", b""))
            before = {r.offset: r.timestamp for _, records in batches(log) for r in records}
            seal(log)
            clean(log)
            assert {r.offset: r.timestamp for _, records in batches(log) for r in records} == {
                offset: before[offset] for offset in (2, 3)
            }

    def test_a_batch_that_loses_nothing_is_copied_byte_for_byte(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        for number in range(20):
            put(log, (b"%d" % number, b"x" * 100), (b"other %d" % number, b"y"), compression=number % 5)
        seal(log)
        before = bytes(log.segments[0].file.read(0, log.segments[0].size))
        first = next(batches(log))[0].size_in_bytes
        segment = log.segments[0]
        clean(log)
        assert log.segments[0] is segment  # nothing was removed: the segment is not even replaced
        put(log, (b"0", b"new"), (b"other 0", b"new"))
        seal(log)
        clean(log)
        after = bytes(log.segments[0].file.read(0, log.segments[0].size))
        assert after.startswith(before[first:])


class TestTombstones:
    def test_a_tombstone_is_removed_after_its_delete_horizon(self, files: ForgetfulFiles) -> None:
        log = compacted(files, delete_retention_ms=DAY)
        put(log, (b"a", b"1"), (b"b", b"2"))
        put(log, (b"a", None), time=NOW + 5)
        seal(log)
        put(log, (b"z", b""))
        assert clean(log, NOW + HOUR).end_offset == 3
        assert list(values(log)) == [1, 2, 3]
        header, records = list(batches(log))[1]
        assert header.delete_horizon_ms == NOW + HOUR + DAY
        assert records[0].timestamp == NOW + 5

        seal(log)
        clean(log, NOW + HOUR + DAY - 1)
        assert list(values(log)) == [1, 2, 3]
        assert list(batches(log))[1][0].delete_horizon_ms == NOW + HOUR + DAY  # not postponed

        put(log, (b"y", b""))
        seal(log)
        clean(log, NOW + HOUR + DAY)
        assert list(values(log)) == [1, 3, 4]

    def test_a_tombstone_followed_by_a_value_is_removed_immediately(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        put(log, (b"a", None))
        put(log, (b"a", b"1"))
        seal(log)
        clean(log)
        assert list(values(log)) == [1]

    def test_the_tombstones_of_a_compressed_batch_share_its_horizon(self, files: ForgetfulFiles) -> None:
        log = compacted(files, delete_retention_ms=1000)
        put(log, (b"a", None), (b"b", b"2"), (b"c", None), compression=Compression.ZSTD)
        seal(log)
        put(log, (b"z", b""))
        clean(log, NOW)
        header, records = next(batches(log))
        assert (header.delete_horizon_ms, header.compression) == (NOW + 1000, Compression.ZSTD)
        assert [record.timestamp for record in records] == [NOW] * 3
        seal(log)
        clean(log, NOW + 1000)
        assert list(values(log)) == [1, 3]


class TestTransactions:
    def test_aborted_data_is_removed_and_its_marker_after_the_delete_horizon(self, files: ForgetfulFiles) -> None:
        log = compacted(files, delete_retention_ms=1000)
        put(log, (b"a", b"good"))
        put(log, (b"a", b"bad"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
        marker = end_transaction(log, 1, committed=False)
        put(log, (b"b", b"another's"), producer_id=1, producer_epoch=1, base_sequence=0)
        seal(log)
        put(log, (b"z", b""))

        def markers() -> list[tuple[int, int | None]]:
            return [(h.base_offset, h.delete_horizon_ms) for h, records in batches(log) if h.is_control and records]

        clean(log, NOW)
        assert values(log)[0] == b"good"
        assert 1 not in values(log)
        assert markers() == [(marker, None)]  # it had data until now
        assert [t.first_offset for t in log.segments[0].transaction_index.entries()] == [1]
        clean(log, NOW + 1)
        assert markers() == [(marker, NOW + 1001)]
        assert log.segments[0].transaction_index.entries() == []
        clean(log, NOW + 1001)
        assert markers() == []

    def test_a_commit_marker_is_kept_as_long_as_any_record_of_its_transaction(self, files: ForgetfulFiles) -> None:
        log = compacted(files, delete_retention_ms=0)
        transaction = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
        put(log, (b"a", b"1"), (b"b", b"2"), base_sequence=0, **transaction)
        end_transaction(log, 1, committed=True)
        put(log, (b"x", b""), base_sequence=2, producer_id=1, producer_epoch=0)
        seal(log)
        for round_number in range(3):
            clean(log, NOW + round_number)
        assert sum(header.is_control for header, _ in batches(log)) == 1
        put(log, (b"a", b"3"), (b"b", b"4"))
        seal(log)
        for round_number in range(3, 7):
            clean(log, NOW + round_number)
        assert sum(header.is_control for header, _ in batches(log)) == 0
        assert list(values(log)) == [3, 4, 5]

    def test_an_open_transaction_and_everything_after_it_are_not_cleaned(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        put(log, (b"a", b"1"))
        seal(log)
        put(log, (b"a", b"2"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
        put(log, (b"a", b"3"))
        seal(log)
        put(log, (b"a", b"4"))
        seal(log)
        assert log.last_stable_offset == 1
        assert clean(log).end_offset == 1
        assert list(values(log)) == [0, 1, 2, 3]
        end_transaction(log, 1, committed=True)
        seal(log)
        clean(log)
        assert list(values(log)) == [3]

    def test_an_aborted_transaction_in_two_segments_is_removed_from_both(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        transaction = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
        put(log, (b"a", b"1"), base_sequence=0, **transaction)
        seal(log)
        put(log, (b"b", b"2"), base_sequence=1, **transaction)
        end_transaction(log, 1, committed=False)
        seal(log)
        clean(log)
        assert values(log) == {}


class TestProducers:
    def test_the_last_batch_of_a_producer_is_kept_empty_and_a_restart_finds_its_sequence(
        self, files: ForgetfulFiles
    ) -> None:
        log = compacted(files)
        put(log, (b"a", b"1"), (b"a", b"2"), producer_id=1, producer_epoch=3, base_sequence=10)
        put(log, (b"a", b"3"), (b"a", b"4"), producer_id=1, producer_epoch=3, base_sequence=12)
        put(log, (b"a", b"5"))
        seal(log)
        clean(log)
        header, records = next(batches(log))
        assert (header.base_offset, header.last_offset, header.last_sequence, records) == (2, 3, 13, [])
        assert (header.base_timestamp, header.max_timestamp) == (-1, NOW)
        for offset in list(log.producers.snapshots.offsets):
            log.producers.snapshots.remove(offset)
        log.segments.close_files()
        again = open_small(files, cleanup_policy="compact", options={"clean": False})
        assert again.producers.state.producers[1].last_sequence == 13
        assert again.producers.state.producers[1].producer_epoch == 3

    def test_the_last_batch_of_an_expired_producer_is_removed(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        put(log, (b"a", b"1"), producer_id=1, producer_epoch=3, base_sequence=10)
        put(log, (b"a", b"2"))
        seal(log)
        log.producers.state.remove_expired(NOW + 10 * DAY)
        clean(log)
        assert [header.base_offset for header, _ in batches(log)] == [1]

    def test_the_last_batch_of_the_cleaned_range_is_kept_so_that_offsets_do_not_move_back(
        self, files: ForgetfulFiles
    ) -> None:
        log = open_small(files, cleanup_policy="delete")
        put(log, (b"a", b"1"))
        put(log, (None, b"2"))
        seal(log)
        log.update_config(compacted(ForgetfulFiles()).config)
        clean(log)
        assert [(header.last_offset, len(records)) for header, records in batches(log)] == [(0, 1), (1, 0)]


class TestHowFar:
    def test_records_younger_than_min_compaction_lag_are_not_cleaned(self, files: ForgetfulFiles) -> None:
        log = compacted(files, min_compaction_lag_ms=HOUR)
        for age in (2 * HOUR, HOUR // 2, 0):
            put(log, (b"a", b"%d" % age), time=NOW - age)
            seal(log)
        assert clean(log, NOW).end_offset == 1
        assert len(values(log)) == 3
        clean(log, NOW + HOUR)
        assert list(values(log)) == [2]

    def test_a_log_is_due_after_max_compaction_lag_even_if_nearly_clean(self, files: ForgetfulFiles) -> None:
        log = compacted(files, max_compaction_lag_ms=HOUR, min_cleanable_dirty_ratio=0.9)
        for number in range(50):
            put(log, (b"%d" % number, b"x" * 100), time=NOW)
        seal(log)
        clean(log)
        put(log, (b"0", b"new"), time=NOW + 1)
        seal(log)
        assert not log_to_clean(log, NOW + HOUR).is_due
        due = log_to_clean(log, NOW + 1 + HOUR + 500)
        assert (due.is_due, due.delay_ms) == (True, 500)

    def test_a_log_is_due_when_its_dirty_ratio_exceeds_the_limit(self, files: ForgetfulFiles) -> None:
        log = compacted(files, min_cleanable_dirty_ratio=0.5)
        assert not log_to_clean(log, NOW).is_due
        put(log, (b"a", b"x" * 1000))
        assert not log_to_clean(log, NOW).is_due  # the active segment does not count
        seal(log)
        assert log_to_clean(log, NOW).cleanable_ratio == 1
        clean(log)
        assert not log_to_clean(log, NOW).is_due
        put(log, (b"b", b"x" * 900))
        seal(log)
        assert not log_to_clean(log, NOW).is_due
        put(log, (b"c", b"x" * 200))
        seal(log)
        assert log_to_clean(log, NOW).is_due

    def test_a_clean_ends_where_its_key_memory_is_full_and_the_next_one_continues(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        for number in range(300):
            put(log, (b"%03d" % number, b"1"), (b"%03d" % number, b"2"))
        seal(log)
        ends, rounds = [0], 0
        while ends[-1] < 600:
            done = clean(log, map_bytes=100 * 150)
            ends.append(done.end_offset)
            rounds += 1
            assert ends[-1] > ends[-2]
        assert rounds in (3, 4)
        assert len(values(log)) == 300
        assert set(values(log).values()) == {b"2"}

    def test_a_batch_with_more_keys_than_fit_in_memory_is_cleaned(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        for _ in range(2):
            put(log, *[(b"%d" % number, b"") for number in range(500)])
        seal(log)
        while clean(log, map_bytes=1).end_offset < 1000:
            pass
        assert list(values(log)) == list(range(500, 1000))

    def test_an_unsynced_segment_is_not_cleaned(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        put(log, (b"a", b"1"))
        put(log, (b"a", b"2"))
        log.roll()
        assert log_to_clean(log, NOW).cleanable_bytes == 0
        log.flush()
        log.segments.unsynced.clear()
        assert log_to_clean(log, NOW).cleanable_bytes > 0

    def test_an_impossible_checkpoint_is_reset_to_the_log_start(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        put(log, (b"a", b"1"))
        seal(log)
        log.state.cleaned_to(99)
        assert log_to_clean(log, NOW).first_dirty_offset == 0
        assert log.state.cleaned_offset == 0


class TestSegments:
    def test_small_segments_are_merged_and_large_ones_are_not(self, files: ForgetfulFiles) -> None:
        log = compacted(files, segment_bytes=2000)
        for number in range(100):
            put(log, (b"%d" % (number % 40), b"x" * 50))
        seal(log)
        before = len(log.segments)
        done = clean(log)
        assert done.end_offset == 100
        assert all(segment.size <= 2000 for segment in log.segments)
        clean(log)
        assert len(log.segments) < before
        assert list(values(log)) == list(range(60, 100))

    @pytest.mark.parametrize("chunk_bytes", [1, 100, 5000, 1 << 20])
    def test_every_offset_is_found_through_the_new_indexes(self, files: ForgetfulFiles, chunk_bytes: int) -> None:
        log = compacted(files, index_interval_bytes=200, segment_bytes=4000)
        for number in range(200):
            put(log, (b"%d" % (number * 7 % 60), b"x" * (number % 50)), time=NOW + number, compression=number % 3)
        seal(log)
        clean(log, chunk_bytes=chunk_bytes)
        kept = sorted(values(log))
        assert max(len(segment.offset_index) for segment in log.segments) > 3
        for offset in range(200):
            found = next((header for header, _ in batches(log) if header.last_offset >= offset), None)
            data = bytes_of(log.reader.read(offset, 1))
            assert (int.from_bytes(data[:8], "big") if data else None) == (found.base_offset if found else None)
        for time in range(200):
            expected = next((offset for offset in kept if offset >= time), None)
            answer = finished(log.search.offset_for_timestamp(NOW + time))
            assert (answer.offset if answer else None) == expected

    def test_groups_end_before_offsets_exceed_the_index_range(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        far = 2**31
        segments = [
            SourceSegment(0, 10, 100, 8, 12, NOW),
            SourceSegment(10, far, 100, 8, 12, NOW),
            SourceSegment(far, far + 5, 100, 8, 12, NOW),
            SourceSegment(far + 5, far + 9, 0, 0, 0, NOW),
        ]
        job = job_of(log)._replace(segments=segments, upper_bound_offset=far + 9)
        assert [[s.base_offset for s in group] for group in group_segments(job, far + 9)] == [[0, 10], [far, far + 5]]

    def test_groups_end_before_an_index_is_full(self, files: ForgetfulFiles) -> None:
        log = compacted(files, segment_index_bytes=36)
        segments = [SourceSegment(number, number + 1, 10, 16, 12, NOW) for number in range(5)]
        job = job_of(log)._replace(segments=segments)
        assert [len(group) for group in group_segments(job, 5)] == [2, 2, 1]

    def test_a_reader_of_a_segment_can_continue_while_it_is_replaced(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        put(log, (b"a", b"1"))
        put(log, (b"a", b"2"))
        seal(log)
        handle = log.segments[0].file.duplicate()
        before = bytes(handle.read(0, 1000))
        clean(log)
        assert bytes(handle.read(0, 1000)) == before
        assert bytes_of(log.reader.read(0, 1000)) != before

    def test_the_new_segment_has_the_modification_time_of_the_last_replaced_one(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        for number in range(3):
            put(log, (b"a", b"%d" % number))
            files.set_modified_ms(log.segments.active.path(".log"), 1000 + number)
            seal(log)
        clean(log)
        assert files.modified_ms(log.segments[0].path(".log")) == 1002

    def test_a_damaged_batch_stops_the_clean_and_nothing_is_replaced(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        put(log, (b"a", b"1"))
        put(log, (b"a", b"2"))
        seal(log)
        path = log.segments[0].path(".log")
        files.content(path)[65] ^= 1
        before = bytes(files.content(path))
        with pytest.raises(UncleanableLog, match="checksum"):
            clean(log)
        assert bytes(files.content(path)) == before
        assert not [name for name in files.list_directory(log.folder.path) if name.endswith(".cleaned")]

    def test_an_abandoned_clean_leaves_no_files(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        for number in range(30):
            put(log, (b"a", b"%d" % number))
        seal(log)
        before = files.list_directory(log.folder.path)
        for count in range(1, 12):
            steps = clean_steps(files, job_of(log, chunk_bytes=200))
            for _ in range(count):
                next(steps)
            steps.close()
            assert files.list_directory(log.folder.path) == before

    def test_a_full_disk_ends_the_clean_and_leaves_the_log_unchanged(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        for number in range(30):
            put(log, (b"%d" % (number % 20), b"x" * 100))
        seal(log)
        before = contents(log)
        files.room = 500
        with pytest.raises(OSError, match="No space"):
            clean(log)
        assert contents(log) == before
        files.room = None
        clean(log)
        assert list(values(log)) == list(range(10, 30))

    def test_a_missing_cleaned_segment_replaces_nothing(self, files: ForgetfulFiles) -> None:
        log = compacted(files)
        put(log, (b"a", b"1"))
        put(log, (b"a", b"2"))
        seal(log)
        with pytest.raises(FileNotFoundError):
            replace_segments(log, 0, [next(iter(log.segments))])
        assert log.folder.failure is None
        assert values(log) == {0: b"1", 1: b"2"}

    @pytest.mark.parametrize("renames", range(12))
    def test_a_failed_replacement_hides_no_records(
        self, files: ForgetfulFiles, monkeypatch: pytest.MonkeyPatch, renames: int
    ) -> None:
        """The disk fails after some renames. What has lost its name cannot be read; nothing seems to be deleted."""
        log = compacted(files)
        for key in (b"a", b"a", b"b"):
            put(log, (key, b"1"))
            seal(log)
        left = [None] * renames
        rename = ForgetfulFiles.rename

        def fail_in_the_end(self: ForgetfulFiles, source: str, target: str) -> None:
            if not left:
                raise OSError(5, "the disk fails")
            left.pop()
            rename(self, source, target)

        with monkeypatch.context() as patch:
            patch.setattr(ForgetfulFiles, "rename", fail_in_the_end)
            with pytest.raises(OSError, match="fails"):
                clean(log)
        assert log.folder.failure is not None
        assert log.segments.base_offsets[0] == 0
        again = open_small(files, options={"clean": False}, cleanup_policy="compact")
        assert set(values(again)) | {0} == {0, 1, 2}

    def test_retention_by_time_deletes_whole_segments_of_a_log_with_compact_and_delete(
        self, files: ForgetfulFiles
    ) -> None:
        clock = ManualClock(wall_ms=NOW)
        log = open_small(files, clock=clock, cleanup_policy="compact,delete", retention_ms=HOUR, segment_bytes=150)
        put(log, (b"a", b"x" * 50), time=NOW - 2 * HOUR)
        put(log, (b"b", b"x" * 50), time=NOW)
        put(log, (b"c", b"x" * 50), time=NOW)
        seal(log)
        log.state.cleaning_begun()
        assert log.apply_retention(NOW) == 0
        log.state.cleaning_ended()
        assert log.apply_retention(NOW) == 1
        clean(log)
        assert list(values(log)) == [1, 2]


def test_a_truncated_log_is_cleaned_again_from_there(files: ForgetfulFiles) -> None:
    log = compacted(files)
    for number in range(6):
        put(log, (b"%d" % number, b"1"))
        seal(log)
    clean(log)
    assert log.state.cleaned_offset == 6
    truncate(log, 3)
    assert log.state.cleaned_offset == 3


def test_the_chunk_size_does_not_change_the_result_of_a_clean() -> None:
    found = []
    for chunk_bytes in (1, 333, 1 << 20):
        source = random.Random(5)
        log = compacted(ForgetfulFiles(), segment_bytes=3000)
        for _ in range(150):
            put(log, *[(b"%d" % source.randrange(30), b"v" * source.randrange(200)) for _ in range(3)])
        seal(log)
        clean(log, chunk_bytes=chunk_bytes)
        found.append(list(batches(log)))
    assert [[(h.pack(), r) for h, r in each] for each in found[1:]] == [[(h.pack(), r) for h, r in found[0]]] * 2
