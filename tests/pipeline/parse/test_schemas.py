"""The schema setting, and the settings that refer to its columns."""

from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.schemas import required_columns, schema_of, window_columns
from odradek.pipeline.settings import make_settings

pytestmark = pytest.mark.usefixtures("spark")
SCHEMA = "id LONG, name STRING, at TIMESTAMP, amount DOUBLE, n STRUCT<a: INT>, tags ARRAY<STRING>"


def test_ddl_in_the_setting_and_in_a_file_are_equivalent(tmp_path: Path) -> None:
    expected = StructType([StructField("id", LongType(), False), StructField("name", StringType())])
    file = tmp_path / "orders.ddl"
    file.write_text("id LONG NOT NULL,\n  name STRING\n")
    assert schema_of(make_settings({"schema": "id LONG NOT NULL, name STRING"})) == expected
    assert schema_of(make_settings({"schema": f"@{file}"})) == expected


def test_the_raw_format_has_its_own_columns() -> None:
    assert schema_of(make_settings({"format": "raw"})).names == ["key", "value", "headers"]


def test_required_columns_are_listed_once() -> None:
    settings = make_settings(
        {"schema": "id LONG NOT NULL, a INT, b INT", "required": ["b", "id"], "dedup_keys": ["id", "a"]}
    )
    assert required_columns(schema_of(settings), settings) == ["b", "id", "a"]


def test_the_windows_table_has_its_columns() -> None:
    settings = make_settings({"window": "1 minute", "window_by": ["name"], "window_sums": ["amount", "id"]})
    assert window_columns(settings) == [
        *("window_start", "window_end", "name", "count", "sum_amount", "sum_id", "window_day")
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "no schema is set; set schema: 'id LONG, at TIMESTAMP', or @FILE"),
        ({"schema": "id LNG"}, "the schema is not DDL"),
        ({"schema": "id LONG,"}, "the schema is not DDL"),
        ({"schema": "LONG"}, "the schema has no columns"),
        ({"schema": "@/nowhere/schema.ddl"}, "the schema @/nowhere/schema.ddl cannot be read: No such file"),
        ({"schema": "id LONG, _topic STRING"}, "column _topic has a reserved name"),
        ({"schema": "id LONG, _Raw STRING"}, "column _Raw has a reserved name"),
        ({"schema": "id LONG, ID STRING"}, "the schema has column id twice; names must differ by more than case"),
        ({"schema": "n STRUCT<a: INT, A: INT>"}, "the schema in n has column a twice"),
        ({"schema": "`a b` LONG"}, "column 'a b' is empty or has a character that tables reject"),
        ({"schema": "x INTERVAL DAY TO SECOND"}, "column x is .*, which the tables do not support"),
        ({"schema": "x ARRAY<STRUCT<v: VARIANT>>"}, r"column x\[\].v is VARIANT, which the tables do not support"),
        ({"schema": "x VARCHAR(3)"}, "column x is VARCHAR"),
        ({"schema": SCHEMA, "event_time": "when"}, "event-time names when, which the schema lacks: id, name"),
        (
            {"schema": SCHEMA, "event_time": "name"},
            "event-time names name, a STRING; it must be a TIMESTAMP, or a LONG",
        ),
        ({"schema": SCHEMA, "required": ["n.a"]}, "required names n.a, which the schema lacks"),
        ({"schema": SCHEMA, "required": ["ID"]}, "required names ID, which the schema lacks"),
        ({"schema": SCHEMA, "required": ["id", "id"]}, "required has column id twice"),
        ({"schema": SCHEMA, "dedup_keys": ["uid"]}, "dedup-keys names uid"),
        ({"schema": SCHEMA, "dedup_keys": ["amount"]}, "dedup-keys names amount, a DOUBLE; it must be a string"),
        ({"schema": SCHEMA, "partition_by": ["day"]}, "partition-by names day"),
        ({"schema": SCHEMA, "partition_by": ["tags"]}, "partition-by names tags, a ARRAY<STRING>"),
        ({"schema": SCHEMA, "window": "1 minute", "window_by": ["n"]}, "window-by names n, a STRUCT<A:INT>"),
        (
            {"schema": SCHEMA, "window": "1 minute", "window_sums": ["name"]},
            "window-sums names name, a STRING; .* a number",
        ),
        ({"schema": SCHEMA, "window_sums": ["amount"]}, "window-sums is set, but window is not"),
        ({"schema": SCHEMA, "window_slide": "1 minute"}, "window-slide is set, but window is not"),
        (
            {"schema": "count LONG, at TIMESTAMP", "window": "1 minute", "window_by": ["count"]},
            "the table of windows has column count twice",
        ),
        ({"format": "raw", "schema": "id LONG"}, "format = raw takes no schema"),
        ({"format": "raw", "unknown_fields": "keep"}, "unknown-fields is keep, which is for JSON only"),
        ({"schema": SCHEMA, "message_name": "Order"}, "message-name is for Protobuf only"),
    ],
)
def test_invalid_settings_are_reported_before_a_job_starts(given: dict[str, object], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        schema_of(make_settings(given))


def test_a_binary_schema_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.desc").write_bytes(b"\xff\xfe")
    with pytest.raises(PipelineError, match="is not text; a descriptor set needs format = protobuf"):
        schema_of(make_settings({"schema": f"@{tmp_path}/x.desc"}))


def test_tables_can_be_partitioned_by_topic_and_partition() -> None:
    assert schema_of(make_settings({"schema": SCHEMA, "partition_by": ["_topic", "_partition", "name"]}))
