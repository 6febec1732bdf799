"""The Parquet sink: readers that know nothing but Parquet see whole batches, once."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.parquet import ParquetSink
from odradek.pipeline.sinks.staged_files import Layout


def ids(path: Path) -> list[int]:
    return sorted(pyarrow.dataset.dataset(path, partitioning="hive").to_table(columns=["id"])["id"].to_pylist())


def test_batches_are_directories_that_come_whole_and_once(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "table", "rows", Layout(("kind",)))
    rows = spark.range(10).selectExpr("id", "id % 2 AS kind")
    sink.prepare(rows.schema, "ingest")
    first = BatchId("orders", "ingest", 1, 7)
    assert sink.last_batch(first) is None
    assert sink.write(rows, first).files == 2
    assert sink.write(rows, first).files == 0
    assert sink.last_batch(first) == 7
    assert sink.last_batch(BatchId("orders", "ingest", 2, 7)) is None
    assert sink.write(rows, BatchId("orders", "ingest", 2, 7)).files == 2
    assert ids(sink.path) == sorted([*range(10), *range(10)])
    assert sorted(spark.read.parquet(str(sink.path)).select("id").toArrow()["id"].to_pylist()) == ids(sink.path)


def test_an_attempt_that_fails_shows_nothing(spark: SparkSession, tmp_path: Path) -> None:
    class Broken(Exception):
        pass

    def fail(_point: str) -> None:
        raise Broken

    sink = ParquetSink(tmp_path / "table", "rows", reached=fail)
    sink.prepare(spark.range(3).schema, "ingest")
    with pytest.raises(Broken):
        sink.write(spark.range(3).toDF("id"), BatchId("orders", "ingest", 1, 0))
    assert list(sink.path.rglob("*.parquet")) == []


def test_another_type_and_another_format_are_clear_errors(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "table", "rows")
    rows = spark.range(3).selectExpr("id", "ARRAY(STRUCT(id)) AS list", "CURRENT_TIMESTAMP() AS at")
    sink.prepare(rows.schema, "ingest")
    sink.write(rows, BatchId("orders", "ingest", 1, 0))
    sink.prepare(rows.schema, "ingest")
    with pytest.raises(PipelineError, match="has id int64, the settings say string"):
        sink.prepare(rows.selectExpr("CAST(id AS STRING) AS id").schema, "ingest")
    DeltaSink(tmp_path / "delta", "rows").prepare(rows.schema, "ingest")
    with pytest.raises(PipelineError, match="is a Delta table"):
        ParquetSink(tmp_path / "delta", "rows").prepare(rows.schema, "ingest")
