"""Good, dead and late rows, the rows of each table, and windows."""

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.testing import assertDataFrameEqual

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse import transforms
from odradek.pipeline.parse.records import parsed
from odradek.pipeline.parse.repetitions import PLACES
from odradek.pipeline.parse.transforms import DEAD, GOOD, LATE, OUTCOME
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.sinks.delta_windows import DeltaWindows
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location
from tests.pipeline.parse.parsing_records import records

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


def outcomes(rows: DataFrame) -> list[str]:
    return [row[OUTCOME] for row in rows.orderBy("offset").collect()]


def test_a_row_with_a_reason_is_dead_one_before_the_watermark_late_others_good(
    spark: SparkSession, settings: Settings
) -> None:
    values = [order(1, seconds=-1), order(2), order(3, seconds=1), b"{", None]
    rows = parsed(records(spark, values), settings)
    assert outcomes(transforms.judged(rows, None)) == [GOOD, GOOD, GOOD, DEAD, DEAD]
    noon = transforms.judged(rows, NOON.replace(tzinfo=UTC))
    assert outcomes(noon) == [LATE, GOOD, GOOD, DEAD, DEAD], "at the watermark is not before it"
    just_after = NOON.replace(tzinfo=UTC) + timedelta(microseconds=1)
    assert outcomes(transforms.judged(rows, just_after)) == [LATE, LATE, GOOD, DEAD, DEAD]
    parts = {outcome: transforms.of_outcome(noon, outcome) for outcome in (GOOD, DEAD, LATE)}
    assert {outcome: offsets(part) for outcome, part in parts.items()} == {GOOD: [1, 2], DEAD: [3, 4], LATE: [0]}
    assert all(part.columns == rows.columns for part in parts.values())


@pytest.mark.parametrize("few", [False, True])
def test_only_rows_at_the_given_offsets_are_removed(spark: SparkSession, settings: Settings, few: bool) -> None:
    rows = parsed(records(spark, [order(number) for number in range(4)]), settings)
    places = [("orders", 0, 1), ("orders", 1, 2), ("other", 0, 3)]
    left = transforms.without_places(rows, spark.createDataFrame(places, PLACES), few)
    assert offsets(left) == [0, 2, 3]
    assert sorted(left.columns) == sorted(rows.columns)


def test_good_rows_have_the_schemas_columns_and_their_offset(spark: SparkSession, settings: Settings) -> None:
    rows = parsed(records(spark, [b"{", order(1, amount=2.5, n=3)]), settings)
    good = transforms.good_rows(rows.where("reason is null"), settings)
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


def test_good_rows_keep_the_raw_record_if_it_has_unknown_fields(spark: SparkSession, settings: Settings) -> None:
    keeping = dataclasses.replace(settings, unknown_fields="keep")
    values = [order(1), order(2, new=1)]
    good = transforms.good_rows(parsed(records(spark, values), keeping), keeping)
    assert [row["_raw"] for row in good.orderBy("id").collect()] == [None, values[1].decode()]


def test_dead_letters_contain_the_complete_record(spark: SparkSession, settings: Settings) -> None:
    rows = parsed(records(spark, [order(1), b"{\xff", None]), settings)
    dead = transforms.dead_letters(rows.where("reason is not null"), settings)
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
            (1, b"{\xff", "not_utf8", "the value is not UTF-8 text"),
            (2, None, "tombstone", "the value is null"),
        ]
    ]


def test_every_row_is_good_or_dead(spark: SparkSession, settings: Settings) -> None:
    values = [order(1), b"{", None, b"[]", order(2), b"", b'{"id":1}', b'{"id":1,"shop":"x"}']
    rows = transforms.judged(parsed(records(spark, values), settings), None).persist()
    assert [transforms.of_outcome(rows, outcome).count() for outcome in (GOOD, DEAD, LATE)] == [2, 6, 0]
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
    good = parsed(records(spark, values), settings).where("reason is null")
    windows = transforms.windowed(good, settings)
    minute = timedelta(minutes=1)
    expected = [
        (NOON - minute, NOON, "a", 1, 8.0, 1, NOON.date()),
        (NOON, NOON + minute, "a", 3, 4.0, 3 * 2**62, NOON.date()),
        (NOON, NOON + minute, "b", 1, None, None, NOON.date()),
        (NOON + minute, NOON + 2 * minute, "a", 1, 4.0, 1, NOON.date()),
    ]
    schema = (
        "window_start TIMESTAMP, window_end TIMESTAMP, shop STRING, count LONG, sum_amount DOUBLE, "
        "sum_n DECIMAL(38,0), window_day DATE"
    )
    plain = windows.withColumn("sum_n", sf.col("sum_n").cast("string"))
    rows = [(*row[:5], None if row[5] is None else str(row[5]), row[6]) for row in expected]
    assert windows.schema.simpleString() == spark.createDataFrame([], schema).schema.simpleString()
    assertDataFrameEqual(plain, spark.createDataFrame(rows, schema.replace("DECIMAL(38,0)", "STRING")))


def test_sliding_windows_take_a_row_several_times(spark: SparkSession, settings: Settings) -> None:
    sliding = dataclasses.replace(settings, window_slide="30 seconds", window_by=(), window_sums=())
    windows = transforms.windowed(parsed(records(spark, [order(1, seconds=5)]), sliding), sliding)
    half = timedelta(seconds=30)
    expected = [(NOON - half, NOON + half, 1, NOON.date()), (NOON, NOON + 2 * half, 1, NOON.date())]
    schema = "window_start TIMESTAMP, window_end TIMESTAMP, count LONG, window_day DATE"
    assertDataFrameEqual(windows, spark.createDataFrame(expected, schema))


@pytest.mark.parametrize(
    ("window", "slide"), [("one minute", ""), ("1 month", ""), ("1 minute", "2 minutes"), ("0 seconds", "")]
)
def test_invalid_windows_are_reported(spark: SparkSession, settings: Settings, window: str, slide: str) -> None:
    bad = dataclasses.replace(settings, window=window, window_slide=slide)
    with pytest.raises(PipelineError, match=f"window '{window}' with window-slide '{slide}' is invalid"):
        transforms.windowed(parsed(records(spark, []), bad), bad)


def test_sums_beyond_a_long_are_added_in_the_table_too(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    table = DeltaWindows(Location(str(tmp_path / "windows")), settings.window_by)
    windows = transforms.windowed(parsed(records(spark, [order(1, n=2**62), order(2, n=2**62)]), settings), settings)
    table.prepare(windows.schema)
    for number in range(3):
        table.add(windows, BatchId("orders", number))
    rows = DeltaTable(str(tmp_path / "windows")).to_pyarrow_table().to_pylist()
    assert [(row["count"], row["sum_n"]) for row in rows] == [(6, 6 * 2**62)]
