"""Duplicates, good and dead rows, windows; the same functions in a batch and in a stream."""

import dataclasses
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.testing import assertDataFrameEqual

from odradek.pipeline import transforms
from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parsing import parsed
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.sinks.delta_windows import DeltaWindows
from tests.pipeline.parsing_records import COLUMNS, records

NOON = datetime(2024, 1, 1, 12)  # noqa: DTZ001 Spark's rows have naive times of the session's zone, UTC


@pytest.fixture
def settings() -> Settings:
    return make_settings(
        {
            "schema": "id LONG, shop STRING, amount DOUBLE, n LONG, at TIMESTAMP",
            "event_time": "at",
            "dedup_keys": ["id", "shop"],
            "watermark_delay": "10 minutes",
            "window": "1 minute",
            "window_by": ["shop"],
            "window_sums": ["amount", "n"],
            "job_version": "7",
        }
    )


def order(number: int, shop: str = "a", seconds: int = 0, **more: Any) -> bytes:
    at = (NOON + timedelta(seconds=seconds)).isoformat()
    return json.dumps({"id": number, "shop": shop, "at": at, **more}).encode()


def offsets(rows: DataFrame) -> list[int]:
    return sorted(row.offset for row in rows.select("offset").collect())


def test_in_a_batch_the_first_of_each_key_stays_and_all_dead_rows(spark: SparkSession, settings: Settings) -> None:
    values = [
        order(1, seconds=5),
        order(1, seconds=3),
        order(1, "b"),
        order(2),
        order(2, seconds=86400),
        b"{",
        b"{",
        None,
    ]
    unique = transforms.deduplicated(parsed(records(spark, values), settings), settings)
    assert offsets(unique) == [1, 2, 3, 5, 6, 7]
    assert unique.columns == parsed(records(spark, []), settings).columns


def test_without_keys_nothing_is_dropped(spark: SparkSession, settings: Settings) -> None:
    plain = dataclasses.replace(settings, dedup_keys=())
    rows = parsed(records(spark, [order(1), order(1), b"{"]), plain)
    assert transforms.deduplicated(rows, plain) is rows


def streamed(
    spark: SparkSession, settings: Settings, batches: list[list[bytes | None]], directory: Path
) -> list[list[int]]:
    """The offsets that come out of each batch of a stream; offsets count over all batches."""
    source, first = directory / "source", 0
    for values in batches:
        moved = records(spark, values).withColumn("offset", sf.col("offset") + first)
        moved.coalesce(1).write.mode("append").parquet(str(source))
        first += len(values)
        written = sorted(source.glob("part-*.parquet"), key=lambda file: file.stat().st_mtime_ns)
        written[-1].rename(source / f"{first:09}.parquet")
    came: list[list[int]] = []
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(source))
    query = (
        transforms.deduplicated(parsed(stream, settings), settings)
        .writeStream.foreachBatch(lambda rows, _: came.append(offsets(rows)))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [batch for batch in came if batch]


def test_in_a_stream_duplicates_within_the_delay_go_late_rows_go_and_dead_rows_stay(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    """Spark holds rows against the watermark that the batch before was given: it lags by one batch."""
    batches: list[list[bytes | None]] = [
        [order(1), order(1, seconds=30), order(1, "b"), b"{", None],  # 0-4: 1 is a duplicate
        [order(1, seconds=60), order(2, seconds=3600), b"{"],  # 5-7: 5 is a duplicate; the watermark becomes 12:50
        [order(4, seconds=3001), b"{", None],  # 8-10
        [order(3, seconds=60), order(1, seconds=3700), order(4, seconds=3002), b"{"],  # 11-14: 11 is late, 13 known
    ]
    assert streamed(spark, settings, batches, tmp_path) == [[0, 2, 3, 4], [6, 7], [8, 9, 10], [12, 14]]


def test_a_delay_that_is_none_is_told(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    stream = spark.readStream.schema(COLUMNS).parquet(str(tmp_path))
    bad = dataclasses.replace(settings, watermark_delay="ten minuets")
    with pytest.raises(PipelineError, match="watermark-delay 'ten minuets' is no length of time"):
        transforms.deduplicated(parsed(stream, bad), bad)


def test_good_rows_have_the_schemas_columns_and_where_they_came_from(spark: SparkSession, settings: Settings) -> None:
    good = transforms.good_rows(parsed(records(spark, [b"{", order(1, amount=2.5, n=3)]), settings), settings)
    assert [row.asDict() for row in good.collect()] == [
        {
            "id": 1,
            "shop": "a",
            "amount": 2.5,
            "n": 3,
            "at": NOON,
            "_topic": "orders",
            "_partition": 0,
            "_offset": 1,
            "_timestamp": NOON,
        }
    ]


def test_good_rows_keep_the_text_of_what_has_more_fields(spark: SparkSession, settings: Settings) -> None:
    keeping = dataclasses.replace(settings, unknown_fields="keep")
    values = [order(1), order(2, new=1)]
    good = transforms.good_rows(parsed(records(spark, values), keeping), keeping)
    assert [row["_raw"] for row in good.orderBy("id").collect()] == [None, values[1].decode()]


def test_dead_letters_are_whole(spark: SparkSession, settings: Settings) -> None:
    dead = transforms.dead_letters(parsed(records(spark, [order(1), b"{\xff", None]), settings), settings)
    assert [row.asDict() for row in dead.orderBy("offset").collect()] == [
        {
            "reason": reason,
            "detail": detail,
            "key": b"key",
            "value": value,
            "headers": [Row(key="trace", value=b"1")],
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "timestamp": NOON,
            "job_version": "7",
        }
        for offset, value, reason, detail in [
            (1, b"{\xff", "not_utf8", "the value is no UTF-8 text"),
            (2, None, "tombstone", "the value is null"),
        ]
    ]


def test_every_row_is_good_or_dead(spark: SparkSession, settings: Settings) -> None:
    values = [order(1), b"{", None, b"[]", order(2), b"", b'{"id":1}', b'{"id":1,"shop":"x"}']
    rows = parsed(records(spark, values), settings).persist()
    good, dead = transforms.good_rows(rows, settings), transforms.dead_letters(rows, settings)
    assert (good.count(), dead.count()) == (2, 6)
    rows.unpersist()


def test_windows_count_and_sum_by_event_time(spark: SparkSession, settings: Settings) -> None:
    values = [
        order(1, "a", 0, amount=1.5, n=2**62),
        order(2, "a", 59, amount=2.5, n=2**62),
        order(3, "a", 59, n=2**62),
        order(4, "b", 1),
        order(5, "a", 60, amount=4.0, n=1),
        order(6, "a", -1, amount=8.0, n=1),
        b"{",
    ]
    windows = transforms.windowed(parsed(records(spark, values), settings), settings)
    minute = timedelta(minutes=1)
    expected = [
        (NOON - minute, NOON, "a", 1, 8.0, 1),
        (NOON, NOON + minute, "a", 3, 4.0, 3 * 2**62),
        (NOON, NOON + minute, "b", 1, None, None),
        (NOON + minute, NOON + 2 * minute, "a", 1, 4.0, 1),
    ]
    schema = (
        "window_start TIMESTAMP, window_end TIMESTAMP, shop STRING, count LONG, sum_amount DOUBLE, sum_n DECIMAL(38,0)"
    )
    plain = windows.withColumn("sum_n", sf.col("sum_n").cast("string"))
    rows = [(*row[:5], None if row[5] is None else str(row[5])) for row in expected]
    assert windows.schema.simpleString() == spark.createDataFrame([], schema).schema.simpleString()
    assertDataFrameEqual(plain, spark.createDataFrame(rows, schema.replace("DECIMAL(38,0)", "STRING")))


def test_sliding_windows_take_a_row_several_times(spark: SparkSession, settings: Settings) -> None:
    sliding = dataclasses.replace(settings, window_slide="30 seconds", window_by=(), window_sums=())
    windows = transforms.windowed(parsed(records(spark, [order(1, seconds=5)]), sliding), sliding)
    half = timedelta(seconds=30)
    expected = [(NOON - half, NOON + half, 1), (NOON, NOON + 2 * half, 1)]
    schema = "window_start TIMESTAMP, window_end TIMESTAMP, count LONG"
    assertDataFrameEqual(windows, spark.createDataFrame(expected, schema))


@pytest.mark.parametrize(
    ("window", "slide"), [("one minute", ""), ("1 month", ""), ("1 minute", "2 minutes"), ("0 seconds", "")]
)
def test_windows_that_cannot_be_are_told(spark: SparkSession, settings: Settings, window: str, slide: str) -> None:
    bad = dataclasses.replace(settings, window=window, window_slide=slide)
    with pytest.raises(PipelineError, match=f"window '{window}' with window-slide '{slide}' cannot be"):
        transforms.windowed(parsed(records(spark, []), bad), bad)


def test_sums_beyond_a_long_are_added_up_in_the_table_too(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    table = DeltaWindows(tmp_path / "windows", settings.window_by)
    windows = transforms.windowed(parsed(records(spark, [order(1, n=2**62), order(2, n=2**62)]), settings), settings)
    table.prepare(windows.schema, "ingest")
    for number in range(3):
        table.write(windows, BatchId("orders", "ingest", 1, number))
    rows = DeltaTable(str(tmp_path / "windows")).to_pyarrow_table().to_pylist()
    assert [(row["count"], row["sum_n"]) for row in rows] == [(6, 6 * 2**62)]
