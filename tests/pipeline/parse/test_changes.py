"""Tombstones become deletes, and the last change of each key is found."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.changes import DELETED, IS_DELETE, KEY, changes_by_key, last_changes, with_deletes
from odradek.pipeline.parse.records import parsed
from odradek.pipeline.parse.transforms import DEAD, GOOD, OUTCOME, judged
from odradek.pipeline.settings import Settings, make_settings
from tests.pipeline.parse.parsing_records import COLUMNS, STAMP

UPSERT: dict[str, Any] = {"mode": "upsert", "upsert_keys": ["id"], "schema": "id LONG, text STRING"}
Record = tuple[int, int, bytes | None, bytes | None, float]
"""Partition, offset, key, value, and seconds after STAMP."""


def changes_of(spark: SparkSession, settings: Settings, *records: Record) -> DataFrame:
    rows: list[tuple[object, ...]] = [
        (key, value, [], "orders", partition, offset, STAMP + timedelta(seconds=seconds), 0)
        for partition, offset, key, value, seconds in records
    ]
    return with_deletes(judged(parsed(spark.createDataFrame(rows, COLUMNS), settings), None), settings)


def of_keys(spark: SparkSession, settings: Settings, *keys: bytes | None) -> list[tuple[str, Any, str]]:
    """The outcome, the key and the detail of tombstones with these keys."""
    rows = changes_of(spark, settings, *((0, offset, key, None, 0.0) for offset, key in enumerate(keys)))
    found = rows.orderBy("offset").selectExpr(OUTCOME, f"TO_JSON({KEY})", "reason", "detail").collect()
    assert all((row[0] == DEAD) == (row.reason == "no_key") for row in found)
    return [(row[0], row[1], row.detail or "") for row in found]


def test_a_tombstone_deletes_the_row_that_the_text_of_its_key_identifies(spark: SparkSession) -> None:
    settings = make_settings(UPSERT)
    found = of_keys(spark, settings, b"7", b"-1", None, b"", b"seven", b"7.5", b"\xff", b"9223372036854775808")
    assert [one[:2] for one in found[:2]] == [(DELETED, '{"id":7}'), (DELETED, '{"id":-1}')]
    assert {one[0] for one in found[2:]} == {DEAD}
    assert found[2][2] == "the value and the key are null"
    assert {one[2] for one in found[3:]} == {"the value is null, and the key is not the text of id LONG"}


@pytest.mark.parametrize(
    ("kind", "keys", "wanted"),
    [
        ("STRING", [b"", b'{"a":1}'], ['{"id":""}', '{"id":"{\\"a\\":1}"}']),
        ("BINARY", [b"\xff\x00"], ['{"id":"/wA="}']),
        ("TIMESTAMP", [b"2024-02-29T10:00:00+02:00", b"12:00"], ['{"id":"2024-02-29T08:00:00.000Z"}', "{}"]),
        ("DECIMAL(4, 1)", [b"12.5", b"1234.5"], ['{"id":12.5}', "{}"]),
    ],
)
def test_the_text_of_a_key_has_the_type_of_its_column(
    spark: SparkSession, kind: str, keys: list[bytes], wanted: list[str]
) -> None:
    found = of_keys(spark, make_settings({**UPSERT, "schema": f"id {kind}, text STRING"}), *keys)
    assert [one[:2] for one in found] == [(DEAD if key == "{}" else DELETED, key) for key in wanted]


def test_a_key_of_several_columns_is_a_json_object(spark: SparkSession) -> None:
    keys = {"schema": "id LONG, shop STRING", "upsert_keys": ["id", "shop"], "key_format": "json"}
    good = [b'{"id": 7, "shop": "a", "other": 1}', b'{"shop":"a","id":"7"}']
    bad = [b'{"id":7}', b'{"id":7,"shop":null}', b"7", b'{"id":7,"shop":"a"} x', b'{"id":"x","shop":"a"}', b"[1]", b"{"]
    found = of_keys(spark, make_settings({**UPSERT, **keys}), *good, *bad)
    assert {one[:2] for one in found[:2]} == {(DELETED, '{"id":7,"shop":"a"}')}
    assert {(one[0], one[2]) for one in found[2:]} == {
        (DEAD, "the value is null, and the key is not a JSON object with id LONG, shop STRING")
    }


def test_only_the_last_change_of_a_key_counts(spark: SparkSession) -> None:
    settings = make_settings(UPSERT)
    row = b'{"id": %d, "text": "a"}'
    records: list[Record] = [
        (0, 0, b"1", row % 1, 9),  # Replaced: the offset decides, not the timestamp.
        (0, 1, b"1", row % 1, 0),
        (0, 2, b"2", row % 2, 1),  # Deleted.
        (0, 3, b"2", None, 1),
        (0, 4, b"3", None, 5),  # Replaced: the row of the other partition is later.
        (1, 0, b"3", row % 3, 6),
        (0, 5, b"4", row % 4, 5),  # Equal timestamps: the last partition.
        (1, 1, b"4", None, 5),
        (0, 6, b"5", b"{", 7),  # A dead letter changes nothing.
        (1, 2, None, row % 5, 0),  # The key is the value's.
        (1, 3, b"6", b'{"text": "a"}', 0),  # A null key.
    ]
    changes = changes_of(spark, settings, *records)
    outcomes = {(row["partition"], row["offset"]): (row[OUTCOME], row["reason"]) for row in changes.collect()}
    dead = {place: reason for place, (outcome, reason) in outcomes.items() if outcome == DEAD}
    assert dead == {(0, 6): "not_json", (1, 3): "missing_required"}
    assert {place for place, (outcome, _) in outcomes.items() if outcome == DELETED} == {(0, 3), (0, 4), (1, 1)}
    assert {place for place, (outcome, _) in outcomes.items() if outcome == GOOD} == set(outcomes) - set(dead) - {
        *((0, 3), (0, 4), (1, 1))
    }
    last = last_changes(changes_by_key(changes, settings.upsert_keys), settings.upsert_keys).collect()
    found = sorted((one["id"], one["partition"], one["offset"], one[IS_DELETE]) for one in last)
    assert found == [(1, 0, 1, False), (2, 0, 3, True), (3, 1, 0, False), (4, 1, 1, True), (5, 1, 2, False)]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"upsert_keys": []}, "upsert-keys is empty; set it to the columns that identify a row"),
        ({"mode": "append"}, "upsert-keys is set, but mode is append; set mode to upsert"),
        ({"mode": "append", "upsert_keys": [], "key_format": "json"}, "key-format is set, but mode is append"),
        ({"upsert_keys": ["id", "text"]}, "several columns, but key-format is text; set key-format to json"),
        ({"sink": "parquet"}, "the sink parquet does not support"),
        ({"format": "raw", "schema": ""}, "the format raw does not support"),
        ({"dedup_keys": ["id"]}, "dedup-keys is set, but mode is upsert"),
        ({"window": "1 minute"}, "window is set, but mode is upsert"),
        ({"results_topic": "results"}, "results-topic is set, but mode is upsert"),
    ],
)
def test_settings_that_contradict_an_upsert_are_refused(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(PipelineError, match=problem):
        make_settings({**UPSERT, **more})


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("text STRING", "upsert-keys names id, which the schema lacks: text"),
        ("id DOUBLE", "upsert-keys names id, a DOUBLE; it must be a string, an integer, a date or a time"),
    ],
)
def test_keys_that_cannot_identify_a_row_are_refused(spark: SparkSession, schema: str, problem: str) -> None:
    with pytest.raises(PipelineError, match=problem):
        changes_of(spark, make_settings({**UPSERT, "schema": schema}))
