"""Batches of Kafka's builder and of other clients, and damaged ones (tests/vectors/records)."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segments.options import parse_options
from odradek.pipeline.segments.planning import plan
from odradek.pipeline.segments.reading import read_range
from tests.pipeline.segments.log_files import VECTORS, as_vector, json_lines, rows_of, stored, write_log

RECORDS = VECTORS / "records"
BUILT = [one for one in json_lines(RECORDS / "batches.jsonl") if not one["name"].startswith(("magic0", "magic1"))]
OLD = [one for one in json_lines(RECORDS / "batches.jsonl") if one["name"].startswith(("magic0", "magic1"))]
OTHERS = json_lines(RECORDS / "other_writers.jsonl")
BROKEN = json_lines(RECORDS / "broken.jsonl")
WITH_HEADERS = {"includeHeaders": "true"}
LEFT_OUT = {"gzip_bomb_20_million_records", "zstd_bomb_20_million_records", "base_offset_max"}
"""Vectors left out: 20 million rows take too long, and no log contains the highest possible offset."""
BEYOND_SPARK = {"timestamps_far_apart"}


def name_of(vector: Any) -> str:
    return str(vector["name"])


def batches_of(directory: Path, data: bytes) -> list[pa.RecordBatch]:
    base = int.from_bytes(data[:8], "big", signed=True)
    log = write_log(directory, (max(base, 0), data), (2**63 - 1, b""))  # not the last: damage is an error
    options = parse_options({"path": str(log), "topic": "t", "isolationLevel": "read_uncommitted", **WITH_HEADERS})
    return [batch for one in plan(options) for batch in read_range(one, options)]


def read(directory: Path, data: bytes) -> list[Any]:
    return [row for batch in batches_of(directory, data) for row in batch.to_pylist()]


def whole(vector: Any) -> bytes:
    return bytes.fromhex(vector["hex"])[: vector.get("validBytes")]


@pytest.mark.parametrize("vector", [one for one in BUILT if one["name"] not in BEYOND_SPARK], ids=name_of)
def test_batches_of_kafkas_builder_are_read(vector: Any, tmp_path: Path) -> None:
    assert [as_vector(row) for row in read(tmp_path, whole(vector))] == stored(vector["batches"], "t", 0)


@pytest.mark.parametrize("vector", [one for one in BUILT if one["name"] in BEYOND_SPARK], ids=name_of)
def test_a_time_that_spark_cannot_hold_is_an_error(vector: Any, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"position 0, offset 0, .* a timestamp is beyond Spark's range"):
        read(tmp_path, whole(vector))


@pytest.mark.parametrize("vector", OLD, ids=name_of)
def test_old_formats_are_refused_by_name(vector: Any, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"message of format [01] at position 0, offset \d+: only format 2"):
        read(tmp_path, whole(vector))


@pytest.mark.parametrize("vector", OLD, ids=name_of)
def test_old_formats_at_the_end_of_a_log_are_refused_by_name(vector: Any, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"message of format [01] at position 0, offset \d+: only format 2"):
        rows_of(write_log(tmp_path, whole(vector)), "t")


@pytest.mark.parametrize("vector", OTHERS, ids=name_of)
def test_batches_of_other_clients_are_read(vector: Any, tmp_path: Path) -> None:
    java = vector["java"]
    if "result" not in java["records"]:
        with pytest.raises(PipelineError, match="position 0"):
            read(tmp_path, whole(vector))
        return
    assert len(read(tmp_path, whole(vector))) == int(java["records"]["result"])


@pytest.mark.parametrize("vector", [one for one in BROKEN if one["name"] not in LEFT_OUT], ids=name_of)
def test_a_damaged_batch_is_an_error_or_read_as_by_java(vector: Any, tmp_path: Path) -> None:
    java = vector["java"]
    try:
        rows = sum(batch.num_rows for batch in batches_of(tmp_path, whole(vector)))
    except PipelineError as error:
        assert "position" in str(error)  # noqa: PT017
        return
    control = vector["name"].startswith("control_batch")
    assert rows == (0 if control else int(java["records"]["result"]))
    assert java["checksum"].get("result") == "ok"
