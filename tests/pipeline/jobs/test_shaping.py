"""Derived columns, rows left out, the hook and rules, through an ingest: counted, and exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import ingest, report
from odradek.pipeline.parse import hook
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.jobs.test_changed_settings import stopped
from tests.pipeline.lake import check_ledger, check_tables, order, read_by_arrow, send

SHAPED = {
    "columns": {"day": "date(at)", "name": "upper(customer)"},
    "partition_by": ("day",),
    "record_columns": ("_topic", "_partition", "_offset", "_timestamp", "_key"),
    "where": "id % 5 <> 0",
    "transform": "tests.pipeline.shop:without_sevens",
    "rules": {"amount": "amount < 14", "small": "warn: amount > 4"},
}


@pytest.fixture
def shaped(orders: Settings) -> Settings:
    return replace(orders, max_offsets_per_trigger=25, dedup_keys=("id",), **SHAPED)  # type: ignore[arg-type]


def test_every_record_is_counted_wherever_the_ingest_is_stopped(
    spark: SparkSession, broker: BrokerThread, shaped: Settings, topic: str
) -> None:
    send(broker.bootstrap, topic, [*(order(number % 30, number % 30) for number in range(40)), b"{", None])
    for point in ("read", "dead_letters: committed", "rows: files written", "rows: committed", "ledger: committed"):
        assert stopped(shaped, point, 1), point
    assert ingest.run(shaped) == 0
    rows = check_tables(spark, shaped)
    # Of 40 ids from 0 to 29: 8 end in 0 or 5, 4 in 7. Of the others (28), 28 and 29 have amounts of 14 and more.
    names = ("rows_in", "filtered", "dropped", "dead", "good", "duplicates")
    assert [sum(getattr(row, name) for row in rows) for name in names] == [42, 8, 4, 4, 19, 7]
    assert sum(row.warnings.get("small", 0) for row in rows) == 12  # The ids 1, 2, 3, 4, 6 and 8, twice each.
    table = DeltaTable(Places.of(shaped).rows.url)
    assert table.metadata().partition_columns == ["day"]
    found = read_by_arrow(Places.of(shaped).rows, ["id", "day", "name", "_key"])
    assert {(str(one["day"]), one["name"] == f"C{one['id'] % 5}", one["_key"].isdigit()) for one in found} == {
        ("2023-11-14", True, True)
    }
    out = StringIO()
    report.run(shaped, out)
    assert "rows in    42 = 19 good + 4 dead + 7 duplicates + 0 late + 8 filtered + 4 dropped, 0 lost" in out.getvalue()
    assert "rejected   2 rule:amount" in out.getvalue()
    assert "warned     12 small" in out.getvalue()


@pytest.mark.usefixtures("spark")
def test_rows_left_out_are_no_dead_letters_when_rows_are_written_in_one_pass(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(
        orders,
        columns={"day": "date(at)"},
        where="id % 4 <> 0",
        record_columns=("_offset", "_key"),
        partition_by=("day",),
        max_offsets_per_trigger=100,
    )
    send(broker.bootstrap, topic, [*(order(number, number) for number in range(20)), b"{"])
    assert ingest.run(settings) == 0
    (row,) = check_ledger(settings)
    assert (row.rows_in, row.good, row.filtered, row.reasons) == (21, 15, 5, {"not_json": 1})
    found = read_by_arrow(Places.of(settings).rows, ["id", "_key", "day"])
    assert {(one["id"], int(one["_key"]), str(one["day"])) for one in found} == {
        (number, number, "2023-11-14") for number in range(20) if number % 4
    }


@pytest.mark.usefixtures("spark")
def test_a_transform_that_raises_stops_the_ingest_and_is_repaired(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    send(broker.bootstrap, topic, [order(number, number) for number in range(10)])
    with pytest.raises(PipelineError) as caught:
        ingest.run(replace(orders, transform="tests.pipeline.shop:raising_later"))
    assert str(caught.value) == "transform tests.pipeline.shop:raising_later raised an error: ValueError: no such rows"
    with pytest.raises(PipelineError, match="shop:twice returns the rows of 1 records more than once"):
        ingest.run(replace(orders, transform="tests.pipeline.shop:twice"))
    assert check_ledger(orders) == []
    assert ingest.run(replace(orders, transform="tests.pipeline.shop:without_sevens")) == 0
    (row,) = check_ledger(orders)
    assert (row.rows_in, row.good, row.dropped) == (10, 9, 1)


@pytest.mark.usefixtures("spark")
def test_a_batch_with_too_many_violations_is_written_when_the_rule_allows_them(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    send(broker.bootstrap, topic, [order(number, number) for number in range(20)])
    strict = replace(orders, rules={"amount": "fail above 5 %: amount < 4.5"})
    with pytest.raises(PipelineError, match=r"2 of 20 rows violate the rule amount \(amount < 4\.5\), 10 %, "):
        ingest.run(strict)
    assert check_ledger(orders) == []
    lenient = replace(orders, rules={"amount": "fail above 10 %: amount < 4.5"})
    assert ingest.run(lenient) == 0
    (row,) = check_ledger(orders)
    assert (row.good, row.reasons) == (18, {"rule:amount": 2})


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module in the current directory, which each job loads anew like a process of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_transform.py").write_text("def same(rows):\n    return rows\n")
    hook.load.cache_clear()
    yield tmp_path / "my_transform.py"
    hook.load.cache_clear()


@pytest.mark.usefixtures("spark")
def test_a_batch_is_finished_only_by_the_transform_that_began_it(
    broker: BrokerThread, orders: Settings, topic: str, own_module: Path
) -> None:
    settings, before = replace(orders, transform="my_transform:same"), own_module.read_text()
    send(broker.bootstrap, topic, [order(number, number) for number in range(10)])
    assert stopped(settings, "read", 1)
    own_module.write_text(before + "# Nothing was written, so the batch is planned again.\n")
    hook.load.cache_clear()
    assert stopped(settings, "rows: committed", 1)
    hook.load.cache_clear()
    own_module.write_text(before)
    with pytest.raises(PipelineError, match="another version of the module of transform my_transform:same; "):
        ingest.run(settings)
    own_module.write_text(before + "# Nothing was written, so the batch is planned again.\n")
    hook.load.cache_clear()
    assert ingest.run(settings) == 0
    (row,) = check_ledger(settings)
    assert (row.rows_in, row.good) == (10, 10)
