"""The results of Kafka's filter for batches, compared byte for byte (tests/vectors/records/compacted.jsonl)."""

import json
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.batch_header import FIELDS
from odradek.protocol.records import Record, iter_batches, read_records
from odradek.storage.cleaner.batches import BatchFilter
from odradek.storage.cleaner.job import ActiveProducer, CleanJob, CleanStats
from odradek.storage.cleaner.transactions import CleanedTransactions

FILE = Path(__file__).parents[2] / "vectors" / "records" / "compacted.jsonl"
VECTORS = [json.loads(line) for line in FILE.read_text().splitlines()]


def job(vector: dict[str, Any], first_dirty_offset: int) -> CleanJob:
    header = next(iter_batches(bytes.fromhex(vector["hex"])))[1]
    retained = vector["retention"] == "RETAIN_EMPTY"
    producers = {header.producer_id: ActiveProducer(header.last_offset, header.producer_epoch)} if retained else {}
    return CleanJob(
        directory="/",
        segments=[],
        first_dirty_offset=first_dirty_offset,
        upper_bound_offset=1 << 40,
        now_ms=vector["currentTime"],
        delete_retention_ms=vector["deleteRetentionMs"],
        segment_bytes=1 << 30,
        segment_index_bytes=1 << 20,
        index_interval_bytes=4096,
        max_decompressed_bytes=1 << 20,
        map_bytes=1 << 20,
        chunk_bytes=1 << 20,
        aborted=[],
        producers=producers,
    )


def kept_by_ours(vector: dict[str, Any], first_dirty_offset: int) -> bytes:
    """Runs the filter with the keys of the records to remove known at later offsets."""
    data = bytes.fromhex(vector["hex"])
    position, header = next(iter_batches(data))
    records = read_records(data, position, header)
    latest = {
        record.key: record.offset if record.offset in vector["keptOffsets"] else 1 << 39
        for record in records
        if record.key is not None
    }
    stats = CleanStats()
    batches = BatchFilter(job(vector, first_dirty_offset), latest, 1 << 38, CleanedTransactions([]), stats)
    wants_horizon = vector["containsMarkerForEmptyTxn"]
    filtered = batches.of_records(data, position, header, 1 << 38, wants_horizon=wants_horizon)
    assert stats.messages_written == vector["messagesRetained"]
    return b"" if filtered is None else filtered


def decoded(data: bytes) -> list[tuple[dict[str, int], list[Record]]]:
    found = []
    for position, header in iter_batches(data):
        fields = {name: getattr(header, name) for name in FIELDS if name not in ("crc", "batch_length")}
        found.append((fields, read_records(data, position, header)))
    return found


@pytest.mark.parametrize("first_dirty_offset", [0, 1 << 37], ids=["dirty", "clean before"])
@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_a_filtered_batch_equals_kafkas(vector: dict[str, Any], first_dirty_offset: int) -> None:
    ours, kafkas = kept_by_ours(vector, first_dirty_offset), bytes.fromhex(vector["outputHex"])
    if vector["name"].startswith("gzip"):
        assert decoded(ours) == decoded(kafkas)
    else:
        assert ours.hex() == kafkas.hex()
