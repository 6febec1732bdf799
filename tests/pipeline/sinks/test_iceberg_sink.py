"""The Iceberg sink: every reader finds what Spark wrote, each batch once and never a part of one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.iceberg import tables
from odradek.pipeline.sinks.iceberg.compaction import compact_iceberg
from odradek.pipeline.sinks.iceberg.directory_catalog import DirectoryCatalog
from odradek.pipeline.sinks.iceberg.sink import IcebergSink
from odradek.pipeline.sinks.iceberg.tables import TablePlace
from odradek.pipeline.sinks.parquet import ParquetSink
from odradek.pipeline.sinks.table_files import Layout
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location
from tests.pipeline.lake import open_iceberg, read_by_arrow, read_by_spark, same_rows
from tests.pipeline.sinks.test_delta_sink import EVERY_TYPE, split

FIRST, SECOND, THIRD = (BatchId("orders", number) for number in range(3))
MORE_TYPES = """
    CAST(id AS SHORT) AS short, CAST(id AS BYTE) AS byte, CAST(id AS FLOAT) AS real,
    CAST(TIMESTAMP_MICROS(id) AS TIMESTAMP_NTZ) AS local, CAST(id AS DECIMAL(38, 3)) AS many
"""
CATALOGS = ("none", "sql")


def catalog(kind: str, directory: Path) -> dict[str, str]:
    """[iceberg]: none, or a catalog of pyiceberg."""
    if kind == "none":
        return {}
    return {"catalog": "shop", "namespace": "lake", "type": "sql", "uri": f"sqlite:///{directory / 'catalog.db'}"}


def sink_at(path: Path, layout: Layout | None = None, **more: Any) -> IcebergSink:
    return IcebergSink(Location(str(path)), "rows", layout, **{"sleep": lambda _: None, **more})


def written(sink: IcebergSink, rows: DataFrame, batch: BatchId = FIRST) -> int:
    """Adds the rows; returns the number of files."""
    sink.prepare(rows.schema)
    return sink.write(rows, rows.count(), batch).files


def ids(sink: IcebergSink) -> list[int]:
    return sorted(row["id"] for row in read_by_arrow(sink.place, ["id"]))


def data_files(sink: IcebergSink) -> list[Path]:
    """The data files of the newest version."""
    found = [one.file.file_path for one in open_iceberg(sink.place).scan().plan_files()]
    return [Path(path.removeprefix("file://")) for path in found]


@contextmanager
def before_commit(monkeypatch: pytest.MonkeyPatch, work: Any, times: int = 1) -> Iterator[list[int]]:
    """Runs `work` between the reading of a version and the commit of the next one, for the first attempts."""
    commit, done = DirectoryCatalog.commit_table, list[int]()

    def overtaken(self: DirectoryCatalog, *given: Any) -> Any:
        if len(done) < times:
            done.append(1)
            with monkeypatch.context() as inner:
                inner.setattr(DirectoryCatalog, "commit_table", commit)
                work()
        return commit(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(DirectoryCatalog, "commit_table", overtaken)
        yield done


@pytest.mark.parametrize("kind", CATALOGS)
def test_all_readers_read_every_type_and_a_batch_is_committed_once(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    options = catalog(kind, tmp_path)
    sink = sink_at(tmp_path / "table", Layout(tasks=2), catalog=options)
    rows = spark.range(20).selectExpr(*split(EVERY_TYPE), *split(MORE_TYPES))
    assert sink.last_batch(FIRST) is None
    written(sink, rows)
    assert sink.last_batch(FIRST) == 0
    assert written(sink, rows) == 0, "the batch is there"
    assert written(sink, rows, SECOND) == 2
    wanted = [*rows.toArrow().to_pylist()] * 2
    table = TablePlace(sink.place, options).open()
    same_rows(table.scan().to_arrow().to_pylist(), wanted)
    if kind == "none":
        same_rows(read_by_arrow(sink.place, rows.columns), wanted)
        whole = rows.selectExpr("*", "1 AS one").unionByName(rows.selectExpr("*", "1 AS one")).drop("one")
        plain = [name for name in rows.columns if name not in ("short", "byte")]
        assertDataFrameEqual(read_by_spark(spark, sink.place, plain), whole.select(*plain))


def test_statistics_hold_for_every_row(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "table")
    written(sink, spark.range(20).selectExpr(*split(EVERY_TYPE)))
    ((stats,),) = [open_iceberg(sink.place).inspect.files().select(["readable_metrics"]).to_pylist()]
    found = stats["readable_metrics"]
    assert (found["id"]["lower_bound"], found["id"]["upper_bound"]) == (0, 19)
    assert (found["text"]["null_value_count"], found["text"]["value_count"]) == (5, 20)
    assert found["nothing"]["null_value_count"] == 20
    assert str(found["day"]["lower_bound"]) == "2024-01-30"
    assert found["ratio"]["upper_bound"] is None, "NaN is greater than what Parquet says"
    assert found["longer"]["lower_bound"] == "x" * 60
    assert found["longer"]["upper_bound"] is None, "a longer text is greater than its beginning"
    for column in ("id", "at", "day", "text"):
        greatest = max(row[column] for row in read_by_arrow(sink.place, [column]) if row[column] is not None)
        text = f"{column} = '{greatest.isoformat() if hasattr(greatest, 'isoformat') else greatest}'"
        text = text.replace("'", "") if column == "id" else text
        assert open_iceberg(sink.place).scan(row_filter=text).to_arrow().num_rows == 1, column


def test_a_time_after_the_year_9999_has_statistics(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "table")
    written(sink, spark.sql("SELECT 1L AS id, timestamp_millis(253402300800000) AS at"))
    micros = 253402300800000 * 1000
    assert len(sink.files("at", [(micros, micros)]).paths) == 1
    assert len(sink.files("at", [(0, micros - 1)]).paths) == 0
    (file,) = data_files(sink)
    assert spark.read.parquet(str(file)).selectExpr("unix_millis(at) AS ms").first() == (253402300800000,)


def test_partition_values_survive_escaping_in_directory_names(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "my läke" / "table", Layout(partition_by=("kind", "day")))
    kinds = ["plain", "a b", "a/b", "a=b", "a%3Ab", "ü", "x:y", None, "null", "7", ""]
    content = [(number, kind, f"2024-01-0{number % 2 + 1}") for number, kind in enumerate(kinds * 2)]
    rows = spark.createDataFrame(content, "id LONG, kind STRING, day STRING").selectExpr(
        "id", "kind", "CAST(day AS DATE) AS day"
    )
    written(sink, rows)
    assert len(data_files(sink)) == len({one[1:] for one in content}), "a file for each partition"
    assert all(file.is_file() for file in data_files(sink))
    same_rows(read_by_arrow(sink.place, rows.columns), rows.toArrow().to_pylist())
    table = open_iceberg(sink.place)
    assert table.scan(row_filter="kind = 'a/b'").to_arrow().num_rows == 2
    assert len(list(table.scan(row_filter="kind = 'a/b' and day = '2024-01-01'").plan_files())) == 1


def test_a_new_column_is_added_to_the_table_and_a_changed_type_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "table")
    written(sink, spark.range(3).selectExpr("id"))
    written(sink, spark.range(3, 5).selectExpr("'new' AS more", "id"), SECOND)
    wanted = [{"id": number, "more": "new" if number > 2 else None} for number in range(5)]
    same_rows(read_by_arrow(sink.place, ["id", "more"]), wanted)
    written(sink, spark.range(5, 6).selectExpr("id"), THIRD)
    same_rows(read_by_arrow(sink.place, ["id", "more"]), [*wanted, {"id": 5, "more": None}])
    with pytest.raises(PipelineError, match=r"has id long, but the settings have id string"):
        sink.prepare(spark.range(1).selectExpr("CAST(id AS STRING) AS id").schema)
    with pytest.raises(PipelineError, match="has id long, but the settings have ID long"):
        sink.prepare(spark.range(1).selectExpr("id AS ID").schema)
    with pytest.raises(PipelineError, match="is partitioned by nothing, not by id"):
        sink_at(tmp_path / "table", Layout(("id",))).prepare(spark.range(1).schema)


def test_columns_become_wider_without_rewriting_a_file(spark: SparkSession, tmp_path: Path) -> None:
    steps: list[str] = []
    sink = sink_at(tmp_path / "table", Layout(("day",)), reached=steps.append)
    narrow = """CAST(id AS INT) AS n, CAST(id AS FLOAT) AS f, CAST(id AS DECIMAL(5, 2)) AS d,
        CONCAT('day ', id % 2) AS day, NAMED_STRUCT('x', CAST(id AS INT)) AS s,
        ARRAY(CAST(id AS INT)) AS l, MAP('k', CAST(id AS INT)) AS m"""
    wide = """id + 5000000000 AS n, id / 7 AS f, CAST(id AS DECIMAL(12, 2)) AS d, CONCAT('day ', id % 2) AS day,
        NAMED_STRUCT('x', id, 'y', 'new') AS s, ARRAY(id) AS l, MAP('k', id) AS m, id AS more"""
    written(sink, spark.range(4).selectExpr(*split(narrow)))
    steps.clear()
    version = open_iceberg(sink.place).metadata_location
    sink.prepare(spark.range(4).selectExpr(*split(narrow)).schema)
    assert steps == [], "nothing is wider"
    assert open_iceberg(sink.place).metadata_location == version, "a version was made"
    before = set(data_files(sink))
    written(sink, spark.range(2).selectExpr(*split(wide)), SECOND)
    assert steps[0] == "rows: columns grown"
    assert sink.last_batch(FIRST) == 1
    assert before < set(data_files(sink))
    rows = sorted(read_by_arrow(sink.place, ["n", "f", "s", "l", "m", "day", "more"]), key=lambda row: row["n"])
    old = {"n": 3, "f": 3.0, "s": {"x": 3, "y": None}, "l": [3], "m": [("k", 3)], "day": "day 1", "more": None}
    assert rows[3] == old
    assert rows[4]["n"] == 5_000_000_000
    assert rows[4]["s"] == {"x": 0, "y": "new"}
    assert len(rows) == 6
    with pytest.raises(PipelineError, match="has n long, but the settings have n integer"):
        sink.prepare(spark.range(4).selectExpr(*split(narrow)).schema)
    with pytest.raises(PipelineError, match="has more long, but the settings have more decimal"):
        sink.prepare(spark.sql("SELECT CAST(1 AS DECIMAL(38, 0)) AS more").schema)


def test_a_directory_of_other_files_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table/mine.txt").write_text("precious")
    with pytest.raises(PipelineError, match="has files but is not an Iceberg table"):
        sink_at(tmp_path / "table").prepare(spark.range(1).schema)
    assert [one.name for one in (tmp_path / "table").iterdir()] == ["mine.txt"]
    with pytest.raises(PipelineError, match=r"mine\.txt is a file, but should be a table"):
        sink_at(tmp_path / "table/mine.txt").prepare(spark.range(1).schema)


def test_tables_of_other_formats_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    schema, place = spark.range(1).schema, Location(str(tmp_path / "table"))
    sink_at(tmp_path / "table").prepare(schema)
    with pytest.raises(PipelineError, match="has files but is not a Delta table"):
        DeltaSink(place, "rows").prepare(schema)
    with pytest.raises(PipelineError, match="is an Iceberg table; set sink to iceberg"):
        ParquetSink(place, "rows").prepare(schema)
    DeltaSink(Location(str(tmp_path / "delta")), "rows").prepare(schema)
    with pytest.raises(PipelineError, match="has files but is not an Iceberg table"):
        sink_at(tmp_path / "delta").last_batch(FIRST)


def test_types_that_iceberg_does_not_support_are_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cannot have span: Iceberg lacks the type"):
        sink_at(tmp_path / "table").prepare(spark.sql("SELECT INTERVAL '1' DAY AS span").schema)


def test_an_attempt_that_fails_before_its_commit_leaves_no_row(spark: SparkSession, tmp_path: Path) -> None:
    class Broken(Exception):
        pass

    def fail(point: str) -> None:
        if point == "rows: files written":
            raise Broken

    rows = spark.range(10).selectExpr("id")
    with pytest.raises(Broken):
        written(sink_at(tmp_path / "table", reached=fail), rows)
    sink = sink_at(tmp_path / "table")
    assert ids(sink) == []
    written(sink, rows)
    assert ids(sink) == list(range(10))


@pytest.mark.parametrize("kind", CATALOGS)
def test_a_commit_that_succeeded_in_spite_of_an_error_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    sink, rows = sink_at(tmp_path / "table", catalog=catalog(kind, tmp_path)), spark.range(10).selectExpr("id")
    sink.prepare(rows.schema)
    place = TablePlace(sink.place, catalog(kind, tmp_path))
    there: type[Catalog] = type(place.open().catalog)
    commit = there.commit_table

    def commit_and_fail(self: Catalog, *given: Any) -> None:
        commit(self, *given)
        raise OSError("the connection was reset")

    with monkeypatch.context() as patched:
        patched.setattr(there, "commit_table", commit_and_fail)
        sink.write(rows, 10, FIRST)
    assert sink.last_batch(FIRST) == 0
    assert place.open().scan().to_arrow().num_rows == 10, "its files are there"


def test_a_commit_that_failed_leaves_no_file_and_no_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, rows = sink_at(tmp_path / "table"), spark.range(10).selectExpr("id")
    sink.prepare(rows.schema)

    def fail(*_: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(DirectoryCatalog, "commit_table", fail)
        with pytest.raises(OSError, match="no space left"):
            sink.write(rows, 10, FIRST)
    assert list(tmp_path.rglob("*.parquet")) == []
    assert (ids(sink), sink.last_batch(FIRST)) == ([], None)


def test_an_append_that_another_writer_overtakes_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(tmp_path / "table")
    written(sink, spark.range(3).toDF("id"))
    other = pa.table({"id": [7]})
    with before_commit(monkeypatch, lambda: TablePlace(sink.place).open().append(other)) as done:
        written(sink, spark.range(3, 5).toDF("id"), SECOND)
    assert done == [1]
    assert ids(sink) == [0, 1, 2, 3, 4, 7]


def test_a_job_that_the_same_batch_overtakes_adds_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, rows = sink_at(tmp_path / "table"), spark.range(3).toDF("id")
    sink.prepare(rows.schema)
    with before_commit(monkeypatch, lambda: sink_at(tmp_path / "table").write(rows, 3, FIRST)):
        assert sink.write(rows, 3, FIRST).files == 0
    assert ids(sink) == [0, 1, 2]


def test_after_repeated_conflicts_the_error_is_one_line_and_the_files_are_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(tmp_path / "table")
    sink.prepare(spark.range(1).toDF("id").schema)

    def conflict(*_: Any) -> None:
        raise CommitFailedException("overtaken")

    monkeypatch.setattr(DirectoryCatalog, "commit_table", conflict)
    with pytest.raises(PipelineError, match=r"another writer has changed .*table; start again"):
        sink.write(spark.range(3).toDF("id"), 3, FIRST)
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.parametrize("kind", CATALOGS)
def test_the_last_batch_is_found_although_all_its_snapshots_have_expired(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    sink = sink_at(tmp_path / "table", catalog=catalog(kind, tmp_path))
    for number in range(3):
        written(sink, spark.range(3).toDF("id"), BatchId("orders", number))
    place = TablePlace(sink.place, catalog(kind, tmp_path))
    for number in range(2):  # Of another program.
        place.open().append(pa.table({"id": [number]}))
    table = place.open()
    old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id != table.metadata.current_snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert len(place.open().metadata.snapshots) == 1
    assert sink.last_batch(FIRST) == 2
    assert sink.write(spark.range(3).toDF("id"), 3, THIRD).files == 0


def test_a_table_that_was_rolled_back_has_the_batches_of_that_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "table")
    for number in range(3):
        written(sink, spark.range(3).toDF("id"), BatchId("orders", number))
    table = TablePlace(sink.place).open()
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[1].snapshot_id).commit()
    assert sink.last_batch(FIRST) == 1
    assert written(sink, spark.range(3).toDF("id"), THIRD) == 1
    assert sink.last_batch(FIRST) == 2


def test_the_metadata_does_not_grow_with_the_number_of_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_SNAPSHOTS", 3)
    sink = sink_at(tmp_path / "table")
    rows = spark.range(1).toDF("id")
    for number in range(6):
        written(sink, rows, BatchId("orders", number))
    metadata = open_iceberg(sink.place).metadata
    assert len(metadata.snapshots) <= 4
    assert sink.last_batch(FIRST) == 5
    assert len(ids(sink)) == 6
    done = compact_iceberg("rows", TablePlace(sink.place), 1 << 27, timedelta(days=7), None)
    assert (done.files_before, done.files_after) == (6, 1)
    assert sink.last_batch(FIRST) == 5


def test_a_missing_or_old_version_hint_is_not_believed(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "table")
    hint = tmp_path / "table/metadata/version-hint.text"
    for number, content in enumerate([None, "1", "torn", "99", ""]):
        written(sink, spark.range(1).toDF("id"), BatchId("orders", number))
        hint.unlink() if content is None else hint.write_text(content)
        assert sink.last_batch(FIRST) == number
    written(sink, spark.range(1).toDF("id"), BatchId("orders", 5))
    assert hint.read_text() == "7"
    assert len(ids(sink)) == 6


def test_a_damaged_table_is_one_line_that_names_it(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "table")
    written(sink, spark.range(1).toDF("id"))
    newest = tmp_path / "table/metadata/v2.metadata.json"
    newest.write_text(newest.read_text()[:100])
    for use in (
        lambda: sink.last_batch(FIRST),
        lambda: sink.prepare(spark.range(1).schema),
        lambda: sink.files("id", []),
    ):
        with pytest.raises(
            PipelineError, match=f"^the table {sink.place} cannot be read: [^\n]*; restore it"
        ) as caught:
            use()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"type": "rest", "uri": "http://127.0.0.1:1"}, "the Iceberg catalog cannot be opened: .*127.0.0.1"),
        ({"type": "sql"}, "the Iceberg catalog cannot be opened: .*[Uu][Rr][Ii]"),
        ({"type": "none of these"}, "the Iceberg catalog cannot be opened: "),
        ({"type": "sql", "uri": "sqlite:////nowhere/at/all.db"}, "the Iceberg catalog cannot be opened: "),
    ],
)
def test_a_catalog_that_cannot_be_used_is_an_error_of_one_line(
    tmp_path: Path, options: dict[str, str], problem: str
) -> None:
    sink = sink_at(tmp_path / "table", catalog=options)
    with pytest.raises(PipelineError, match=problem) as caught:
        sink.last_batch(FIRST)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy == "check [iceberg]"


def test_a_table_of_the_catalog_that_is_elsewhere_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    options = catalog("sql", tmp_path)
    sink_at(tmp_path / "one/table", catalog=options).prepare(spark.range(1).schema)
    with pytest.raises(PipelineError, match=r"the catalog has lake\.table in file://.*/one/table, not in .*/two/table"):
        sink_at(tmp_path / "two/table", catalog=options).last_batch(FIRST)


def test_rows_deleted_by_another_program_without_a_rewrite_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(tmp_path / "table")
    written(sink, spark.range(3).toDF("id"))
    plan = Table.scan

    def with_deletes(self: Table, **given: Any) -> Any:
        scan = plan(self, **given)
        tasks = list(scan.plan_files())
        for task in tasks:
            task.delete_files.add(task.file)
        monkeypatch.setattr(scan, "plan_files", lambda: tasks, raising=False)
        return scan

    monkeypatch.setattr(Table, "scan", with_deletes)
    with pytest.raises(PipelineError, match="has delete files of another program; rewrite"):
        sink.files("id", [(0, 9)])


def test_a_table_of_a_newer_format_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "table")
    sink.prepare(spark.range(1).schema)
    first = tmp_path / "table/metadata/v1.metadata.json"
    first.write_text(json.dumps({**json.loads(first.read_text()), "format-version": 3, "next-row-id": 0}))
    with pytest.raises(PipelineError, match="is of version 3 of Iceberg's format, not 2; set another name"):
        sink.prepare(spark.range(1).schema)
