"""Batches of Kafka's own builder: decoded to the same records, and built to the same bytes."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import (
    BATCH_OVERHEAD,
    Compression,
    ControlType,
    CorruptBatch,
    Record,
    TimestampType,
    UnsupportedMessageFormat,
    build_batch,
    build_end_transaction_marker,
    check_crc,
    increment_sequence,
    iter_batches,
    read_batch_header,
    read_records,
)
from tests.protocol.record_vectors import as_documents, names_of, record_of, record_vectors

ALL = record_vectors("batches")
FORMAT_2 = [vector for vector in ALL if not vector["name"].startswith("magic")]
OLD_FORMATS = [vector for vector in ALL if vector["name"].startswith("magic")]
CANONICAL = [vector for vector in FORMAT_2 if vector["canonical"] and vector["batches"]]
CONTROL = [vector for vector in CANONICAL if vector["name"].startswith(("control_commit", "control_abort"))]

TIME = 1_700_000_000_000


def test_every_vector_is_present() -> None:
    assert (len(FORMAT_2), len(OLD_FORMATS), len(CANONICAL)) == (145, 12, 65)


@pytest.mark.parametrize("vector", FORMAT_2, ids=names_of(FORMAT_2))
def test_batches_of_kafka_are_decoded_to_the_same_documents(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    expected = [{key: value for key, value in batch.items() if key != "crcOk"} for batch in vector["batches"]]
    assert as_documents(data) == expected
    assert sum(header.size_in_bytes for _, header in iter_batches(data)) == vector["validBytes"]


@pytest.mark.parametrize("vector", CANONICAL, ids=names_of(CANONICAL))
def test_canonical_batches_are_built_to_the_same_bytes(vector: dict[str, Any]) -> None:
    (batch,) = vector["batches"]
    built = build_batch(
        [record_of(record) for record in batch["records"]],
        base_offset=batch["baseOffset"],
        producer_id=batch["producerId"],
        producer_epoch=batch["producerEpoch"],
        base_sequence=batch["baseSequence"],
        partition_leader_epoch=batch["partitionLeaderEpoch"],
        is_transactional=batch["isTransactional"],
        is_control=batch["isControl"],
        delete_horizon_ms=batch["deleteHorizonMs"],
        max_timestamp=batch["rawMaxTimestamp"] if not batch["records"] else None,
        last_offset_delta=batch["lastOffsetDelta"],
    )
    assert built.hex() == vector["hex"]


@pytest.mark.parametrize("vector", CONTROL, ids=names_of(CONTROL))
def test_transaction_markers_are_built_to_the_same_bytes(vector: dict[str, Any]) -> None:
    (batch,) = vector["batches"]
    (record,) = batch["records"]
    built = build_end_transaction_marker(
        ControlType[record["controlType"]],
        timestamp=record["timestamp"],
        producer_id=batch["producerId"],
        producer_epoch=batch["producerEpoch"],
        coordinator_epoch=record["coordinatorEpoch"],
        base_offset=batch["baseOffset"],
        partition_leader_epoch=batch["partitionLeaderEpoch"],
    )
    assert built.hex() == vector["hex"]


@pytest.mark.parametrize("vector", OLD_FORMATS, ids=names_of(OLD_FORMATS))
def test_message_sets_of_formats_0_and_1_are_refused_by_name(vector: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedMessageFormat) as refusal:
        list(iter_batches(bytes.fromhex(vector["hex"])))
    assert refusal.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert refusal.value.magic == int(vector["name"][5])


@pytest.mark.parametrize("vector", FORMAT_2, ids=names_of(FORMAT_2))
def test_a_truncated_batch_is_left_out_and_never_decoded(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    ends = [position + header.size_in_bytes for position, header in iter_batches(data)]
    step = max(1, len(data) // 300)
    for cut in range(0, len(data), step):
        whole = [position + header.size_in_bytes for position, header in iter_batches(data[:cut])]
        assert whole == [end for end in ends if end <= cut]
    for cut in range(BATCH_OVERHEAD, ends[0] if ends else 0, step):
        header = read_batch_header(data)
        assert not check_crc(data[:cut], 0, header)
        with pytest.raises(CorruptBatch):
            read_records(data[:cut], 0, header)


@pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name.lower())
def test_a_batch_of_each_codec_is_read_back_unchanged(codec: Compression) -> None:
    records = [
        Record(7 + index, TIME + index, b"key" * index, b"v" * index * 999, [("h", None)]) for index in range(80)
    ]
    batch = build_batch(records, base_offset=7, compression=codec, timestamp_type=TimestampType.CREATE_TIME)
    header = read_batch_header(batch)
    assert header.compression == codec
    assert check_crc(batch, 0, header)
    assert read_records(batch, 0, header) == records


def test_a_batch_is_found_after_other_bytes() -> None:
    batch = build_batch([Record(3, TIME, b"k", b"v")], base_offset=3)
    data = b"\xff" * 100 + batch
    header = read_batch_header(data, 100)
    assert check_crc(data, 100, header)
    assert read_records(memoryview(data), 100, header) == [Record(3, TIME, b"k", b"v")]


def test_a_flipped_bit_anywhere_after_the_checksum_is_detected() -> None:
    batch = build_batch([Record(0, TIME, b"k", b"v")])
    for position in range(17, len(batch)):
        flipped = bytearray(batch)
        flipped[position] ^= 1
        assert not check_crc(flipped, 0, read_batch_header(flipped)), position


def test_timestamps_63_bits_apart_are_read_back() -> None:
    records = [Record(0, -1), Record(1, (1 << 63) - 1), Record(2, 5)]
    batch = build_batch(records)
    assert [record.timestamp for record in read_records(batch, 0, read_batch_header(batch))] == [-1, (1 << 63) - 1, 5]


def test_sequences_continue_at_0_after_the_largest_int32() -> None:
    assert increment_sequence(2_147_483_646, 1) == 2_147_483_647
    assert increment_sequence(2_147_483_647, 1) == 0
    assert increment_sequence(2_147_483_647, 5) == 4


def test_more_records_than_the_header_counts_are_refused() -> None:
    batch = build_batch([Record(0, TIME), Record(1, TIME)])
    header = read_batch_header(batch)
    for count in (-1, 1, 3, 2_147_483_647):
        header.record_count = count
        with pytest.raises(ProtocolError) as refusal:
            read_records(batch, 0, header)
        assert refusal.value.code is ErrorCode.INVALID_RECORD


def test_a_header_has_a_readable_repr() -> None:
    _, header = next(iter_batches(build_batch([Record(0, 7, b"k", b"v")], base_offset=5)))
    assert repr(header).startswith("BatchHeader(base_offset=5, batch_length=")
    assert repr(header).endswith("producer_id=-1, producer_epoch=-1, base_sequence=-1, record_count=1)")
