"""How Kafka's leader stored batches, and how its broker answered: ours must store and answer the same.

DEPARTURES lists where our answer differs, and why; a departure that no longer exists is an error.
"""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import (
    Compression,
    InvalidRecord,
    TimestampType,
    ValidatedBatch,
    has_transactional_batch,
    iter_batches,
    read_batch_header,
    read_records,
)
from tests.protocol.record_vectors import names_of, record_vectors
from tests.protocol.validated_batches import validate_for_append

STORED = record_vectors("stored")
ANSWERED = [*record_vectors("other_writers"), *record_vectors("broken")]
TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}

OLD_FORMAT = "message formats 0 and 1 are neither stored nor converted: 35 below Produce 3, whatever is in them"
BOMB = "what inflates beyond 128 MiB is refused; Kafka's limits count compressed bytes only"
STREAM = "Kafka answers -1 for a stream that its codec cannot inflate; 87 is as final and says why"
FIRST_MEMBER = (
    "librdkafka reads the first member only: it loses the others' records, waits for them or ends its process"
)
NULL = "librdkafka knows no null but -1, and waits forever at such a record"
# name: (our code, why). Departures for formats 0 and 1 in Produce 0-2 follow from a rule.
DEPARTURES: dict[str, tuple[int, str]] = {
    **dict.fromkeys(
        (
            "snappy_framing_format",
            "lz4_linked_blocks_large",
            "lz4_skippable_frame_first",
            "lz4_wrong_header_checksum",
            "lz4_without_end_mark",
            "gzip_is_zlib_instead",
            "gzip_without_trailer",
            "gzip_wrong_trailer",
            "gzip_payload_is_not_compressed",
            "gzip_payload_is_noise",
            "gzip_payload_is_empty",
            "gzip_stream_cut",
            "snappy_payload_is_not_compressed",
            "snappy_payload_is_noise",
            "snappy_payload_is_empty",
            "snappy_stream_cut",
            "lz4_payload_is_not_compressed",
            "lz4_payload_is_noise",
            "lz4_payload_is_empty",
            "lz4_stream_cut",
            "zstd_payload_is_not_compressed",
            "zstd_payload_is_noise",
            "zstd_stream_cut",
        ),
        (87, STREAM),
    ),
    **dict.fromkeys(("codec_5", "codec_6", "codec_7"), (87, "Kafka answers -1 for a codec that does not exist")),
    "gzip_two_members": (87, FIRST_MEMBER),
    **dict.fromkeys(
        ("record_key_length_minus_2", "record_value_length_minus_5", "record_header_value_length_minus_2"), (87, NULL)
    ),
    "length_2147483647_instead_of_94": (87, "Kafka's sum overflows (-1); here it is a batch that is cut"),
    "record_length_varint_of_six_bytes": (87, "Kafka answers -1 where the varint of a length is too long"),
    "record_length_varint_without_end": (87, "Kafka answers -1 where the varint of a length is cut"),
    "gzip_offset_deltas_with_gaps": (87, "Kafka tries to renumber records that it has not kept, and answers -1"),
    "producer_epoch_minus_2": (0, "the epoch (47) is for the log's producer state to judge, not for validation"),
    "gzip_bomb_one_record_of_200_mib": (10, BOMB),
    "gzip_bomb_20_million_records": (10, BOMB),
    "gzip_bomb_behind_one_record": (10, BOMB),
    "zstd_bomb_one_record_of_200_mib": (10, BOMB),
    "zstd_bomb_20_million_records": (10, BOMB),
    "zstd_bomb_behind_one_record": (10, BOMB),
}
UNKNOWN_MAGIC = ("magic_3", "magic_4", "magic_127", "magic_-1")


def departure(vector: dict[str, Any], version: int) -> tuple[int, str] | None:
    name = vector["name"]
    if name.startswith(("magic0", "magic1")) and not name.startswith(UNKNOWN_MAGIC) and version < 3:
        return 35, OLD_FORMAT
    found = DEPARTURES.get(name)
    if found is not None and name.startswith("zstd") and version < 7:
        return None
    return found


def answer(records: bytes, version: int, *, compacted: bool) -> tuple[int, list[int], ValidatedBatch | None]:
    """The error code, the invalid records and the stored bytes of a Produce without transactional id."""
    if has_transactional_batch(records):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, [], None
    try:
        batch = validate_for_append(
            records,
            offset=0,
            now_ms=1_800_000_000_000,
            partition_leader_epoch=0,
            compacted=compacted,
            api_version=version,
        )
    except InvalidRecord as refusal:
        return refusal.code, [index for index, _ in refusal.record_errors], None
    except ProtocolError as refusal:
        return refusal.code, [], None
    return 0, [], batch


@pytest.mark.parametrize("vector", ANSWERED, ids=names_of(ANSWERED))
@pytest.mark.parametrize("kind", ["broker", "brokerCompactedTopic"])
def test_a_produce_request_is_answered_as_by_kafka(vector: dict[str, Any], kind: str) -> None:
    records = bytes.fromhex(vector["hex"])
    for expected in vector.get(kind, ()):
        version = expected["version"]
        code, at_fault, batch = answer(records, version, compacted=kind == "brokerCompactedTopic")
        other = departure(vector, version)
        if other is not None:
            assert code == other[0] != expected["ErrorCode"], other[1]
            continue
        assert code == expected["ErrorCode"]
        assert at_fault == [error["BatchIndex"] for error in expected.get("RecordErrors") or ()]
        if batch is not None:
            stored = batch.to_bytes()
            if "stored" in expected:  # the vectors omit large ones
                assert stored.hex() == expected["stored"]
            assert batch.header.next_offset == expected["highWatermark"]
            assert batch.size_in_bytes == len(stored)


def test_every_departure_refers_to_an_existing_vector() -> None:
    assert set(DEPARTURES) <= set(names_of(ANSWERED))


def test_batches_of_other_clients_are_decoded_to_the_same_records_as_by_kafka() -> None:
    read = 0
    for vector in record_vectors("other_writers"):
        expected = vector["java"]["records"].get("result")
        records = bytes.fromhex(vector["hex"])
        if expected is not None:
            read += 1
            assert sum(header.record_count for _, header in iter_batches(records)) == int(expected), vector["name"]
            assert len(read_records(records, 0, read_batch_header(records))) == int(expected), vector["name"]
        else:
            with pytest.raises(ProtocolError):
                read_records(records, 0, read_batch_header(records))
    assert read == 35


@pytest.mark.parametrize("vector", STORED, ids=names_of(STORED))
def test_the_leader_stores_the_same_bytes_as_kafkas_leader(vector: dict[str, Any]) -> None:
    """Byte for byte: none of them is recompressed."""
    records = bytes.fromhex(vector["hex"])
    for case in vector["stored"]:
        arguments = {
            "offset": case["firstOffset"],
            "now_ms": case["now"],
            "partition_leader_epoch": case["partitionLeaderEpoch"],
            "timestamp_type": TIMESTAMP_TYPES[case["messageTimestampType"]],
        }
        expected = case["outcome"].get("result")
        if expected is None or vector["name"].startswith("magic"):
            with pytest.raises(InvalidRecord) as refusal:
                validate_for_append(records, **arguments)
            late = "InvalidTimestampException" in case["outcome"].get("cause", "")
            assert refusal.value.code is (
                ErrorCode.INVALID_TIMESTAMP
                if late and not vector["name"].startswith("magic")
                else ErrorCode.INVALID_RECORD
            )
            continue
        batch = validate_for_append(records, **arguments)
        assert batch.to_bytes().hex() == expected["hex"]
        assert batch.max_timestamp == expected["maxTimestampMs"]
        assert batch.header.last_offset == expected["lastOffset"]
        appended = case["now"] if case["messageTimestampType"] == "LogAppendTime" else -1
        assert batch.log_append_time_ms == appended
        assert batch.source_compression == Compression(read_batch_header(records).compression)
        assert read_batch_header(batch.to_bytes()).pack() == batch.header.pack()
