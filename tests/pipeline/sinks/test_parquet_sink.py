"""The Parquet sink: readers that know only Parquet see complete batches, once."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.parquet import ParquetSink
from odradek.pipeline.sinks.table_files import Layout
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location


def at(path: Path) -> Location:
    return Location(str(path))


def ids(place: Location) -> list[int]:
    return sorted(pyarrow.dataset.dataset(place.url, partitioning="hive").to_table(columns=["id"])["id"].to_pylist())


def test_a_batch_is_a_directory_that_appears_complete_and_once(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(at(tmp_path / "table"), "rows", Layout(("kind",)))
    rows = spark.range(10).selectExpr("id", "id % 2 AS kind")
    sink.prepare(rows.schema)
    first = BatchId("orders", 7)
    assert sink.last_batch(first) is None
    assert sink.write(rows, 10, first).files == 2
    assert sink.write(rows, 10, first).files == 0
    assert sink.last_batch(first) == 7
    assert sink.write(rows, 10, BatchId("orders", 8)).files == 2
    assert sink.last_batch(first) == 8
    assert ids(sink.place) == sorted([*range(10), *range(10)])
    assert sorted(spark.read.parquet(sink.place.url).select("id").toArrow()["id"].to_pylist()) == ids(sink.place)


def test_a_failed_attempt_leaves_nothing_visible(spark: SparkSession, tmp_path: Path) -> None:
    class Broken(Exception):
        pass

    def fail(_point: str) -> None:
        raise Broken

    sink = ParquetSink(at(tmp_path / "table"), "rows", reached=fail)
    sink.prepare(spark.range(3).schema)
    with pytest.raises(Broken):
        sink.write(spark.range(3).toDF("id"), 3, BatchId("orders", 0))
    assert list(sink.place.path.rglob("*.parquet")) == []


def test_a_changed_type_or_format_is_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(at(tmp_path / "table"), "rows")
    rows = spark.range(3).selectExpr("id", "ARRAY(STRUCT(id)) AS list", "CURRENT_TIMESTAMP() AS at")
    sink.prepare(rows.schema)
    sink.write(rows, 3, BatchId("orders", 0))
    sink.prepare(rows.schema)
    with pytest.raises(PipelineError, match="has id int64, but the settings have string"):
        sink.prepare(rows.selectExpr("CAST(id AS STRING) AS id").schema)
    DeltaSink(at(tmp_path / "delta"), "rows").prepare(rows.schema)
    with pytest.raises(PipelineError, match="is a Delta table"):
        ParquetSink(at(tmp_path / "delta"), "rows").prepare(rows.schema)


def test_an_object_store_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"s3://lake/rows: an object store .*; set sink to delta"):
        ParquetSink(Location("s3://lake/rows"), "rows")


def test_staged_files_of_a_killed_attempt_are_removed_at_the_next_start(spark: SparkSession, tmp_path: Path) -> None:
    left = tmp_path / "table/_staging/00000003/part-0.parquet"
    left.parent.mkdir(parents=True)
    left.touch()
    sink = ParquetSink(at(tmp_path / "table"), "rows")
    sink.prepare(spark.range(1).schema)
    assert not left.exists()
    assert sink.last_batch(BatchId("orders", 3)) is None
