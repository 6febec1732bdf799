"""The memory of de-duplication: no file with an event of the requested times is skipped."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from odradek.pipeline.kafka.offsets import Offsets
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.iceberg.sink import IcebergSink
from odradek.pipeline.sinks.known_events import TIME, Spans, known_events, time_column
from odradek.pipeline.sinks.parquet import ParquetSink
from odradek.pipeline.sinks.table_files import Layout
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location

Sink = DeltaSink | IcebergSink | ParquetSink
SINKS: dict[str, type[DeltaSink] | type[IcebergSink] | type[ParquetSink]] = {
    "delta": DeltaSink,
    "iceberg": IcebergSink,
    "parquet": ParquetSink,
}
NOON_US = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
HOUR_US = 3_600_000_000
STRANGE = ["a b", "a/b=c", "50%", "a%20b", "ü:x", "7", "null", ""]
"""Keys that need escaping in directory names."""


def settings_of(**changes: Any) -> Settings:
    usual = {"schema": "id STRING, at TIMESTAMP", "event_time": "at", "dedup_keys": ["id"]}
    return make_settings({**usual, **changes})


def sink_of(kind: str, directory: Path, *partition_by: str) -> Sink:
    return SINKS[kind](Location(str(directory / "rows")), "rows", Layout(partition_by))


def write(sink: Sink, rows: DataFrame, number: int = 0) -> None:
    sink.prepare(rows.schema)
    sink.write(rows, rows.count(), BatchId("orders", number))


def rows_of(
    spark: SparkSession, settings: Settings, events: Iterable[tuple[Any, int]], first: int = 0, kind: str = "STRING"
) -> DataFrame:
    """Good rows of t-0: keys of this type, times in microseconds since 1970."""
    content = [(key, at, "t", 0, first + number) for number, (key, at) in enumerate(events)]
    rows = spark.createDataFrame(content, f"id {kind}, us LONG, _topic STRING, _partition INT, _offset LONG")
    rows = rows.withColumn("_timestamp", sf.timestamp_micros("us"))
    if not settings.event_time:
        return rows.drop("us")
    schema = StructType.fromDDL(settings.schema)
    assert isinstance(schema, StructType)
    wanted = schema["at"].dataType
    at = sf.floor(sf.col("us") / 1000) if wanted.typeName() == "long" else sf.timestamp_micros("us")
    return rows.withColumn("at", at.cast(wanted)).drop("us")


def found(
    spark: SparkSession, settings: Settings, sink: Sink, spans: Spans, below: Offsets | None = None
) -> list[tuple[Any, ...]]:
    """The keys and times of the known events, sorted."""
    events = known_events(spark, settings, sink.files(time_column(settings), spans), spans, below or {})
    return [] if events is None else sorted(tuple(row) for row in events.select("id", TIME).collect())


def within(events: Iterable[tuple[str, int]], spans: Spans) -> list[tuple[str, int]]:
    return sorted((key, at) for key, at in events if any(start <= at <= end for start, end in spans))


def random_spans(dice: random.Random, times: list[int]) -> Spans:
    """Up to three spans that begin and end at or next to times of events."""
    edges = sorted(dice.choice(times) + dice.choice([-1, 0, 0, 1]) for _ in range(2 * dice.randint(1, 3)))
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True)]


@pytest.mark.parametrize("sink_kind", SINKS)
@pytest.mark.parametrize("kind", ["TIMESTAMP", "LONG", "TIMESTAMP_NTZ", "none"])
def test_exactly_the_events_of_the_spans_are_found(
    spark: SparkSession, tmp_path: Path, kind: str, sink_kind: str
) -> None:
    settings = settings_of(event_time="") if kind == "none" else settings_of(schema=f"id STRING, at {kind}")
    dice = random.Random(f"{kind} {sink_kind}")
    sink = sink_of(sink_kind, tmp_path)
    events: list[tuple[str, int]] = []
    for number in range(3):
        begin = dice.choice([0, NOON_US, NOON_US + 1, -NOON_US]) + number * HOUR_US
        batch = [(f"k{dice.randint(0, 9)}", begin + dice.randint(0, HOUR_US)) for _ in range(20)]
        write(sink, rows_of(spark, settings, batch, 20 * number), number)
        events += [(key, at // 1000 * 1000) for key, at in batch] if kind == "LONG" else batch
    for _ in range(4):
        spans = random_spans(dice, [at for _, at in events])
        assert found(spark, settings, sink, spans) == within(events, spans), spans
    assert found(spark, settings, sink, []) == []


def test_files_of_other_times_are_skipped_by_their_statistics(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_of("delta", tmp_path)
    for number in range(4):
        write(sink, rows_of(spark, settings_of(), [("x", NOON_US + number * HOUR_US + 1)]), number)
    chosen = sink.files("at", [(NOON_US, NOON_US + 1), (NOON_US + 2 * HOUR_US + 1, NOON_US + 2 * HOUR_US + 1)])
    assert len(chosen.paths) == 2
    assert set(chosen.paths) < set(sink.place.sizes())
    DeltaTable(sink.place).create_checkpoint()
    assert set(sink.files("at", [(NOON_US, NOON_US + 1)]).paths) < set(chosen.paths), "also after a checkpoint"
    assert sink.files("at", [(NOON_US - 1, NOON_US - 1)]).paths == []


@pytest.mark.parametrize("sink_kind", SINKS)
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("STRING", STRANGE),
        ("LONG", [0, -1, 2**63 - 1]),
        ("TINYINT", [0, -128]),
        ("BOOLEAN", [True, False]),
        ("DATE", [datetime(2024, 2, 29, tzinfo=UTC).date(), datetime(1, 1, 1, tzinfo=UTC).date()]),
        ("TIMESTAMP", [datetime(2024, 2, 29, 1, 2, 3, 4), datetime(1969, 12, 31, 23, 59, 59)]),  # noqa: DTZ001
        ("DECIMAL(10, 2)", [Decimal("0.10"), Decimal("-12345678.99")]),
    ],
)
def test_a_key_can_be_a_partition_column(
    spark: SparkSession, tmp_path: Path, kind: str, keys: list[Any], sink_kind: str
) -> None:
    settings = settings_of(schema=f"id {kind}, at TIMESTAMP")
    sink = sink_of(sink_kind, tmp_path, "id")
    write(sink, rows_of(spark, settings, [(key, NOON_US) for key in keys], kind=kind))
    assert found(spark, settings, sink, [(NOON_US, NOON_US)]) == sorted((key, NOON_US) for key in keys)


@pytest.mark.parametrize("sink_kind", SINKS)
@pytest.mark.parametrize("kind", ["TIMESTAMP", "LONG", "TIMESTAMP_NTZ"])
def test_a_table_can_be_partitioned_by_event_time_topic_and_partition(
    spark: SparkSession, tmp_path: Path, kind: str, sink_kind: str
) -> None:
    settings = settings_of(schema=f"id STRING, at {kind}")
    sink = sink_of(sink_kind, tmp_path, "at", "_topic", "_partition")
    write(sink, rows_of(spark, settings, [("x", NOON_US), ("y", NOON_US + HOUR_US)]))
    assert found(spark, settings, sink, [(NOON_US, NOON_US)]) == [("x", NOON_US)]
    assert found(spark, settings, sink, [(0, 2 * NOON_US)], {"t": {0: 1}}) == [("x", NOON_US)]


@pytest.mark.parametrize("sink_kind", SINKS)
def test_files_older_than_a_column_have_nulls_in_it(spark: SparkSession, tmp_path: Path, sink_kind: str) -> None:
    settings = settings_of()
    sink = sink_of(sink_kind, tmp_path)
    rows = rows_of(spark, settings, [("x", NOON_US)])
    write(sink, rows.drop("id"))
    write(sink, rows.drop("at"), 1)
    write(sink, rows, 2)
    events = known_events(spark, settings, sink.files("at", [(0, 2 * NOON_US)]), [(0, 2 * NOON_US)], {})
    assert events is not None
    assert sorted((row["id"], row[TIME]) for row in events.collect() if row["id"]) == [("x", NOON_US)]
    assert [row[TIME] for row in events.collect() if row["id"] is None] == [NOON_US]


@pytest.mark.parametrize("sink_kind", SINKS)
def test_a_repeated_batch_does_not_find_its_own_rows(spark: SparkSession, tmp_path: Path, sink_kind: str) -> None:
    settings = settings_of()
    sink = sink_of(sink_kind, tmp_path)
    assert found(spark, settings, sink, [(0, 2 * NOON_US)]) == [], "there is no table"
    write(sink, rows_of(spark, settings, [("before", NOON_US)], first=49))
    write(sink, rows_of(spark, settings, [("itself", NOON_US), ("itself too", NOON_US)], first=50), 1)
    everything = [("before", NOON_US), ("itself", NOON_US), ("itself too", NOON_US)]
    for below, wanted in (
        ({"t": {0: 50}}, everything[:1]),
        ({"t": {0: 51, 1: 0}, "u": {0: 0}}, everything[:2]),
        ({"t": {1: 50}, "u": {0: 50}, "t-0": {0: 0}}, everything),
        ({}, everything),
    ):
        assert found(spark, settings, sink, [(NOON_US, NOON_US)], below) == wanted


def test_a_compacted_table_has_the_same_events(spark: SparkSession, tmp_path: Path) -> None:
    settings = settings_of()
    sink = sink_of("delta", tmp_path, "id")
    events = [(key, NOON_US + number * HOUR_US + 1) for number in range(3) for key in STRANGE]
    for number in range(3):
        write(sink, rows_of(spark, settings, events[number * 8 : number * 8 + 8]), number)
    table = DeltaTable(sink.place)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert pa.table(table.get_add_actions()).num_rows == len(STRANGE)
    spans = [(NOON_US, NOON_US + HOUR_US), (NOON_US + 2 * HOUR_US + 1, NOON_US + 3 * HOUR_US)]
    assert found(spark, settings, sink, spans) == within(events, spans)


def test_several_key_columns_are_read_together(spark: SparkSession, tmp_path: Path) -> None:
    settings = settings_of(schema="id STRING, shop BINARY, at TIMESTAMP", dedup_keys=["shop", "id"])
    sink = sink_of("delta", tmp_path)
    rows = rows_of(spark, settings, [("x", NOON_US)]).withColumn("shop", sf.lit(b"\x00\xff"))
    write(sink, rows)
    spans = [(NOON_US, NOON_US + timedelta(hours=1) // timedelta(microseconds=1))]
    events = known_events(spark, settings, sink.files("at", spans), spans, {})
    assert events is not None
    assert [tuple(row) for row in events.collect()] == [(b"\x00\xff", "x", NOON_US)]
