"""Batches of the coordinators: the direct builder gives the bytes of the general one."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.protocol.control_records import ControlType, Marker
from odradek.protocol.plain_batch import build_plain_batch, build_plain_marker
from odradek.protocol.record import Record
from odradek.protocol.records import (
    build_batch,
    build_end_transaction_marker,
    read_batch_header,
    read_records,
)
from tests.protocol.validated_batches import validate_for_append

SIZES = (0, 1, 20, 50, 63, 64, 65, 8000, 8191, 8192, 8193, 20_000, 1_100_000)


def expected(records: Sequence[tuple[bytes, bytes | None]], time_ms: int, **producer: Any) -> bytes:
    made = [Record(offset, time_ms, key, value) for offset, (key, value) in enumerate(records)]
    return build_batch(made, is_transactional="producer_id" in producer, **producer)


@pytest.mark.parametrize("size", SIZES)
def test_a_plain_batch_has_the_bytes_of_the_general_builder(size: int) -> None:
    records = [(bytes(size), b"value"), (b"key", bytes(size)), (bytes(size), None), (bytes(size), bytes(size))]
    assert build_plain_batch(records, 1_700_000_000_000).to_bytes() == expected(records, 1_700_000_000_000)


def test_a_plain_batch_of_many_records_has_the_bytes_of_the_general_builder() -> None:
    source = random.Random(8)
    for count in (1, 2, 63, 64, 65, 300, 9000):
        records = [
            (source.randbytes(source.randrange(90)), source.choice([None, source.randbytes(source.randrange(90))]))
            for _ in range(count)
        ]
        assert build_plain_batch(records, 5).to_bytes() == expected(records, 5)


def test_a_plain_batch_with_a_producer_is_transactional() -> None:
    records = [(b"k", b"v")]
    built = build_plain_batch(records, 7, 4000, 3, 0).to_bytes()
    assert built == expected(records, 7, producer_id=4000, producer_epoch=3, base_sequence=0)
    assert read_batch_header(built).is_transactional


@pytest.mark.parametrize("aborted", [False, True])
@pytest.mark.parametrize("coordinator_epoch", [0, 7, 2**31 - 1])
def test_a_plain_marker_has_the_bytes_of_the_general_builder(aborted: bool, coordinator_epoch: int) -> None:
    built = build_plain_marker(Marker(aborted, coordinator_epoch, 1_700_000_000_000), 4000, 3)
    assert built.to_bytes() == build_end_transaction_marker(
        ControlType.ABORT if aborted else ControlType.COMMIT,
        timestamp=1_700_000_000_000,
        producer_id=4000,
        producer_epoch=3,
        coordinator_epoch=coordinator_epoch,
    )


def test_a_placed_plain_batch_has_the_bytes_that_validation_produces() -> None:
    records = [(b"k", b"v"), (b"k", None)]
    built = build_plain_batch(records, 7)
    validated = validate_for_append(built.to_bytes(), offset=12_345, now_ms=7, partition_leader_epoch=6)
    placed = built.placed(12_345, 6)
    stored = placed.to_bytes()
    assert stored == validated.to_bytes()
    assert len(stored) == placed.size_in_bytes == validated.size_in_bytes
    assert placed.max_timestamp == validated.max_timestamp == 7
    assert placed.offset_of_max_timestamp == validated.offset_of_max_timestamp == 12_346
    assert [record.offset for record in read_records(stored, 0, read_batch_header(stored))] == [12_345, 12_346]


def test_a_placed_batch_leaves_no_memory_behind() -> None:
    def place(count: int) -> int:
        for offset in range(count):
            build_plain_batch([(b"key", b"value")], 1).placed(offset, 1)
            build_plain_batch([(b"key", b"value")], 1).to_bytes()
        return sys.getallocatedblocks()

    place(100)
    before = place(100)
    assert place(1000) - before < 100
