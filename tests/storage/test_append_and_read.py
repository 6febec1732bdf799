"""What a leader's append stores, and what reads return."""

import pytest

from odradek.broker.background.stepwise import finished
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.plain_batch import build_plain_batch
from odradek.protocol.record_rules import InvalidRecord
from odradek.protocol.record_validation import AppendOrigin
from odradek.protocol.records import BatchHeader, Compression, TimestampType, check_crc, iter_batches, read_records
from odradek.storage.log.log import Log
from odradek.storage.log_offsets import LogOffsetMetadata
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import NOW, append, batch, bytes_of, headers_of, idempotent, open_small


@pytest.fixture
def files() -> ForgetfulFiles:
    return ForgetfulFiles()


def refused(call: object) -> ErrorCode:
    with pytest.raises(ProtocolError) as error:
        call()  # type: ignore[operator]
    return error.value.code


def test_an_append_returns_the_offsets_of_its_records(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log)
    info = log.append_as_leader(batch(b"a", b"b", b"c", timestamps=[NOW, NOW + 7, NOW + 3]), 4, api_version=9)
    assert (info.first_offset, info.last_offset, info.record_count) == (1, 3, 3)
    assert (info.max_timestamp, info.offset_of_max_timestamp, info.log_append_time_ms) == (NOW + 7, 3, -1)
    assert (info.log_start_offset, info.duplicate, info.flush_required, info.rolled) == (0, False, False, False)
    assert info.size_in_bytes == log.segments.size_in_bytes - headers_of(log)[0].size_in_bytes


def test_a_read_returns_the_batch_that_contains_the_offset(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log, batch(b"a", b"b", b"c"))
    append(log, batch(b"d"))
    data = log.reader.read(2, 1 << 20)
    first, second = iter_batches(bytes_of(data))
    assert (first[1].base_offset, second[1].base_offset) == (0, 3)
    assert [record.value for record in read_records(bytes_of(data), *first)] == [b"a", b"b", b"c"]
    assert all(check_crc(bytes_of(data), position, header) for position, header in (first, second))
    assert data.offset_metadata == LogOffsetMetadata(2, 0, 0)


def test_a_read_of_whole_batches_is_cut_between_two_of_them(files: ForgetfulFiles) -> None:
    log = open_small(files, index_interval_bytes=0)
    for _ in range(5):
        append(log, batch(b"v" * 1000))
    size = headers_of(log)[0].size_in_bytes
    assert len(log.reader.read(0, 3 * size + 10).records) == 3 * size + 10
    whole = log.reader.read(0, 3 * size + 10, whole_batches=True)
    assert bytes_of(whole) == bytes_of(log.reader.read(0, 3 * size))
    assert len(log.reader.read(1, 3 * size, whole_batches=True).records) == 3 * size
    assert len(log.reader.read(0, 10, whole_batches=True).records) == size
    assert len(log.reader.read(3, 1 << 20, whole_batches=True).records) == 2 * size


def test_the_leader_epoch_is_in_every_batch_and_after_a_flush_in_the_checkpoint(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log, epoch=3)
    append(log, epoch=5)
    assert [header.partition_leader_epoch for header in headers_of(log)] == [3, 5]
    log.flush()
    assert files.read_file("/data/orders-0/leader-epoch-checkpoint") == b"0\n2\n3 0\n5 1\n"
    assert tuple(log.end_offset_for_epoch(3)) == (3, 1)
    assert tuple(log.end_offset_for_epoch(4)) == (3, 1)
    assert tuple(log.end_offset_for_epoch(5)) == (5, 2)
    assert tuple(log.end_offset_for_epoch(6)) == (-1, -1)


def test_at_least_one_batch_is_read_even_with_a_small_limit(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log, batch(b"x" * 500))
    append(log)
    data = log.reader.read(0, 1, min_one_message=True)
    assert [header.base_offset for _, header in iter_batches(bytes_of(data))] == [0]
    cut = log.reader.read(0, 10, min_one_message=False)
    assert len(cut.records) == 10
    assert cut.first_batch_incomplete
    assert log.reader.read(0, 0, min_one_message=False).records == b""


def test_a_read_stops_at_the_upper_bound(files: ForgetfulFiles) -> None:
    log = open_small(files)
    for _ in range(4):
        append(log)
    log.update_high_watermark(2)
    data = log.reader.read(0, 1 << 20, upper=log.positions.high_watermark)
    assert [header.base_offset for _, header in iter_batches(bytes_of(data))] == [0, 1]
    assert log.reader.read(2, 1 << 20, upper=log.positions.high_watermark).records == b""
    beyond = log.reader.read(3, 1 << 20, upper=log.positions.high_watermark)
    assert beyond.records == b""
    assert beyond.offset_metadata == log.positions.of(3)


@pytest.mark.parametrize("offset", [-1, 4, 100])
def test_an_offset_outside_the_log_is_refused(files: ForgetfulFiles, offset: int) -> None:
    log = open_small(files)
    for _ in range(3):
        append(log)
    assert refused(lambda: log.reader.read(offset, 1)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.reader.read(3, 1).records == b""


def test_every_offset_is_found_in_every_segment_by_index_or_at_the_end(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=2000, index_interval_bytes=200)
    for number in range(120):
        append(log, batch(*[b"x" * (number % 9)] * (1 + number % 4)))
    assert len(log.segments) > 5
    assert all(len(segment.offset_index) > 2 for segment in log.segments[:-1])
    headers = headers_of(log)
    for offset in range(log.state.log_end_offset):
        data = log.reader.read(offset, 1, min_one_message=True)
        found = next(iter_batches(bytes_of(data)))[1]
        assert found.base_offset <= offset <= found.last_offset
    assert sum(header.record_count for header in headers) == log.state.log_end_offset


def test_a_cold_read_is_reported_and_succeeds_once_cached(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=400)
    for _ in range(20):
        append(log)
    path = log.segments[0].path(".log")
    files.cold.add(path)
    data = log.reader.read(0, 1 << 20, may_block=False)
    assert data.records == b""
    assert data.cold is not None
    data.cold.run()
    files.cold.clear()
    again = log.reader.read(0, 1 << 20, may_block=False)
    assert again.cold is None
    assert len(again.records) == log.segments[0].size
    files.cold.add(path)
    assert len(log.reader.read(0, 1 << 20, may_block=True).records) == log.segments[0].size


def test_the_end_of_the_log_is_found_without_reading_the_file(files: ForgetfulFiles) -> None:
    log = open_small(files)
    for _ in range(100):
        append(log)
    files.cold.add(log.segments.active.path(".log"))
    assert log.segments.active.locate(99, may_block=False) is not None
    assert log.segments.active.locate(40, may_block=False) is not None
    assert log.positions.of(100).relative_position == log.segments.size_in_bytes


# ---- rolling


def test_a_segment_rolls_before_a_batch_would_make_it_too_large(files: ForgetfulFiles) -> None:
    size = len(batch(b"x" * 100))
    log = open_small(files, segment_bytes=3 * size)
    for _ in range(7):
        append(log, batch(b"x" * 100))
    assert log.segments.base_offsets == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * size, 3 * size, size]


def test_a_segment_rolls_by_record_timestamps(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_ms=1000)
    append(log, batch(timestamp=NOW))
    append(log, batch(timestamp=NOW + 1000))
    assert log.segments.base_offsets == [0]
    append(log, batch(timestamp=NOW + 1001))
    assert log.segments.base_offsets == [0, 2]


def test_a_segment_without_timestamps_rolls_by_the_clock(files: ForgetfulFiles) -> None:
    clock = ManualClock(wall_ms=NOW)
    log = open_small(files, clock=clock, segment_ms=1000)
    append(log, batch(timestamp=-1))
    clock.advance(1001)
    append(log, batch(timestamp=-1))
    assert log.segments.base_offsets == [0, 1]


def test_a_segment_rolls_when_an_index_is_full(files: ForgetfulFiles) -> None:
    log = open_small(files, index_interval_bytes=0, segment_index_bytes=48)
    for number in range(12):
        append(log, batch(timestamp=NOW + number))
    # 48 bytes are 6 entries of the offset index and 4 of the time index, whose last one is reserved for the roll
    assert all(len(segment.offset_index) <= 6 for segment in log.segments)
    assert all(len(segment.time_index) <= 4 for segment in log.segments)
    assert len(log.segments) == 3


def test_jitter_makes_segments_roll_slightly_earlier(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_ms=1000, segment_jitter_ms=900)
    jitter = log.segments.active.roll_jitter_ms
    assert 0 < jitter < 900
    append(log, batch(timestamp=NOW))
    append(log, batch(timestamp=NOW + 1000 - jitter))
    append(log, batch(timestamp=NOW + 1001 - jitter))
    assert log.segments.base_offsets == [0, 2]


def test_preallocated_segments_are_trimmed_when_they_are_sealed(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=300, preallocate="true")
    assert files.size(log.segments.active.path(".log")) == 300
    for _ in range(6):
        append(log)
    assert files.size(log.segments[0].path(".log")) == log.segments[0].size < 300
    before = headers_of(log)
    log.close()
    again = open_small(files, segment_bytes=300, preallocate="true")
    assert len(headers_of(again)) == len(before)


# ---- refusals and times


def test_a_batch_above_max_message_bytes_is_refused(files: ForgetfulFiles) -> None:
    log = open_small(files, max_message_bytes=150)
    assert refused(lambda: append(log, batch(b"x" * 200))) == ErrorCode.MESSAGE_TOO_LARGE
    assert (log.state.log_end_offset, log.segments.size_in_bytes) == (0, 0)


def test_a_batch_above_the_segment_size_is_refused(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=150)
    assert refused(lambda: append(log, batch(b"x" * 200))) == ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_corrupt_batch_is_refused_and_changes_nothing(files: ForgetfulFiles) -> None:
    log = open_small(files)
    data = bytearray(batch())
    data[-1] ^= 1
    assert refused(lambda: append(log, bytes(data))) == ErrorCode.CORRUPT_MESSAGE
    assert (log.state.log_end_offset, log.segments.size_in_bytes) == (0, 0)


def test_log_append_time_is_the_brokers_time(files: ForgetfulFiles) -> None:
    clock = ManualClock(wall_ms=NOW)
    log = open_small(files, clock=clock, message_timestamp_type="LogAppendTime")
    clock.advance(77)
    info = log.append_as_leader(batch(b"a", b"b", timestamp=5), 0, api_version=9)
    assert (info.log_append_time_ms, info.max_timestamp) == (NOW + 77, NOW + 77)
    (header,) = headers_of(log)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert check_crc(bytes_of(log.reader.read(0, 1 << 20)), 0, header)


def test_a_timestamp_too_far_from_the_clock_is_refused(files: ForgetfulFiles) -> None:
    log = open_small(files, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=50)
    append(log, batch(timestamp=NOW - 1000))
    append(log, batch(timestamp=NOW + 50))
    assert refused(lambda: append(log, batch(timestamp=NOW - 1001))) == ErrorCode.INVALID_TIMESTAMP
    assert refused(lambda: append(log, batch(timestamp=NOW + 51))) == ErrorCode.INVALID_TIMESTAMP
    older = open_small(files, "/data/orders-1", message_timestamp_difference_max_ms=50)
    assert refused(lambda: append(older, batch(timestamp=NOW - 51))) == ErrorCode.INVALID_TIMESTAMP


def test_a_compacted_topic_refuses_records_without_a_key(files: ForgetfulFiles) -> None:
    from odradek.protocol.records import Record, build_batch

    log = open_small(files, cleanup_policy="compact")
    append(log)
    with pytest.raises(InvalidRecord) as error:
        append(log, build_batch([Record(timestamp=NOW, value=b"v")]))
    assert [index for index, _ in error.value.record_errors] == [0]


def test_a_topic_with_its_own_codec_stores_that_codec(files: ForgetfulFiles) -> None:
    log = open_small(files, compression_type="gzip")
    append(log, batch(b"a" * 100, b"b" * 100))
    data = bytes_of(log.reader.read(0, 1 << 20))
    ((position, header),) = iter_batches(data)
    assert header.compression == 1
    assert [record.value for record in read_records(data, position, header)] == [b"a" * 100, b"b" * 100]


def test_new_settings_take_effect_with_the_next_append(files: ForgetfulFiles) -> None:
    from odradek.storage.log_config import LogConfig

    log = open_small(files)
    append(log, batch(b"x" * 300))
    log.update_config(LogConfig({"max.message.bytes": 100}))
    assert refused(lambda: append(log, batch(b"x" * 300))) == ErrorCode.MESSAGE_TOO_LARGE
    log.update_config(LogConfig({"segment.bytes": 500}))
    append(log, batch(b"x" * 300))
    assert log.segments.base_offsets == [0, 1]


# ---- by time


def test_offsets_are_found_by_time_in_all_segments(files: ForgetfulFiles) -> None:
    log = open_small(files, segment_bytes=1000, index_interval_bytes=100)
    times = [NOW + 10 * (number ^ 5) for number in range(100)]  # slightly out of order
    for timestamp in times:
        append(log, batch(timestamp=timestamp))
    for asked in range(NOW - 5, NOW + 1100, 7):
        found = finished(log.search.offset_for_timestamp(asked))
        expected = next((number for number, timestamp in enumerate(times) if timestamp >= asked), None)
        assert (None if found is None else found.offset) == expected, asked
    latest = max(times)
    largest = finished(log.search.offset_for_timestamp(-3))
    assert largest is not None
    assert (largest.timestamp, largest.offset) == (latest, times.index(latest))
    assert finished(log.search.offset_for_timestamp(-2)) == (-1, 0, 0)
    assert finished(log.search.offset_for_timestamp(-1)) == (-1, 100, 0)


def test_a_search_by_time_finds_nothing_in_an_empty_log(files: ForgetfulFiles) -> None:
    log = open_small(files)
    assert finished(log.search.offset_for_timestamp(0)) is None
    assert finished(log.search.offset_for_timestamp(-3)) is None
    assert finished(log.search.offset_for_timestamp(-2)) == (-1, 0, -1)


def test_idempotent_batches_are_read_as_they_were_sent(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log, idempotent(0, b"a", b"b"))
    (header,) = headers_of(log)
    assert (header.producer_id, header.base_sequence, header.last_sequence) == (1, 0, 1)


PLAIN = [(b"key", b"value"), (b"gone", None)]


def plain_append(log: Log) -> tuple[BatchHeader, list[tuple[bytes | None, bytes | None]]]:
    """Returns the stored header of a coordinator's batch, and its keys and values."""
    log.append_as_leader(build_plain_batch([(b"before", b"")], NOW), 4)
    info = log.append_as_leader(build_plain_batch(PLAIN, NOW), 4, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.state.log_end_offset)
    assert (info.first_offset, info.last_offset, info.record_count) == (1, 2, 2)
    data = bytes_of(log.reader.read(1, 1 << 20))
    ((position, header),) = iter_batches(data)
    assert check_crc(data, position, header)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 4)
    return header, [(record.key, record.value) for record in read_records(data, position, header)]


@pytest.mark.parametrize("codec", ["producer", "uncompressed", "gzip"])
def test_a_coordinators_batch_is_stored_in_the_topics_codec(files: ForgetfulFiles, codec: str) -> None:
    header, stored = plain_append(open_small(files, compression_type=codec, cleanup_policy="compact"))
    assert stored == PLAIN
    assert header.compression == (Compression.GZIP if codec == "gzip" else Compression.NONE)
    assert header.max_timestamp == NOW


def test_a_coordinators_batch_gets_log_append_time_if_the_topic_uses_it(files: ForgetfulFiles) -> None:
    clock = ManualClock(wall_ms=NOW + 99)
    log = open_small(files, clock=clock, message_timestamp_type="LogAppendTime")
    header, stored = plain_append(log)
    assert stored == PLAIN
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == NOW + 99


def test_a_coordinators_batch_above_the_topics_limit_is_refused(files: ForgetfulFiles) -> None:
    log = open_small(files, max_message_bytes=1000)
    large = build_plain_batch([(b"k", bytes(1000))], NOW)
    assert refused(lambda: log.append_as_leader(large, 4)) is ErrorCode.MESSAGE_TOO_LARGE
    assert log.state.log_end_offset == 0
