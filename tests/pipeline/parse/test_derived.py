"""Derived columns, and the rows that `where` leaves out."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.derived import FILTERED
from odradek.pipeline.parse.records import parsed
from odradek.pipeline.parse.schemas import schema_of
from odradek.pipeline.parse.transforms import good_rows
from odradek.pipeline.settings import Settings, make_settings
from tests.pipeline.parse.parsing_records import parsed_rows, records

SCHEMA = "id LONG, at TIMESTAMP, amount DOUBLE, `key` STRING, `a.b` STRING"


def settings_of(**given: Any) -> Settings:
    return make_settings({"schema": SCHEMA, "event_time": "at", **given})


def test_derived_columns_use_the_row_the_record_and_those_above_them(spark: SparkSession) -> None:
    columns = {
        "day": "date(at)",
        "month": "month(day)",
        "of_key": "cast(_key as string) || key",
        "trace": "cast(_headers[0].value as string)",
        "place": "_topic || '-' || _partition || '-' || _offset",
        "dotted": "`a.b`",
    }
    settings = settings_of(columns=columns, partition_by=["day"], dedup_keys=["id", "of_key"], window="1 minute",
                           window_by=["month"], window_sums=["month"])  # fmt: skip
    value = b'{"id":1,"at":"2024-05-06T23:59:00Z","key":"!","a.b":"x"}'
    row = good_rows(parsed(records(spark, [value]), settings), settings).drop("at", "_timestamp").first()
    assert row is not None
    assert row.asDict() == {
        "id": 1, "amount": None, "key": "!", "a.b": "x", "day": date(2024, 5, 6), "month": 5, "of_key": "key!",
        "trace": "1", "place": "orders-0-0", "dotted": "x", "_topic": "orders", "_partition": 0, "_offset": 0,
    }  # fmt: skip


def test_a_derived_column_is_checked_like_one_of_the_schema(spark: SparkSession) -> None:
    settings = settings_of(columns={"half": "amount / 2", "text": "cast(_value as string)"}, required=["half"])
    rows = parsed_rows(spark, [b'{"id":1,"at":"2024-01-01","amount":1}', b'{"id":1,"at":"2024-01-01"}'], settings)
    assert [row.reason for row in rows] == [None, "missing_required"]
    raw = make_settings({"format": "raw", "columns": {"text": "cast(value as string)"}})
    assert [row.reason for row in parsed_rows(spark, ["ü".encode(), b"\xff"], raw)] == [None, "not_utf8"]


def test_the_event_time_can_be_derived(spark: SparkSession) -> None:
    settings = make_settings(
        {"schema": "at STRING", "columns": {"when": "try_to_timestamp(at, 'dd.MM.yyyy')"}, "event_time": "when"}
    )
    good, bad = parsed_rows(spark, [b'{"at":"31.12.2024"}', b'{"at":"12/31/2024"}'], settings)
    assert (good.reason, good.event_time.date()) == (None, date(2024, 12, 31))
    assert bad.reason == "no_event_time"


def test_where_leaves_out_rows_for_which_it_does_not_hold_but_no_broken_record(spark: SparkSession) -> None:
    settings = settings_of(columns={"twice": "amount * 2"}, where="twice > 10", required=["id"])
    values = [
        b'{"id":1,"at":"2024-01-01","amount":6}',
        b'{"at":"2024-01-01","amount":5}',
        b'{"at":"2024-01-01"}',
        b'{"at":"2024-01-01","amount":6}',
        b'{"amount":',
        b'{"amount":"x"}',
        None,
    ]
    rows = parsed_rows(spark, values, settings)
    assert [row.reason for row in rows] == [
        *(None, FILTERED, FILTERED, "missing_required", "not_json", "wrong_type", "tombstone")
    ]
    assert [row.detail for row in rows[:3]] == [None] * 3


def test_expressions_are_not_evaluated_for_rejected_records(spark: SparkSession) -> None:
    settings = settings_of(columns={"never": "raise_error('evaluated') || ''"}, where="never is null")
    assert [row.reason for row in parsed_rows(spark, [b"{", None], settings)] == ["not_json", "tombstone"]


def test_columns_of_the_record_are_chosen_by_setting(spark: SparkSession) -> None:
    settings = settings_of(record_columns=["_offset", "_key", "_headers"])
    row = good_rows(parsed(records(spark, [b'{"at":"2024-01-01"}']), settings), settings).first()
    assert row is not None
    assert row.asDict(recursive=True) == {
        "id": None, "at": row.at, "amount": None, "key": None, "a.b": None,
        "_offset": 0, "_key": b"key", "_headers": [{"key": "trace", "value": b"1"}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"columns": {"day": "date(at"}},
            r"day: 'date\(at' is not an SQL expression of a row: .*PARSE_SYNTAX",
        ),
        ({"columns": {"day": "dat(at)"}}, "columns: day: .*UNRESOLVED_ROUTINE"),
        ({"columns": {"day": "date(att)"}}, "columns: day: .*UNRESOLVED_COLUMN.*`at`"),
        ({"columns": {"two": "month(one)", "one": "date(at)"}}, "columns: two: .*UNRESOLVED_COLUMN"),
        ({"columns": {"day": "date(amount)"}}, "columns: day: .*DATATYPE_MISMATCH"),
        ({"columns": {"all": "sum(amount)"}}, "looks at other rows or tables; use the columns of one row"),
        ({"columns": {"n": "row_number() over (order by id)"}}, "looks at other rows"),
        ({"columns": {"one": "(select 1)"}}, "looks at other rows or tables"),
        ({"columns": {"each": "explode(array(1, 2))"}}, "UNSUPPORTED_GENERATOR"),
        ({"columns": {"luck": "rand()"}}, "'rand\\(\\)' depends on chance or the clock; use the record's _timestamp"),
        ({"where": "at > now()"}, "depends on chance or the clock"),
        ({"columns": {"id": "1"}}, "columns: id is in the schema already"),
        ({"columns": {"ID": "1"}}, "columns: ID is in the schema already"),
        ({"columns": {"_topic": "'t'"}}, "column _topic has a reserved name"),
        ({"columns": {"a b": "1"}}, "has a character that tables reject"),
        ({"columns": {"none": "null"}}, "column none is VOID, which the tables do not support"),
        ({"columns": {"day": "1"}, "event_time": "day"}, "event-time names day, a INT; it must be a TIMESTAMP"),
        ({"where": "amount"}, "where: 'amount' is DOUBLE, not BOOLEAN; compare it"),
        ({"where": "amount >"}, "where: 'amount >' is not an SQL expression"),
        ({"schema": "at TIMESTAMP, _key STRING", "where": "true"}, "see the record as _key, which the schema has, too"),
        ({"schema": "at TIMESTAMP, _key STRING", "record_columns": ["_key"]}, "column _key has a reserved name"),
        ({"record_columns": ["offset"]}, "record-columns names offset, which is not one of _topic"),
        ({"record_columns": ["_topic", "_topic"]}, "record-columns has column _topic twice"),
        (
            {"record_columns": ["_topic"], "dedup_keys": ["id"]},
            "lacks _partition, which dedup-keys needs",
        ),
        ({"record_columns": [], "partition_by": ["_topic"]}, "record-columns lacks _topic, which partition-by needs"),
    ],
)
def test_invalid_columns_are_reported_at_the_start(spark: SparkSession, given: dict[str, Any], says: str) -> None:
    with pytest.raises(PipelineError, match=says) as caught:
        schema_of(settings_of(**given))
    assert "\n" not in str(caught.value)


def test_a_schema_may_still_have_the_names_of_columns_on_request(spark: SparkSession) -> None:
    assert schema_of(make_settings({"schema": "_key STRING"})).names == ["_key"]
