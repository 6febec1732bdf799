"""JSON: which values are rows, which are not, and why."""

import json
import re

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.parse.records import REASONS, parsed
from odradek.pipeline.settings import Settings, make_settings
from tests.pipeline.parse.parsing_records import parsed_rows, records

SCHEMA = (
    "l LONG, i INT, d DOUBLE, f FLOAT, s STRING, t TIMESTAMP, day DATE, dec DECIMAL(9,2), b BOOLEAN, bin BINARY, "
    "n STRUCT<a: LONG, at: TIMESTAMP, b: ARRAY<DOUBLE>>, m MAP<STRING, LONG>, ts ARRAY<TIMESTAMP>, "
    "mt MAP<STRING, TIMESTAMP>"
)

GOOD: dict[bytes, dict[str, object]] = {
    b'{"l":1,"i":2,"d":1.5,"f":0.5,"s":"x","b":true}': {"l": 1, "i": 2, "d": 1.5, "f": 0.5, "s": "x", "b": True},
    b' \n{"l" : 1}\t\r\n': {"l": 1},
    b"{}": {},
    b'{"l":null}': {},
    b'{"l":-9223372036854775808}': {"l": -(2**63)},
    b'{"d":1}': {"d": 1.0},
    b'{"dec":1.239}': {"dec": 1.24},
    b'{"dec":"1.5"}': {"dec": 1.5},
    b'{"s":5}': {"s": "5"},
    b'{"s":{"a":[1]}}': {"s": '{"a":[1]}'},
    b'{"s":""}': {"s": ""},
    b'{"s":"}{"}': {"s": "}{"},
    b'{"l":1} ': {"l": 1},
    b'{"s":"{"}': {"s": "{"},
    '{"s":"\u00e4\U0001f600"}'.encode(): {"s": "\u00e4\U0001f600"},
    b'{"s":"' + b"y" * 1_000_000 + b'"}': {"s": "y" * 1_000_000},
    b'{"bin":"eHh4"}': {"bin": "eHh4"},
    b'{"day":"2024-02-29"}': {"day": "2024-02-29"},
    b'{"t":"2024-01-31"}': {"t": "2024-01-31T00:00:00.000Z"},
    b'{"t":"2024-01-31 10:00:00"}': {"t": "2024-01-31T10:00:00.000Z"},
    b'{"t":"2024-01-31T10:00:00.123456789Z"}': {"t": "2024-01-31T10:00:00.123Z"},
    b'{"t":"2024-01-31T10:00:00+02:00"}': {"t": "2024-01-31T08:00:00.000Z"},
    b'{"n":{"a":1,"at":"2024-01-31","b":[1.5,null]}}': {
        "n": {"a": 1, "at": "2024-01-31T00:00:00.000Z", "b": [1.5, None]}
    },
    b'{"n":{"a":null}}': {"n": {}},
    b'{"m":{"k":1}}': {"m": {"k": 1}},
    b'{"ts":["2024-01-31",null]}': {"ts": ["2024-01-31T00:00:00.000Z", None]},
    b'{"mt":{"k":"2024-01-31"}}': {"mt": {"k": "2024-01-31T00:00:00.000Z"}},
    b'{"l":1,"l":2}': {"l": 2},
    b'{"L":1,"other":[1,{"l":5}]}': {},
    b'{"_corrupt":"x","_end":false,"row":1,"l":1}': {"l": 1},
}
"""Values and their rows."""

BAD: list[tuple[bytes | None, str, str]] = [
    (None, "tombstone", "the value is null"),
    (b"", "not_json", "the value is empty"),
    (b"  ", "not_json", "the value is not JSON"),
    (b"{broken", "not_json", "the value is not JSON: {broken"),
    (b'{"l":1', "not_json", 'the value is not JSON: {"l":1'),
    (b'{"s":"a', "not_json", "not JSON"),
    (b'{"l":1} xyz', "not_json", 'the value is not JSON: {"l":1} xyz'),
    (b'{"l":1}{"l":2}', "not_json", "not JSON"),
    (b'{"l":1}\n{"l":2}', "not_json", "not JSON"),
    (b'{"l":1},{"l":2}', "not_json", "not JSON"),
    (b'{"l":1}} x', "not_json", "not JSON"),
    (b'xyz {"l":1}', "not_json", "not JSON"),
    (b'{"l":1},"z":5', "not_json", "not JSON"),
    (b'{"l":1},"z":{"l":2}', "not_json", "not JSON"),
    (b'{"l":1},"row":{"l":2}', "not_json", "not JSON"),
    (b'{"l":1}, "_end":{}', "not_json", "not JSON"),
    (b'{"l":1},"_corrupt":null,"z":{}', "not_json", "not JSON"),
    (b'null,"row":{"l":2}', "not_json", "not JSON"),
    (b'{"l":1},"z":[],"row":{"l":2}} ', "not_json", "not JSON"),
    (b'{"l":1},"_end":true} x', "not_json", "not JSON"),
    (b'{"l":1},"_last":true} x', "not_json", "not JSON"),
    (b'{"l":1},"_end":true,"_last":true} x', "not_json", "not JSON"),
    (b'{"l":1,}', "not_json", "not JSON"),
    (b'{"l":01}', "not_json", "not JSON"),
    (b"{'l':1}", "not_json", "not JSON"),
    (b"{l:1}", "not_json", "not JSON"),
    (b'{"l":1}/*c*/', "not_json", "not JSON"),
    (b'{"d":NaN}', "not_json", "not JSON"),
    (b'{"d":-Infinity}', "not_json", "not JSON"),
    (b'{"s":"\x01"}', "not_json", "not JSON"),
    (b'{"other":' + b"[" * 5000 + b"]" * 5000 + b"}", "not_json", r"not JSON: {\"other\":\[{51}\.\.\.$"),
    (b'\x00\x00\x00\x00\x01{"l":1}', "not_json", "begins with byte 0, like a schema registry's frame"),
    (b'{"s":"\xff\xfe"}', "not_utf8", "not UTF-8"),
    ('{"l":1}'.encode("utf-16"), "not_utf8", "not UTF-8"),
    (b"null", "wrong_type", "the value is not an object: null"),
    (b"[]", "wrong_type", r"the value is not an object: \[\]"),
    (b'[{"l":1}]', "wrong_type", "the value is not an object"),
    (b"5", "wrong_type", "the value is not an object: 5"),
    (b'"{x"', "wrong_type", "the value is not an object: {x"),
    (b'{"l":"1"}', "wrong_type", '^l is not LONG: "1"$'),
    (b'{"l":1.0}', "wrong_type", r"^l is not LONG: 1\.0$"),
    (b'{"l":true}', "wrong_type", "l is not LONG: true"),
    (b'{"l":9223372036854775808}', "wrong_type", "l is not LONG: 9223372036854775808"),
    (b'{"i":3000000000}', "wrong_type", "i is not INT: 3000000000"),
    (b'{"l":[1],"i":{"a":1},"s":"x"}', "wrong_type", r'^l is not LONG: \[1\]; i is not INT: {"a":1}$'),
    (b'{"d":"1.5"}', "wrong_type", 'd is not DOUBLE: "1.5"'),
    (b'{"d":"NaN"}', "wrong_type", "d is not DOUBLE"),
    (b'{"d":1e400}', "wrong_type", "d is not DOUBLE"),
    (b'{"d":-1e400}', "wrong_type", "d is not DOUBLE"),
    (b'{"f":1e300}', "wrong_type", "f is not FLOAT"),
    (b'{"dec":12345678.12}', "wrong_type", r"dec is not DECIMAL\(9,2\)"),
    (b'{"b":"true"}', "wrong_type", "b is not BOOLEAN"),
    (b'{"bin":"??"}', "wrong_type", "bin is not BINARY"),
    (b'{"day":"2024-02-30"}', "wrong_type", "day is not DATE"),
    (b'{"day":19000}', "wrong_type", "day is not DATE"),
    (b'{"t":"nope"}', "wrong_type", 't is not TIMESTAMP: "nope"'),
    (b'{"t":""}', "wrong_type", 't is not TIMESTAMP: ""'),
    (b'{"t":"12:00"}', "wrong_type", "t is not TIMESTAMP"),
    (b'{"t":"T12:00"}', "wrong_type", "t is not TIMESTAMP"),
    (b'{"t":"2024-02-30"}', "wrong_type", "t is not TIMESTAMP"),
    (b'{"t":1704067200}', "wrong_type", "t is not TIMESTAMP: 1704067200"),
    (b'{"t":9223372036854775}', "wrong_type", "t is not TIMESTAMP"),
    (b'{"n":5,"l":3}', "wrong_type", "n is not STRUCT<.*>: 5"),
    (b'{"n":[]}', "wrong_type", "n is not STRUCT"),
    (b'{"n":{"a":"x"}}', "wrong_type", "a value inside n, m, ts, mt is not of its type"),
    (b'{"n":{"b":[1,1e999]}}', "wrong_type", "n is not STRUCT"),
    (b'{"n":{"at":"12:00"}}', "wrong_type", "n is not STRUCT"),
    (b'{"m":{"k":"x"}}', "wrong_type", "m is not MAP"),
    (b'{"ts":["2024-01-31","12:00"]}', "wrong_type", "ts is not ARRAY"),
    (b'{"mt":{"k":5}}', "wrong_type", "mt is not MAP"),
    (b'{"l":"' + b"9" * 1_000_000 + b'"}', "wrong_type", r'^l is not LONG: "9{59}\.\.\.$'),
]
"""Values, the reason why they are not rows, and the detail."""


@pytest.fixture(scope="module")
def settings() -> Settings:
    return make_settings({"schema": SCHEMA})


def test_json_values_become_typed_rows(spark: SparkSession, settings: Settings) -> None:
    rows = parsed_rows(spark, list(GOOD), settings)
    verdicts = [(row.reason, row.detail, json.loads(row.shown or "null")) for row in rows]
    assert verdicts == [(None, None, expected) for expected in GOOD.values()]


def test_each_dead_letter_has_a_reason_and_a_detail(spark: SparkSession, settings: Settings) -> None:
    rows = parsed_rows(spark, [value for value, _, _ in BAD], settings)
    assert [(row.value, row.reason) for row in rows] == [(value, reason) for value, reason, _ in BAD]
    unlike = [
        (row.detail, detail) for row, (_, _, detail) in zip(rows, BAD, strict=True) if not re.search(detail, row.detail)
    ]
    assert not unlike
    assert all(row.shown is None and row.event_time is None and row.reason in REASONS for row in rows)


def test_a_bad_field_is_found_after_a_good_row(spark: SparkSession, settings: Settings) -> None:
    values = [b'{"l":1}', b'{"l":"x"}', b'{"l":3}', None, b'{"l":5}'] * 3
    assert [row.reason for row in parsed_rows(spark, values, settings)] == [
        None,
        "wrong_type",
        None,
        "tombstone",
        None,
    ] * 3


def test_each_record_is_parsed_once(spark: SparkSession) -> None:
    """The plan has one parser for the schema; the others are in conditions that only bad records meet."""
    settings = make_settings({"schema": "id LONG, s STRING, at TIMESTAMP", "event_time": "at", "required": ["id", "s"]})
    plan = physical_plan(spark, settings)
    assert plan.count("from_json(StructField(row,StructType(StructField(id,") == 1
    line = next(line for line in plan.splitlines() if "from_json(StructField(row,StringType" in line)
    assert re.search(r"WHEN .* THEN element_at\(transform\(array\(from_json\(StructField\(row,StringType", line)
    assert "json_object_keys" not in plan, "names are read where unknown fields matter"


@pytest.mark.parametrize("unknown_fields", ["keep", "reject"])
def test_unknown_fields_are_found_without_another_parse(spark: SparkSession, unknown_fields: str) -> None:
    settings = make_settings({"schema": "id LONG", "unknown_fields": unknown_fields})
    assert physical_plan(spark, settings).count("from_json(StructField(row,StructType(") == 1


def physical_plan(spark: SparkSession, settings: Settings) -> str:
    rows = parsed(records(spark, [b"{}"]), settings)
    return str(rows._jdf.queryExecution().executedPlan().toString())


THIRD = '{"ID":3,"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}'
GROWN = [b'{"id":1}', b'{"id":2,"new":1}', THIRD.encode(), b'{"id":"x","new":1}', b"{", None]
"""Records of a newer schema: the second and third have additional fields."""


def test_unknown_fields_are_ignored_by_default(spark: SparkSession) -> None:
    rows = parsed_rows(spark, GROWN, make_settings({"schema": "id LONG"}))
    assert [row.reason for row in rows] == [None, None, None, "wrong_type", "not_json", "tombstone"]
    assert "_raw" not in rows[0]


def test_unknown_fields_are_kept_as_the_raw_record(spark: SparkSession) -> None:
    rows = parsed_rows(spark, GROWN, make_settings({"schema": "id LONG", "unknown_fields": "keep"}))
    assert [row.reason for row in rows] == [None, None, None, "wrong_type", "not_json", "tombstone"]
    assert [row["_raw"] for row in rows] == [None, '{"id":2,"new":1}', THIRD, None, None, None]


def test_unknown_fields_make_a_record_dead(spark: SparkSession) -> None:
    rows = parsed_rows(spark, GROWN, make_settings({"schema": "id LONG", "unknown_fields": "reject"}))
    assert [row.reason for row in rows] == [
        None,
        "unknown_field",
        "unknown_field",
        "wrong_type",
        "not_json",
        "tombstone",
    ]
    assert [row.detail for row in rows][1:3] == ["not in the schema: new", "not in the schema: ID, a, b, c, d"]
