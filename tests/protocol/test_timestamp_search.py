"""The search for a time within one batch, in pieces of any size."""

import random
from typing import Any

import pytest

from odradek.protocol.batch_header import BATCH_OVERHEAD, BatchHeader, TimestampType, read_batch_header
from odradek.protocol.record import MalformedRecord, Record
from odradek.protocol.records import build_batch
from odradek.protocol.timestamp_search import TimestampSearch

NOW = 1_700_000_000_000


def found_in(body: bytes, header: BatchHeader, timestamp: int, offset: int, sizes: Any) -> tuple[int, int] | None:
    search = TimestampSearch(header, timestamp, offset)
    position = 0
    while position < len(body) and not search.has_ended:
        size = sizes()
        search.take(body[position : position + size])
        position += size
    search.finish()
    return search.found


def batch_of(records: list[Record], **options: Any) -> tuple[bytes, BatchHeader]:
    batch = build_batch(records, base_offset=records[0].offset, **options)
    return batch[BATCH_OVERHEAD:], read_batch_header(batch)


def random_records(chance: random.Random) -> list[Record]:
    offset = chance.randrange(1 << 40)
    records = []
    for _ in range(chance.randrange(1, 30)):
        timestamp = NOW + chance.choice([0, 1, -1, 63, -64, 64, 8191, -8193, 1 << 31, -NOW, 1 << 61, -(1 << 61)])
        value = bytes(chance.choice([0, 1, 5, 200, 70_000]))
        records.append(Record(offset, timestamp, chance.choice([None, b"key"]), value, [("name", b"x")]))
        offset += chance.choice([1, 1, 2, 70, 9000])
    return records


def test_the_search_finds_the_same_record_as_a_full_scan() -> None:
    chance = random.Random(7)
    for _ in range(300):
        records = random_records(chance)
        body, header = batch_of(records)
        asked = chance.choice(records).timestamp + chance.choice([0, 0, 1, -1])
        start = chance.choice(records).offset + chance.choice([0, 0, 1, -1])
        expected = next(
            ((one.timestamp, one.offset) for one in records if one.timestamp >= asked and one.offset >= start), None
        )
        small = (lambda: 1, lambda: chance.randrange(1, 40)) if len(body) < 2000 else ()
        for sizes in (lambda: 1 << 30, lambda: 65_536, *small):
            assert found_in(body, header, asked, start, sizes) == expected


@pytest.mark.parametrize(("asked", "expected"), [(NOW, (NOW, 6)), (NOW + 1, None)])
def test_all_records_of_a_batch_with_log_append_time_have_that_time(asked: int, expected: Any) -> None:
    records = [Record(offset, 5) for offset in range(4, 9)]
    body, header = batch_of(records, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=NOW)
    assert found_in(body, header, asked, 6, lambda: 7) == expected


def test_the_search_ends_at_the_record_that_it_finds() -> None:
    body, header = batch_of([Record(offset, NOW + offset, None, b"value") for offset in range(1000)])
    search = TimestampSearch(header, NOW + 3, 0)
    search.take(body[:100])
    assert search.has_ended
    assert search.found == (NOW + 3, 3)
    search.finish()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x0c\x00",
        b"\x02\x00\x00\x00\x01\x01\x00",
        b"\x01" + bytes(30),
        b"\xff" * 30,
    ],
    ids=["empty", "cut", "shorter than its fields", "a negative length", "a varint too long"],
)
@pytest.mark.parametrize("size", [1, 100])
def test_truncated_or_malformed_records_are_an_error(body: bytes, size: int) -> None:
    _, header = batch_of([Record(0, NOW)])
    with pytest.raises(MalformedRecord):
        found_in(body, header, NOW + 1, 0, lambda: size)
