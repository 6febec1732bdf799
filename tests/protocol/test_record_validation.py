"""The leader's validation rules one by one, with batches built here."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from crc32c import crc32c

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import (
    AppendOrigin,
    BatchHeader,
    BatchValidation,
    Compression,
    ControlType,
    InvalidRecord,
    Record,
    TimestampType,
    ValidatedBatch,
    build_batch,
    build_end_transaction_marker,
    check_crc,
    read_batch_header,
    read_records,
)
from tests.protocol.record_vectors import record_vectors
from tests.protocol.validated_batches import validate_for_append, validate_step_by_step

NOW = 1_700_000_000_000
CODECS = list(Compression)
ids = [codec.name.lower() for codec in CODECS]


def three(codec: Compression = Compression.NONE, *, first_time: int = NOW, **header: Any) -> bytes:
    records = [Record(index, first_time + index, b"k%d" % index, b"v" * 50, [("h", b"x")]) for index in range(3)]
    return build_batch(records, compression=codec, **header)


def validate(records: bytes, **settings: object) -> ValidatedBatch:
    arguments = {"offset": 100, "now_ms": NOW, "partition_leader_epoch": 4, **settings}
    return validate_for_append(records, **arguments)  # type: ignore[arg-type]


def refusal_of(records: bytes, **settings: object) -> ProtocolError:
    with pytest.raises(ProtocolError) as refusal:
        validate(records, **settings)
    return refusal.value


def stored_records(batch: ValidatedBatch) -> tuple[BatchHeader, list[Record]]:
    data = batch.to_bytes()
    header = read_batch_header(data)
    assert check_crc(data, 0, header)
    assert header.pack() == batch.header.pack()
    assert len(data) == batch.size_in_bytes
    return header, read_records(data, 0, header)


@pytest.mark.parametrize("codec", CODECS, ids=ids)
def test_offset_and_epoch_are_assigned_without_touching_the_records(codec: Compression) -> None:
    records = three(codec)
    batch = validate(records)
    header, stored = stored_records(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (100, 4)
    assert [record.offset for record in stored] == [100, 101, 102]
    assert (batch.max_timestamp, batch.offset_of_max_timestamp) == (NOW + 2, 102)
    assert header.crc == read_batch_header(records).crc
    body = batch.parts[-1]
    assert isinstance(body, memoryview)
    assert body.obj is records


@pytest.mark.parametrize("codec", CODECS, ids=ids)
@pytest.mark.parametrize("target", [*CODECS, "producer"], ids=[*ids, "producer"])
@pytest.mark.parametrize("timestamp_type", list(TimestampType), ids=["create", "append"])
def test_a_topic_with_its_own_codec_recompresses_batches(
    codec: Compression, target: Compression | str, timestamp_type: TimestampType
) -> None:
    """Compares decoded contents, because the bytes depend on the compressor."""
    records = three(codec, producer_id=9, producer_epoch=1, base_sequence=5)
    name = target if isinstance(target, str) else "uncompressed" if target == 0 else target.name.lower()
    batch = validate(records, target_compression=name, timestamp_type=timestamp_type, now_ms=NOW + 9)
    header, stored = stored_records(batch)
    appended = timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.compression == (codec if isinstance(target, str) else target)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (9, 1, 5, 3)
    assert header.timestamp_type is timestamp_type
    assert [record.offset for record in stored] == [100, 101, 102]
    assert [record.timestamp for record in stored] == [NOW + 9 if appended else NOW + index for index in range(3)]
    assert [(record.key, record.value, record.headers) for record in stored] == [
        (b"k%d" % index, b"v" * 50, [("h", b"x")]) for index in range(3)
    ]
    assert batch.source_compression == codec
    assert batch.log_append_time_ms == (NOW + 9 if appended else -1)
    assert batch.max_timestamp == (NOW + 9 if appended else NOW + 2)


def test_repeated_offset_deltas_are_renumbered_on_recompression() -> None:
    vector = next(vector for vector in record_vectors("broken") if vector["name"] == "offset_deltas_same")
    batch = validate(bytes.fromhex(vector["hex"]), target_compression="gzip")
    _, stored = stored_records(batch)
    assert [record.offset for record in stored] == [100, 101, 102]


def test_a_batch_that_is_too_large_after_recompression_is_refused() -> None:
    records = build_batch([Record(0, NOW, b"k", b"v" * 5000)], compression=Compression.GZIP)
    assert refusal_of(records, target_compression="uncompressed", max_batch_bytes=1000).code == 10
    assert validate(records, max_batch_bytes=1000).size_in_bytes < 1000


def test_the_size_limit_of_a_batch_includes_its_header() -> None:
    records = three()
    assert validate(records, max_batch_bytes=len(records)).size_in_bytes == len(records)
    assert refusal_of(records, max_batch_bytes=len(records) - 1).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS, ids=ids)
def test_records_too_old_or_too_new_are_named(codec: Compression) -> None:
    times = [NOW, NOW - 1001, -1, NOW + 501, NOW - 1000, NOW + 500]
    records = build_batch([Record(index, time) for index, time in enumerate(times)], compression=codec)
    refusal = refusal_of(records, timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    assert isinstance(refusal, InvalidRecord)
    assert refusal.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [1, 3]
    assert str(NOW - 1001) in refusal.record_errors[0][1]
    assert (
        validate(records, timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_before_max_ms=0).max_timestamp == NOW
    )


@pytest.mark.parametrize("codec", CODECS, ids=ids)
def test_a_compacted_topic_names_the_records_without_keys(codec: Compression) -> None:
    keys = [b"a", None, b"", None]
    records = build_batch([Record(index, NOW, key) for index, key in enumerate(keys)], compression=codec)
    refusal = refusal_of(records, compacted=True)
    assert isinstance(refusal, InvalidRecord)
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refusal.record_errors] == [1, 3]
    assert validate(records).header.record_count == 4


def test_at_most_a_thousand_invalid_records_are_named() -> None:
    records = build_batch([Record(index, NOW) for index in range(3000)])
    refusal = refusal_of(records, compacted=True)
    assert isinstance(refusal, InvalidRecord)
    assert [index for index, _ in refusal.record_errors] == list(range(1000))


def test_a_missing_key_and_a_bad_timestamp_in_one_batch_are_both_named() -> None:
    records = build_batch([Record(0, NOW), Record(1, NOW - 10, b"k"), Record(2, NOW, b"k")])
    refusal = refusal_of(records, compacted=True, timestamp_before_max_ms=5)
    assert isinstance(refusal, InvalidRecord)
    assert refusal.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [0, 1]


@pytest.mark.parametrize("codec", CODECS, ids=ids)
def test_a_client_may_not_set_log_append_time(codec: Compression) -> None:
    records = [Record(index, NOW) for index in range(3)]
    batch = build_batch(
        records, compression=codec, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=NOW - 7
    )
    refusal = refusal_of(batch, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert isinstance(refusal, InvalidRecord)
    assert refusal.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [0, 1, 2]
    cleared = validate(batch)
    assert (cleared.header.timestamp_type, cleared.max_timestamp) == (TimestampType.CREATE_TIME, NOW - 7)
    assert refusal_of(batch, timestamp_before_max_ms=6).code is ErrorCode.INVALID_TIMESTAMP


def test_a_wrong_maximum_timestamp_is_corrected() -> None:
    records = build_batch([Record(0, NOW), Record(1, NOW - 5)], max_timestamp=NOW + 999)
    batch = validate(records)
    header, _ = stored_records(batch)
    assert header.max_timestamp == batch.max_timestamp == NOW


def test_a_batch_without_timestamps_has_no_entry_for_the_time_index() -> None:
    batch = validate(build_batch([Record(0), Record(1)]))
    assert (batch.max_timestamp, batch.offset_of_max_timestamp) == (-1, -1)


def test_timestamps_beyond_64_bits_are_refused() -> None:
    """Kafka stores them wrapped around; no clock returns such times."""
    last = (1 << 63) - 1
    assert validate(build_batch([Record(0, last), Record(1, 0)])).max_timestamp == last
    refusal = refusal_of(build_batch([Record(0, last), Record(1, -last + 5)]))
    assert isinstance(refusal, InvalidRecord)
    assert refusal.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [1]


def test_only_zstd_needs_produce_7() -> None:
    for version in (3, 6):
        assert refusal_of(three(Compression.ZSTD), api_version=version).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert validate(three(Compression.LZ4), api_version=version).header.record_count == 3
    assert validate(three(Compression.ZSTD), api_version=7).header.record_count == 3


def test_coordinators_may_append_what_clients_may_not() -> None:
    marker = build_end_transaction_marker(
        ControlType.COMMIT, timestamp=NOW, producer_id=7, producer_epoch=0, coordinator_epoch=3, base_offset=55
    )
    assert refusal_of(marker).code is ErrorCode.INVALID_RECORD
    batch = validate(marker, origin=AppendOrigin.COORDINATOR, target_compression="gzip")
    header, stored = stored_records(batch)
    assert (header.is_control, header.compression, stored[0].offset) == (True, Compression.NONE, 100)


def test_a_raft_leader_appends_only_in_its_own_epoch() -> None:
    records = three(partition_leader_epoch=4)
    assert validate(records, origin=AppendOrigin.RAFT_LEADER).header.partition_leader_epoch == 4
    refusal = refusal_of(records, origin=AppendOrigin.RAFT_LEADER, partition_leader_epoch=5)
    assert refusal.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS[1:], ids=ids[1:])
def test_a_batch_that_inflates_beyond_the_limit_is_refused_before_it_is_in_memory(codec: Compression) -> None:
    limit = 4 * 1024 * 1024
    settings = {"now_ms": NOW, "partition_leader_epoch": 0, "max_decompressed_bytes": limit, "max_batch_bytes": limit}
    whole, bomb = (
        build_batch([Record(0, NOW, None, bytes(size))], compression=codec) for size in (limit - 100, 10 * limit)
    )

    def at_once(batch: bytes) -> ValidatedBatch:
        return BatchValidation(batch, **settings).at_once()  # type: ignore[arg-type]

    def step_by_step(batch: bytes) -> ValidatedBatch:
        return validate_step_by_step(batch, 1000, settings, 512 * 1024)

    for validate_it, most in ((at_once, 1.3 * limit + 1024 * 1024), (step_by_step, 2 * 1024 * 1024)):
        assert validate_it(whole).header.record_count == 1
        tracemalloc.start()
        with pytest.raises(ProtocolError) as refusal:
            validate_it(bomb)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert peak < most


@pytest.mark.parametrize("part_bytes", [100, 1000, 1 << 20])
@pytest.mark.parametrize("codec", CODECS, ids=ids)
def test_a_record_that_inflates_beyond_the_limit_is_refused(codec: Compression, part_bytes: int) -> None:
    """Its length is that of Kafka's first field: seven bytes and the value, whose length takes three."""
    sizes = (10, 70_000, 300)
    batch = build_batch([Record(index, NOW, None, bytes(size)) for index, size in enumerate(sizes)], compression=codec)
    for limit, is_accepted in ((70_008, True), (70_007, codec is Compression.NONE)):
        settings = {"now_ms": NOW, "partition_leader_epoch": 0, "max_record_bytes": limit}
        for validate_it in (
            lambda: BatchValidation(batch, **settings).at_once(),  # type: ignore[arg-type] # noqa: B023
            lambda: validate_step_by_step(batch, 1000, settings, part_bytes),  # noqa: B023
        ):
            if is_accepted:
                assert validate_it().header.record_count == len(sizes)
                continue
            with pytest.raises(InvalidRecord, match="a record of 70008 bytes exceeds the limit of 70007"):
                validate_it()


@pytest.mark.parametrize("codec", CODECS, ids=ids)
def test_a_batch_cut_at_any_byte_is_refused(codec: Compression) -> None:
    records = three(codec)
    for cut in range(len(records)):
        assert refusal_of(records[:cut]).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS[1:], ids=ids[1:])
def test_a_stream_cut_at_any_byte_is_refused(codec: Compression) -> None:
    """The lengths and the checksum are adjusted: only the stream itself is truncated."""
    body = three(codec)[61:]
    header = read_batch_header(three(codec))
    for cut in range(len(body)):
        assert refusal_of(with_body(header, body[:cut])).code is ErrorCode.INVALID_RECORD, cut


def with_body(header: BatchHeader, body: bytes) -> bytes:
    header.batch_length = 49 + len(body)
    header.crc = crc32c(header.pack()[21:] + body)
    return header.pack() + body
