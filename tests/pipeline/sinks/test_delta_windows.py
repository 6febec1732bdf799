"""Windows in a Delta table: sums add up, a batch is added once, and a merge does not touch files of other days."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.transforms import windowed
from odradek.pipeline.settings import make_settings
from odradek.pipeline.sinks import delta_windows
from odradek.pipeline.sinks.compaction import compact_table
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.delta_windows import DeltaWindows
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location
from tests.pipeline.lake import read_by_arrow, same_rows

Event = tuple[str, str | None, int]
"""The event's time, its kind, and the value to sum."""

SETTINGS = make_settings({"window": "1 minute", "window_by": ["kind"], "window_sums": ["n"]})


def batch(number: int) -> BatchId:
    return BatchId("orders", number)


def windows_of(spark: SparkSession, *events: Event) -> DataFrame:
    rows = spark.createDataFrame(list(events), "at STRING, kind STRING, n LONG")
    parsed = rows.selectExpr("CAST(at || 'Z' AS TIMESTAMP) AS event_time", "named_struct('kind', kind, 'n', n) AS data")
    return windowed(parsed, SETTINGS)


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> DeltaWindows:
    sink = DeltaWindows(Location(str(tmp_path / "windows")), ["kind"])
    sink.prepare(windows_of(spark).schema)
    return sink


def files_of_days(sink: DeltaWindows) -> dict[str, set[str]]:
    """The days and data files of the newest version."""
    days: dict[str, set[str]] = {}
    for file in DeltaTable(sink.place).file_uris():
        path = Path(file)
        days.setdefault(path.parent.name.removeprefix("window_day="), set()).add(str(path))
    return days


def files_that_went(sink: DeltaWindows) -> set[str]:
    """The files that the newest commit removed."""
    newest = max((sink.place.path / "_delta_log").glob("*.json"))
    entries = [json.loads(line) for line in newest.read_text().splitlines()]
    return {str(sink.place.path / entry["remove"]["path"]) for entry in entries if "remove" in entry}


@contextlib.contextmanager
def unreadable(files: set[str]) -> Iterator[None]:
    """Makes the files unreadable during the block."""
    contents = {Path(file): Path(file).read_bytes() for file in files}
    for path in contents:
        path.write_bytes(b"spoilt")
    yield
    for path, content in contents.items():
        path.write_bytes(content)


def found(sink: DeltaWindows) -> list[tuple[object, ...]]:
    columns = ["window_day", "kind", "count", "sum_n"]
    rows = [tuple(row[name] for name in columns) for row in read_by_arrow(sink.place, columns)]
    return sorted((str(day), kind, count, int(total)) for day, kind, count, total in rows)


def test_a_batch_is_added_to_its_windows_once(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaWindows(Location(str(tmp_path / "windows")), ["kind"])

    def of(*rows: tuple[str | None, int, int | None, str | None]) -> DataFrame:
        content = spark.createDataFrame(list(rows), "kind STRING, count LONG, sum_n LONG, price STRING")
        return content.selectExpr(
            "TIMESTAMP '2024-01-01 00:00:00' AS window_start",
            "TIMESTAMP '2024-01-01 00:01:00' AS window_end",
            *("kind", "count", "sum_n", "CAST(price AS DECIMAL(20, 2)) AS sum_price"),
            "DATE '2024-01-01' AS window_day",
        )

    sink.prepare(of().schema)
    sink.add(of(("a", 2, 5, "1.50"), (None, 1, None, None)), batch(0))
    sink.add(of(("a", 2, 5, "1.50")), batch(0))
    sink.add(of(("a", 3, None, "0.25"), (None, 1, 4, None), ("b", 1, 1, "9.99")), batch(1))
    wanted: list[dict[str, Any]] = [
        {"kind": "a", "count": 5, "sum_n": 5, "sum_price": Decimal("1.75")},
        {"kind": None, "count": 2, "sum_n": 4, "sum_price": None},
        {"kind": "b", "count": 1, "sum_n": 1, "sum_price": Decimal("9.99")},
    ]
    same_rows(read_by_arrow(sink.place, ["kind", "count", "sum_n", "sum_price"]), wanted)
    assert pa.schema(DeltaTable(sink.place).schema()).field("sum_price").type == pa.decimal128(20, 2)
    assert sink.last_batch(batch(1)) == 1


@pytest.mark.parametrize("most_days", [delta_windows.MOST_DAYS, 1])
def test_a_merge_reads_and_rewrites_only_the_files_of_its_days(
    spark: SparkSession, sink: DeltaWindows, most_days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_windows, "MOST_DAYS", most_days)
    sink.add(windows_of(spark, *((f"2024-01-0{day} 10:00:30", "a", day) for day in range(1, 8))), batch(0))
    before = files_of_days(sink)
    touched = before["2024-01-03"] | before["2024-01-04"]
    others = {file for files in before.values() for file in files} - touched
    more = windows_of(spark, ("2024-01-03 10:00:59", "a", 10), ("2024-01-04 10:00:00", "a", 10))
    with unreadable(others):
        assert sink.add(more, batch(1)).rows == 2
        assert sink.add(more, batch(1)).rows == 0, "the batch is there"
    assert files_that_went(sink) == touched
    wanted = {day: (1, day) for day in range(1, 8)} | {3: (2, 13), 4: (2, 14)}
    assert found(sink) == [(f"2024-01-0{day}", "a", *sums) for day, sums in wanted.items()]


def test_a_new_day_is_added_without_reading_other_days(spark: SparkSession, sink: DeltaWindows) -> None:
    sink.add(windows_of(spark, ("2024-01-01 10:00:00", None, 1)), batch(0))
    with unreadable(files_of_days(sink)["2024-01-01"]):
        sink.add(windows_of(spark, ("2024-01-02 10:00:00", None, 2)), batch(1))
    assert files_that_went(sink) == set()
    assert found(sink) == [("2024-01-01", None, 1, 1), ("2024-01-02", None, 1, 2)]


def test_the_first_and_last_days_are_merged(spark: SparkSession, sink: DeltaWindows) -> None:
    times = ["0001-01-01 00:00:00", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "9999-12-31 23:59:59.999999"]
    for number in range(2):
        sink.add(windows_of(spark, *((time, "a", 1) for time in times)), batch(number))
    assert found(sink) == [(time[:10], "a", 2, 2) for time in times]


def test_windows_after_the_last_representable_day_are_kept_apart(spark: SparkSession, sink: DeltaWindows) -> None:
    events = spark.sql(
        "SELECT timestamp_seconds(253402300800 + 60 * id) AS event_time, named_struct('kind', 'a', 'n', id) AS data "
        "FROM range(3)"
    )
    for number in range(2):
        sink.add(windowed(events, SETTINGS), batch(number))
    assert found(sink) == [("9999-12-31", "a", 2, 2 * total) for total in range(3)]


def test_the_day_of_a_window_is_in_utc(spark: SparkSession) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        windows = windows_of(spark, ("2024-01-02 00:00:00", "a", 1), ("2024-01-01 23:59:59", "b", 1))
        days = windows.selectExpr("kind", "unix_date(window_day)").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    epoch = date(1970, 1, 1)
    assert {(kind, epoch + timedelta(day)) for kind, day in days} == {("a", date(2024, 1, 2)), ("b", date(2024, 1, 1))}


def test_a_table_that_is_not_partitioned_by_days_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    place = Location(str(tmp_path / "windows"))
    earlier = windows_of(spark).drop("window_day").schema
    DeltaSink(place, "windows").prepare(earlier)
    with pytest.raises(PipelineError, match="not partitioned by window_day: it is from an earlier version"):
        DeltaWindows(place, ["kind"]).prepare(windows_of(spark).schema)
    assert DeltaTable(place).version() == 0


def test_a_closed_day_is_compacted_and_late_events_are_added_to_it(spark: SparkSession, sink: DeltaWindows) -> None:
    for number in range(3):
        day_of_number = [(f"2024-01-0{day} 10:0{number}:00", "a", 1) for day in (1, 2)]
        sink.add(windows_of(spark, *day_of_number), batch(number))
    assert {day: len(files) for day, files in files_of_days(sink).items()} == {"2024-01-01": 3, "2024-01-02": 3}
    done = compact_table("windows", sink.place, 1 << 27, timedelta(days=7), datetime(2024, 1, 2, 12, tzinfo=UTC))
    assert (done.files_before, done.files_after) == (6, 4)
    assert len(files_of_days(sink)["2024-01-01"]) == 1
    sink.add(windows_of(spark, ("2024-01-01 10:01:30", "a", 41)), batch(3))
    closed = [("2024-01-01", "a", 1, 1), ("2024-01-01", "a", 1, 1), ("2024-01-01", "a", 2, 42)]
    assert found(sink) == [*closed, *[("2024-01-02", "a", 1, 1)] * 3]
