"""The hook `transform`: what it may do, and the detection of what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.hook import dropped_rows, load
from odradek.pipeline.parse.records import checked, decoded, parsed
from odradek.pipeline.settings import Settings, make_settings
from tests.pipeline.lake import order
from tests.pipeline.parse.parsing_records import records


def settings_of(function: str) -> Settings:
    schema = "id LONG, customer STRING, amount DOUBLE, at TIMESTAMP"
    return make_settings({"schema": schema, "transform": f"tests.pipeline.shop:{function}", "required": ["id"]})


def applied(spark: SparkSession, function: str) -> tuple[DataFrame, int]:
    """The rows of ten orders and a broken record after the function, and how many it dropped."""
    settings = settings_of(function)
    given = records(spark, [*(order(number, number) for number in range(10)), b"{"])
    whole, detail = decoded(given, settings)
    rows = checked(whole.persist(), detail, settings).persist()
    return rows.orderBy("offset"), dropped_rows(whole, rows, settings)


def test_it_changes_and_drops_rows_that_were_not_rejected(spark: SparkSession) -> None:
    rows, dropped = applied(spark, "without_sevens")
    found = rows.select("offset", "data.id", "data.amount", "reason").collect()
    assert [tuple(row) for row in found] == [
        *((n, n, n / 2, None) for n in range(10) if n != 7),
        (10, None, None, "not_json"),
    ]
    assert dropped == 1


@pytest.mark.parametrize(("function", "factor"), [("doubled", 2), ("reordered", 1)])
def test_its_columns_may_be_in_another_order_and_its_functions_run_on_executors(
    spark: SparkSession, function: str, factor: int
) -> None:
    rows, dropped = applied(spark, function)
    found = rows.where("reason is null").select("data.amount").collect()
    assert [row.amount for row in found] == [factor * n / 4 for n in range(10)]
    assert dropped == 0


@pytest.mark.parametrize(("function", "reason"), [("not_utf8", "not_utf8"), ("without_id", "missing_required")])
def test_its_rows_are_checked(spark: SparkSession, function: str, reason: str) -> None:
    rows, dropped = applied(spark, function)
    assert [(row.offset, row.reason) for row in rows.where("reason is not null").collect()] == [
        (3, reason),
        (10, "not_json"),
    ]
    assert dropped == 0


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("raising", r"transform tests\.pipeline\.shop:raising raised ValueError: no such rows$"),
        ("of_an_unknown_column", r"transform .* failed: \[UNRESOLVED_COLUMN.*colour"),
        ("nothing", "returned NoneType; return a DataFrame"),
        ("without_a_column", "other columns than it gets: it lacks amount, has total in addition; return the same"),
        ("of_another_type", "it has id as string instead of bigint"),
        ("no_function", r"shop\.py has no function no_function; define it there"),
        ("not_a_function", r"shop\.py has no function not_a_function"),
    ],
)
def test_a_function_that_fails_is_reported_before_any_record_is_read(
    spark: SparkSession, function: str, says: str
) -> None:
    with pytest.raises(PipelineError, match=says) as caught:
        parsed(records(spark, []), settings_of(function))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("twice", "returns the rows of 1 records more than once; return at most one row for each row"),
        ("moved", "returns 1 rows that are not of a record of the batch, or have changed columns of the record"),
        ("with_another_value", "returns 1 rows that .* have changed columns of the record"),
    ],
)
def test_rows_that_are_not_of_one_record_are_detected(spark: SparkSession, function: str, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        applied(spark, function)


def test_a_module_is_found_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hook_found_here.py").write_text("def same(rows):\n    return rows\n")
    (tmp_path / "hook_broken_here.py").write_text("import hook_that_is_nowhere\n")
    assert load("hook_found_here:same").function(1) == 1  # type: ignore[arg-type]
    for name, says in (
        ("hook_broken_here:same", "importing hook_broken_here failed: ModuleNotFoundError: No module named 'hook_that"),
        ("hook_nowhere:same", "there is no module hook_nowhere; put it into the current directory"),
        ("hook_nowhere.more:same", "importing hook_nowhere.more failed"),
        ("same", "transform is 'same', not a function; set it to 'module:function'"),
        ("a:b.c", "transform is 'a:b.c', not a function"),
    ):
        with pytest.raises(PipelineError, match=says):
            load(name)
