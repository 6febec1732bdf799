"""Compaction of Iceberg tables: fewer files, the same rows, no disturbed reader, and no file that nobody needs."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _ConvertToIcebergWithoutIDs, visit_pyarrow
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import compact, report, sql
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.sinks.compaction import Compacted
from odradek.pipeline.sinks.iceberg.batches import last_batch, marks_of
from odradek.pipeline.sinks.iceberg.compaction import compact_iceberg
from odradek.pipeline.sinks.iceberg.tables import TablePlace
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.places import Places
from tests.pipeline.lake import open_iceberg
from tests.pipeline.ledger_rows import batch, enter

WEEK = timedelta(days=7)
BIG = 1 << 27
OLD = time.time() - 30 * 86_400


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return make_settings({"name": "orders", "lake": str(tmp_path / "lake"), "sink": "iceberg"})


def append(path: os.PathLike[str], ids: Iterable[int], **columns: Any) -> None:
    """Commits one file, or one per partition; the batch number is the first id."""
    values = list(ids)
    content = pa.table({"id": values, **{name: pa.array([value] * len(values)) for name, value in columns.items()}})
    place = TablePlace(Location(os.fspath(path)))
    table = place.find()
    if table is None:
        schema = visit_pyarrow(content.schema, _ConvertToIcebergWithoutIDs())
        assert isinstance(schema, Schema)
        table = place.create(assign_fresh_schema_ids(schema), list(columns))
    marks = marks_of("orders/rows", values[0])
    with table.transaction() as transaction:
        transaction.append(content, snapshot_properties=marks)
        transaction.set_properties(marks)


def ids(path: os.PathLike[str], **scan: Any) -> list[int]:
    return sorted(open_iceberg(path).scan(**scan).to_arrow()["id"].to_pylist())


def compacted(path: Path, **changes: Any) -> Compacted:
    given: dict[str, Any] = {"target_size": BIG, "retention": WEEK, "closed_before": None, **changes}
    return compact_iceberg("rows", TablePlace(Location(str(path))), **given)


def files(path: Path) -> set[str]:
    return {str(one.relative_to(path)) for one in path.rglob("*") if one.is_file()}


def test_all_tables_are_compacted_and_keep_their_rows_and_batch_numbers(settings: Settings) -> None:
    places = Places.of(settings)
    for number in range(10):
        append(places.rows, range(number * 10, number * 10 + 10))
    append(places.dead_letters, [1])
    enter(settings, *(batch(number, {"orders": {0: number}}) for number in range(5)))

    def run() -> list[str]:
        out = io.StringIO()
        assert compact.run(settings, out) == 0
        return out.getvalue().splitlines()

    rows, dead, batches = run()
    assert rows.startswith("rows          files 10 -> 1, bytes ")
    assert dead.startswith("dead_letters  files 1 -> 1, ")
    assert batches.startswith("batches       files 5 -> 1, ")
    assert ids(places.rows) == list(range(100))
    table = TablePlace(places.rows).open()
    assert last_batch(table, "orders/rows") == 90
    run()
    assert TablePlace(places.rows).open().metadata_location == table.metadata_location, "nothing was to be done"


def test_merged_files_do_not_exceed_the_target_size(tmp_path: Path) -> None:
    for number in range(6):
        append(tmp_path / "t", [number] * 50)
    untouched = compacted(tmp_path / "t", target_size=10)
    assert untouched.files_after == 6
    done = compacted(tmp_path / "t", target_size=untouched.bytes_before * 5 // 12)
    assert (done.files_before, done.files_after) == (6, 3)
    assert ids(tmp_path / "t") == sorted([*range(6)] * 50)


def test_days_before_the_watermark_are_compacted_and_the_open_day_is_not(tmp_path: Path) -> None:
    for number in range(9):
        append(tmp_path / "t", [number], day=date(2026, 3, 1 + number // 3))
    for number in (9, 10):
        TablePlace(Location(str(tmp_path / "t"))).open().append(
            pa.table({"id": [number], "day": pa.array([None], pa.date32())})
        )
    assert compacted(tmp_path / "t").files_after == 11, "no day is known to be over"
    done = compacted(tmp_path / "t", closed_before=datetime(2026, 3, 3, 0, 0, 1, tzinfo=UTC))
    days = [task.file.partition[0] for task in open_iceberg(tmp_path / "t").scan().plan_files()]
    first = (date(2026, 3, 1) - date(1970, 1, 1)).days
    assert sorted(map(str, days)) == sorted(map(str, [first, first + 1, *[first + 2] * 3, None, None]))
    assert done.files_after == 7
    assert ids(tmp_path / "t") == list(range(11))


def test_partitions_other_than_days_are_compacted_one_by_one(tmp_path: Path) -> None:
    for number in range(8):
        append(tmp_path / "t", [number], customer=f"a b/{number % 2}%")
    assert compacted(tmp_path / "t").files_after == 2
    assert ids(tmp_path / "t") == list(range(8))
    assert ids(tmp_path / "t", row_filter="customer = 'a b/1%'") == [1, 3, 5, 7]


def test_old_snapshots_can_be_read_within_the_retention_and_lose_their_files_after_it(tmp_path: Path) -> None:
    for number in range(4):
        append(tmp_path / "t", [number])
    before = files(tmp_path / "t")
    second = open_iceberg(tmp_path / "t").metadata.snapshots[1].snapshot_id
    assert compacted(tmp_path / "t").vacuumed == 0
    assert before < files(tmp_path / "t")
    assert ids(tmp_path / "t", snapshot_id=second) == [0, 1]
    done = compacted(tmp_path / "t", retention=timedelta(0))
    table = open_iceberg(tmp_path / "t")
    assert done.vacuumed > 4
    assert len(table.metadata.snapshots) == 1
    assert ids(tmp_path / "t") == [0, 1, 2, 3]
    data = {path for path in files(tmp_path / "t") if path.startswith("data/")}
    assert data == {task.file.file_path.partition("/t/")[2] for task in table.scan().plan_files()}
    assert last_batch(TablePlace(Location(str(tmp_path / "t"))).open(), "orders/rows") == 3


@pytest.mark.parametrize("left", [1, 2])
def test_a_table_that_was_rolled_back_has_no_later_batch_after_a_compaction(tmp_path: Path, left: int) -> None:
    place = TablePlace(Location(str(tmp_path / "t")))
    append(tmp_path / "t", [7])
    for number in range(left):
        place.open().append(pa.table({"id": [number]}))
    append(tmp_path / "t", [8])
    table = place.open()
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[-2].snapshot_id).commit()
    assert last_batch(place.open(), "orders/rows") == 7
    compacted(tmp_path / "t", retention=timedelta(0))
    assert len(open_iceberg(tmp_path / "t").metadata.snapshots) == 1
    assert last_batch(place.open(), "orders/rows") == 7, "batch 8 would be lost"
    append(tmp_path / "t", [8])
    table = place.open()
    assert last_batch(table, "orders/rows") == 8


def test_files_that_no_snapshot_names_are_removed_only_when_no_batch_can_be_about_to_commit_them(
    tmp_path: Path,
) -> None:
    append(tmp_path / "t", [1])
    young, old, manifest = (
        tmp_path / "t" / name for name in ("data/young.parquet", "data/old.parquet", "metadata/old.avro")
    )
    for file in (young, old, manifest):
        file.write_bytes(b"")
    for file in (old, manifest):
        os.utime(file, (OLD, OLD))
    for path in files(tmp_path / "t"):
        if "young" not in path:
            os.utime(tmp_path / "t" / path, (OLD, OLD))
    assert compacted(tmp_path / "t", retention=timedelta(0)).vacuumed == 2
    assert (young.exists(), old.exists(), manifest.exists()) == (True, False, False)
    assert ids(tmp_path / "t") == [1]


def test_a_file_with_fewer_rows_than_its_metadata_says_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    for number in range(2):
        append(tmp_path / "t", [number, number])
    (one, other) = (tmp_path / "t" / "data").glob("*.parquet")
    from pyarrow import parquet

    parquet.write_table(parquet.read_table(one).slice(1), one)
    with pytest.raises(PipelineError, match=r"has files with other numbers of rows than its metadata says; restore"):
        compacted(tmp_path / "t")
    assert set((tmp_path / "t" / "data").glob("*.parquet")) == {one, other}


def test_the_report_and_queries_see_iceberg_tables_and_the_ledger(settings: Settings) -> None:
    places = Places.of(settings)
    for number in range(3):
        append(places.rows, range(number + 1), country="AT")
    enter(settings, batch(0, {"orders": {0: 5}}))
    out = io.StringIO()
    report.run(settings, out)
    assert "table      rows: 3 files, " in out.getvalue()
    out = io.StringIO()
    query = "SELECT country, count(*) AS n, max(l.good) AS good FROM rows CROSS JOIN ledger l GROUP BY country"
    assert sql.run(settings, query, out) == 0
    assert [line.split() for line in out.getvalue().splitlines()] == [["country", "n", "good"], ["AT", "6", "5"]]
    with pytest.raises(PipelineError, match=r"the query failed: .*; the tables are rows, ledger"):
        sql.run(settings, "SELECT nothing FROM rows")
