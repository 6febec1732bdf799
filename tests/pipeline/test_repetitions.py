"""Rows whose keys were there before: within a chunk, in the table's files, and how long an ingest remembers them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.repetitions import REPEATED, Remembered, earlier_rows, marked, marked_by, without_repeated
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.parquet import ParquetSink
from odradek.pipeline.sinks.staged_files import Layout

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
STRANGE = ["a b", "a/b=c", "50%", "ü:x", ""]
"""Keys that are no plain names of directories; of the last one Hive makes a null."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return make_settings(
        {
            "name": "orders",
            "lake": str(tmp_path),
            "topics": ["t"],
            "schema": "id STRING, at TIMESTAMP",
            "event_time": "at",
            "dedup_keys": ["id"],
            "watermark_delay": "10 minutes",
        }
    )


def parsed_of(spark: SparkSession, ids: list[tuple[str | None, float]], first: int = 0) -> DataFrame:
    """Parsed rows of t-0: id (None: a dead row) and minutes after noon."""
    rows = [
        (
            None if name is None else (name, NOON + timedelta(minutes=minute)),
            "tombstone" if name is None else None,
            None if name is None else NOON + timedelta(minutes=minute),
            "t", 0, first + number, NOON,
        )
        for number, (name, minute) in enumerate(ids)
    ]  # fmt: skip
    return spark.createDataFrame(
        rows,
        "data STRUCT<id: STRING, at: TIMESTAMP>, reason STRING, event_time TIMESTAMP, "
        "topic STRING, partition INT, offset LONG, timestamp TIMESTAMP",
    )


def write(sink: DeltaSink | ParquetSink, parsed: DataFrame, number: int = 0) -> None:
    rows = parsed.where("reason is null").select("data.*", *(sf.col(name).alias(f"_{name}") for name in PLACES))
    sink.prepare(rows.schema, "backfill")
    sink.write(rows, BatchId("orders", "backfill", 1, number))


PLACES = ("topic", "partition", "offset", "timestamp")


def repeated_offsets(judged: DataFrame) -> list[int]:
    return sorted(row.offset for row in judged.where(REPEATED).collect())


def test_the_first_by_event_time_stays_and_so_do_dead_rows(spark: SparkSession, settings: Settings) -> None:
    rows = parsed_of(spark, [("x", 5), ("x", 4), (None, 0), (None, 0), ("y", 0), ("x", 400)])
    assert repeated_offsets(marked(rows, settings)) == [0, 5]
    assert repeated_offsets(marked(rows, replace(settings, dedup_keys=()))) == []
    fresh, repeated = without_repeated(marked(rows, settings))
    assert (fresh.columns, fresh.count(), repeated) == (rows.columns, 4, 2)


@pytest.mark.parametrize("kind", ["delta", "delta by key", "parquet", "parquet by key"])
def test_keys_of_the_table_are_found_before_the_offsets_that_are_asked_for(
    spark: SparkSession, settings: Settings, tmp_path: Path, kind: str
) -> None:
    layout = Layout(("id",)) if "by key" in kind else Layout()
    sink = (DeltaSink if kind.startswith("delta") else ParquetSink)(tmp_path / "rows", "rows", layout)
    assert earlier_rows(spark, settings, sink, {"t": {0: 100}}) is None
    names = [name for name in STRANGE if name or "by key" not in kind]
    write(sink, parsed_of(spark, [(name, 0) for name in names]))
    write(sink, parsed_of(spark, [("later", 0)], first=50), 1)
    rows = parsed_of(spark, [(name, 0) for name in [*names, "later", "other"]] + [(None, 0)], first=50)
    earlier = earlier_rows(spark, settings, sink, {"t": {0: 50}})
    assert earlier is not None
    judged = marked_by(earlier, marked(rows, settings), settings)
    assert repeated_offsets(judged) == [50 + number for number in range(len(names))]
    assert judged.count() == len(names) + 3
    elsewhere = earlier_rows(spark, settings, sink, {"u": {0: 50}, "t": {1: 50}})
    assert elsewhere is not None
    assert elsewhere.count() == 0


@pytest.mark.parametrize("kind", ["TIMESTAMP", "LONG", "TIMESTAMP_NTZ", "none"])
def test_a_key_is_remembered_until_the_watermark_is_past_its_time_and_the_delay(
    spark: SparkSession, settings: Settings, tmp_path: Path, kind: str
) -> None:
    history = parsed_of(spark, [("old", 0), ("new", 30)])
    history = history.withColumn("timestamp", sf.col("event_time"))
    if kind == "none":
        settings = replace(settings, event_time="")
    else:
        settings = replace(settings, schema=f"id STRING, at {kind}")
        at = sf.unix_millis("data.at") if kind == "LONG" else sf.col("data.at").cast(kind)
        history = history.withColumn("data", sf.struct("data.id", at.alias("at")))
    sink = DeltaSink(tmp_path / "rows", "rows")
    write(sink, history)
    rows = parsed_of(spark, [("old", 0), ("new", 0)], first=50)
    remembered = Remembered(settings, sink, {"t": {0: 50}})
    for minute, expected in ((None, [50, 51]), (11, [51]), (40, [51])):
        judged = remembered(rows, None if minute is None else NOON + timedelta(minutes=minute))
        assert judged is not None
        assert repeated_offsets(judged) == expected
    assert remembered(rows, NOON + timedelta(minutes=41)) is None
    assert remembered(rows, None) is None, "it is over"
