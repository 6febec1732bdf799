"""Windows in an Iceberg table: sums add up, a batch is added once, and a merge does not touch files of other days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.transforms import windowed
from odradek.pipeline.sinks.iceberg import windows
from odradek.pipeline.sinks.iceberg.compaction import compact_iceberg
from odradek.pipeline.sinks.iceberg.sink import IcebergSink
from odradek.pipeline.sinks.iceberg.tables import TablePlace
from odradek.pipeline.sinks.iceberg.windows import IcebergWindows
from odradek.pipeline.state.location import Location
from tests.pipeline.lake import open_iceberg, read_by_arrow, same_rows
from tests.pipeline.sinks.test_delta_windows import SETTINGS, batch, unreadable, windows_of
from tests.pipeline.sinks.test_iceberg_sink import before_commit


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> IcebergWindows:
    sink = IcebergWindows(Location(str(tmp_path / "windows")), ["kind"], sleep=lambda _: None)
    sink.prepare(windows_of(spark).schema)
    return sink


def files_of_days(sink: IcebergWindows) -> dict[str, set[str]]:
    """The days and data files of the newest version."""
    days: dict[str, set[str]] = {}
    for task in open_iceberg(sink.place).scan().plan_files():
        path = Path(task.file.file_path.removeprefix("file://"))
        days.setdefault(path.parent.name.removeprefix("window_day="), set()).add(str(path))
    return days


def every_file(sink: IcebergWindows) -> set[str]:
    return {file for files in files_of_days(sink).values() for file in files}


def found(sink: IcebergWindows) -> list[tuple[object, ...]]:
    columns = ["window_day", "kind", "count", "sum_n"]
    rows = [tuple(row[name] for name in columns) for row in read_by_arrow(sink.place, columns)]
    return sorted((str(day), kind, count, int(total)) for day, kind, count, total in rows)


def test_a_batch_is_added_to_its_windows_once(spark: SparkSession, tmp_path: Path) -> None:
    sink = IcebergWindows(Location(str(tmp_path / "windows")), ["kind"])

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
    assert open_iceberg(sink.place).schema().as_arrow().field("sum_price").type == pa.decimal128(20, 2)
    assert sink.last_batch(batch(1)) == 1


@pytest.mark.parametrize("most_days", [windows.MOST_DAYS, 1])
def test_a_merge_reads_and_rewrites_only_the_files_of_its_days(
    spark: SparkSession, sink: IcebergWindows, most_days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "MOST_DAYS", most_days)
    sink.add(windows_of(spark, *((f"2024-01-0{day} 10:00:30", "a", day) for day in range(1, 8))), batch(0))
    before = files_of_days(sink)
    touched = before["2024-01-03"] | before["2024-01-04"]
    others = {file for files in before.values() for file in files} - touched
    more = windows_of(spark, ("2024-01-03 10:00:59", "a", 10), ("2024-01-04 10:00:00", "a", 10))
    with unreadable(others):
        assert sink.add(more, batch(1)).rows == 2
        assert sink.add(more, batch(1)).rows == 0, "the batch is there"
    assert (touched | others) - every_file(sink) == touched
    wanted = {day: (1, day) for day in range(1, 8)} | {3: (2, 13), 4: (2, 14)}
    assert found(sink) == [(f"2024-01-0{day}", "a", *sums) for day, sums in wanted.items()]


def test_the_first_and_last_days_are_merged(spark: SparkSession, sink: IcebergWindows) -> None:
    times = ["0001-01-01 00:00:00", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "9999-12-31 23:59:59.999999"]
    for number in range(2):
        sink.add(windows_of(spark, *((time, "a", 1) for time in times)), batch(number))
    assert found(sink) == [(time[:10], "a", 2, 2) for time in times]


def test_windows_after_the_last_representable_day_are_kept_apart(spark: SparkSession, sink: IcebergWindows) -> None:
    events = spark.sql(
        "SELECT timestamp_seconds(253402300800 + 60 * id) AS event_time, named_struct('kind', 'a', 'n', id) AS data "
        "FROM range(3)"
    )
    for number in range(2):
        sink.add(windowed(events, SETTINGS), batch(number))
    assert found(sink) == [("9999-12-31", "a", 2, 2 * total) for total in range(3)]


def test_a_new_sum_begins_with_the_next_batch(spark: SparkSession, sink: IcebergWindows) -> None:
    sink.add(windows_of(spark, ("2024-01-01 10:00:00", "a", 1)), batch(0))
    more = windows_of(spark, ("2024-01-01 10:00:01", "a", 2)).selectExpr("*", "CAST(7 AS LONG) AS sum_more")
    sink.prepare(more.schema)
    sink.add(more, batch(1))
    sink.add(windows_of(spark, ("2024-01-01 10:00:02", "a", 4)), batch(2))
    assert [(row["count"], int(row["sum_n"]), row["sum_more"]) for row in read_by_arrow(
        sink.place, ["count", "sum_n", "sum_more"]
    )] == [(3, 7, 7)]  # fmt: skip


def test_windows_that_are_there_twice_are_an_error(spark: SparkSession, sink: IcebergWindows) -> None:
    rows = windows_of(spark, ("2024-01-01 10:00:00", "a", 1))
    sink.add(rows, batch(0))
    table = TablePlace(sink.place).open()
    table.append(table.scan().to_arrow())
    with pytest.raises(PipelineError, match="has duplicate rows: several of one window; remove the duplicates"):
        sink.add(rows, batch(1))


def test_a_table_that_is_not_partitioned_by_days_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    place = Location(str(tmp_path / "windows"))
    IcebergSink(place, "windows").prepare(windows_of(spark).schema)
    with pytest.raises(PipelineError, match="not partitioned by window_day: it is not a table of windows"):
        IcebergWindows(place, ["kind"]).prepare(windows_of(spark).schema)


def test_a_closed_day_is_compacted_and_late_events_are_added_to_it(spark: SparkSession, sink: IcebergWindows) -> None:
    for number in range(3):
        day_of_number = [(f"2024-01-0{day} 10:0{number}:00", "a", 1) for day in (1, 2)]
        sink.add(windows_of(spark, *day_of_number), batch(number))
    assert {day: len(files) for day, files in files_of_days(sink).items()} == {"2024-01-01": 1, "2024-01-02": 1}
    table = TablePlace(sink.place).open()
    window = table.scan(row_filter="window_day = '2024-01-01'", limit=1).to_arrow()
    earlier = window.set_column(0, window.schema.field(0), pa.array([datetime(2024, 1, 1, tzinfo=UTC)]))
    table.append(earlier.cast(window.schema))
    done = compact_iceberg(
        "windows", TablePlace(sink.place), 1 << 27, timedelta(days=7), datetime(2024, 1, 2, 12, tzinfo=UTC)
    )
    assert (done.files_before, done.files_after) == (3, 2)
    sink.add(windows_of(spark, ("2024-01-01 10:01:30", "a", 41)), batch(3))
    closed = [("2024-01-01", "a", 1, 1)] * 3 + [("2024-01-01", "a", 2, 42)]
    assert found(sink) == [*closed, *[("2024-01-02", "a", 1, 1)] * 3]


def test_a_merge_that_another_writer_overtakes_is_repeated(
    spark: SparkSession, sink: IcebergWindows, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.add(windows_of(spark, ("2024-01-01 10:00:00", "a", 1)), batch(0))
    other = IcebergWindows(sink.place, ["kind"])
    with before_commit(monkeypatch, lambda: other.add(windows_of(spark, ("2024-01-01 10:00:01", "a", 2)), batch(1))):
        sink.add(windows_of(spark, ("2024-01-01 10:00:02", "a", 4)), batch(2))
    assert found(sink) == [("2024-01-01", "a", 3, 7)]
    written = set(map(str, (sink.place.path / "data").rglob("*.parquet")))
    assert len(written) == 3, "the file of the first attempt was removed"
