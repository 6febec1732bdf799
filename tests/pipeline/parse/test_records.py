"""Required columns and event time, for every format; and raw records."""

import dataclasses
from datetime import datetime

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.testing import assertDataFrameEqual

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.records import ADDED, REASONS, parsed
from odradek.pipeline.settings import Settings, make_settings
from tests.pipeline.parse.parsing_records import COLUMNS, STAMP, parsed_rows, records

NOON = datetime(2024, 1, 1, 12)  # noqa: DTZ001 Spark's rows have naive times of the session's zone, UTC


def reasons(rows: list[Row]) -> list[tuple[str | None, str | None]]:
    return [(row.reason, row.detail) for row in rows]


def test_parsing_keeps_the_records_columns_and_adds_four(spark: SparkSession) -> None:
    given = records(spark, [b'{"id":1}', b"{"])
    result = parsed(given, make_settings({"schema": "id LONG"}))
    assert result.columns == [*given.columns, *ADDED]
    assertDataFrameEqual(result.select(*given.columns), given)


def test_required_key_and_not_null_columns_must_not_be_missing(spark: SparkSession) -> None:
    settings = make_settings(
        {"schema": "id LONG, a STRING, b STRING NOT NULL, c STRING", "required": ["a"], "dedup_keys": ["id"]}
    )
    values = [
        b'{"id":1,"a":"","b":""}',
        b'{"id":1,"a":null,"b":""}',
        b'{"id":1,"a":""}',
        b'{"b":""}',
        b'{"a":1,"b":{}}',
    ]
    assert reasons(parsed_rows(spark, values, settings)) == [
        (None, None),
        ("missing_required", "a is null or missing"),
        ("missing_required", "b is null or missing"),
        ("missing_required", "a is null or missing"),
        ("missing_required", "id is null or missing"),
    ]


def test_the_event_time_defaults_to_the_record_timestamp(spark: SparkSession) -> None:
    settings = make_settings({"schema": "id LONG"})
    good, bad = parsed_rows(spark, [b"{}", b"{"], settings)
    assert (good.event_time, bad.event_time) == (NOON, None)


@pytest.mark.parametrize(
    ("milliseconds", "detail"),
    [(-1, "the record has no timestamp"), (253_402_300_800_000, "the record's timestamp is after the year 9999")],
)
def test_a_record_with_no_timestamp_or_an_impossible_one_has_no_event_time(
    spark: SparkSession, milliseconds: int, detail: str
) -> None:
    given = records(spark, [b"{}"]).withColumn("timestamp", sf.timestamp_millis(sf.lit(milliseconds)))
    row = parsed(given, make_settings({"schema": "id LONG"})).select("reason", "detail").first()
    assert row == ("no_event_time", detail)


def test_the_event_time_can_be_a_timestamp_column(spark: SparkSession) -> None:
    settings = make_settings({"schema": "at TIMESTAMP", "event_time": "at"})
    values = [
        b'{"at":"2024-01-01T12:00:00Z"}',
        b"{}",
        b'{"at":"x"}',
        b'{"at":"0000-01-01"}',
        b'{"at":"9999-12-31 23:00:00-08"}',
    ]
    rows = parsed_rows(spark, values, settings)
    assert reasons(rows) == [
        (None, None),
        ("no_event_time", "at is null or missing"),
        ("wrong_type", 'at is not TIMESTAMP: "x"'),
        ("no_event_time", "at is 0000-01-01 00:00:00, not in the years 1 to 9999"),
        ("no_event_time", "at is +10000-01-01 07:00:00, not in the years 1 to 9999"),
    ]
    assert [row.event_time for row in rows] == [NOON, None, None, None, None]


def test_the_event_time_can_be_in_milliseconds(spark: SparkSession) -> None:
    settings = make_settings({"schema": "at LONG", "event_time": "at"})
    ms = int(STAMP.timestamp()) * 1000
    values = [b'{"at":%d}' % at for at in (ms, ms * 1000, 2**63 - 1, -(2**63))]
    rows = parsed_rows(spark, values, settings)
    assert [row.reason for row in rows] == [None, "no_event_time", "no_event_time", "no_event_time"]
    assert rows[0].event_time == NOON
    assert rows[1].detail == f"at is {ms * 1000}, not in the years 1 to 9999"


def test_an_event_time_without_a_zone_is_utc(spark: SparkSession) -> None:
    settings = make_settings({"schema": "at TIMESTAMP_NTZ", "event_time": "at"})
    assert parsed_rows(spark, [b'{"at":"2024-01-01T12:00:00"}'], settings)[0].event_time == NOON


def test_an_event_after_the_plan_of_the_batch_is_a_dead_letter(spark: SparkSession) -> None:
    settings = make_settings({"schema": "at TIMESTAMP", "event_time": "at", "max_future": "1 hour"})
    values = [b'{"at":"2024-01-01T13:00:00Z"}', b'{"at":"2024-01-01T13:00:00.000001Z"}', b'{"at":1}x']
    detail = "at is 2024-01-01 13:00:00.000001, more than 1 hour after 2024-01-01T12:00:00+00:00"

    def judged(settings: Settings, now: datetime | None) -> list[tuple[str | None, str | None]]:
        rows = parsed(records(spark, values), settings, now).orderBy("offset").collect()
        assert all((row.data is None, row.event_time is None) == (bool(row.reason),) * 2 for row in rows)
        return reasons(rows)[:2]

    assert judged(settings, STAMP) == [(None, None), ("in_future", detail)]
    assert judged(settings, None) == [(None, None)] * 2
    assert judged(dataclasses.replace(settings, max_future=""), STAMP) == [(None, None)] * 2


def test_raw_records_and_tombstones_become_unchanged_rows(spark: SparkSession) -> None:
    big = b"\xff" * 1_000_000
    rows = (
        parsed(records(spark, [b"\xff\x00", None, b"", big]), make_settings({"format": "raw"}))
        .orderBy("offset")
        .collect()
    )
    assert [row.data.value for row in rows] == [b"\xff\x00", None, b"", big]
    assert [row.reason for row in rows] == [None] * 4
    assert rows[0].data.key == b"key"
    assert rows[0].data.headers == [Row(key="trace", value=b"1")]
    assert rows[0].event_time == NOON


def test_raw_records_can_require_a_key(spark: SparkSession) -> None:
    given = spark.createDataFrame([(None, b"1", None, "t", 0, 0, STAMP, 0)], COLUMNS)
    row = parsed(given, make_settings({"format": "raw", "dedup_keys": ["key"]})).first()
    assert row is not None
    assert (row.reason, row.detail) == ("missing_required", "key is null or missing")


def test_keys_of_a_megabyte_are_parsed(spark: SparkSession) -> None:
    given = spark.createDataFrame([(b"k" * 1_000_000, b'{"id":1}', None, "t", 0, 0, STAMP, 0)], COLUMNS)
    row = parsed(given, make_settings({"schema": "id LONG"})).first()
    assert row is not None
    assert (len(row.key), row.data.id, row.reason) == (1_000_000, 1, None)


def test_every_reason_has_a_readable_detail() -> None:
    assert len(REASONS) == 16
    assert all(words and not words.endswith(".") for words in REASONS.values())


def test_settings_that_spark_cannot_parse_are_reported(spark: SparkSession) -> None:
    settings = make_settings({"schema": "m MAP<LONG, STRING>"})
    with pytest.raises(PipelineError, match="Spark cannot read json with this schema"):
        parsed(records(spark, [b"{}"]), settings)


def test_the_pipelines_settings_are_checked_before_sparks(spark: SparkSession) -> None:
    with pytest.raises(PipelineError, match="no schema is set"):
        parsed(records(spark, []), Settings())


PARTITIONED = {
    "schema": "id LONG, place STRING, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ",
    "partition_by": ["place", "day", "at", "local", "_topic", "_partition"],
}


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ('"place":null,"day":null', None),
        (f'"place":"{"a" * 249}"', None),
        (f'"place":"{"a" * 250}"', f"place is {'a' * 40}..., which makes its directory name 256 bytes long"),
        (f'"place":"{"/" * 83}"', None),
        (f'"place":"{"/" * 84}"', f"place is {'/' * 40}..., which makes its directory name 258 bytes long"),
        (f'"place":"{"ü" * 42}"', f"place is {'ü' * 40}..., which makes its directory name 258 bytes long"),
        ('"day":"0001-01-01"', None),
        ('"day":"9999-12-31"', None),
        ('"day":"+10000-01-01"', "day is +10000-01-01, not in the years 1 to 9999"),
        ('"day":"0000-12-31"', "day is 0000-12-31, not in the years 1 to 9999"),
        ('"at":"9999-12-31 23:00:00-08"', "at is +10000-01-01 07:00:00, not in the years 1 to 9999"),
        ('"local":"+10000-01-01"', "local is +10000-01-01 00:00:00, not in the years 1 to 9999"),
    ],
)
def test_partition_values_must_be_valid_directory_names(spark: SparkSession, fields: str, detail: str | None) -> None:
    (row,) = parsed_rows(spark, [f"{{{fields}}}".encode()], make_settings(PARTITIONED))
    assert row.reason == ("unfit_partition" if detail else None), row.detail
    assert detail is None or row.detail.startswith(detail)


def test_only_the_longest_topic_name_is_too_long_for_a_directory(spark: SparkSession) -> None:
    settings = make_settings({"schema": "id LONG", "partition_by": ["_topic"]})
    given = [records(spark, [b"{}"]).withColumn("topic", sf.lit("t" * length)) for length in (248, 249)]
    found = [parsed(one, settings).select("reason").first() for one in given]
    assert found == [(None,), ("unfit_partition",)]
