"""The Delta sink: every reader finds what Spark wrote, each batch once and never a part of one."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.table_files import Layout
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location
from tests.pipeline.lake import read_by_arrow, read_by_spark, same_rows

FIRST, SECOND, THIRD = (BatchId("orders", number) for number in range(3))

EVERY_TYPE = """
    id, id % 3 = 0 AS flag, CAST(id AS DECIMAL(10, 2)) / 3 AS price, IF(id % 4 = 0, NULL, CONCAT('text ', id)) AS text,
    TIMESTAMP_MICROS(1700000000000001 + id * 1001) AS at, DATE_ADD(DATE '2024-01-30', CAST(id AS INT)) AS day,
    IF(id % 5 = 0, DOUBLE('NaN'), id / 7) AS ratio, REPEAT('x', 60 + CAST(id AS INT)) AS longer,
    ARRAY(id, NULL) AS list, MAP('a', id) AS map, NAMED_STRUCT('x', id, 'y', ARRAY(NAMED_STRUCT('z', 'z'))) AS nested,
    CAST('bytes' AS BINARY) AS bytes, CAST(NULL AS STRING) AS nothing, CAST(-id AS INT) AS less
"""


def at(path: Path) -> Location:
    return Location(str(path))


def files(sink: DeltaSink) -> list[str]:
    """The data files of the newest version."""
    return [str(sink.place.path / file) for file in sink.files("a column without statistics", []).paths]


def written(sink: DeltaSink, rows: DataFrame, batch: BatchId = FIRST) -> int:
    """Adds the rows; returns the number of files."""
    sink.prepare(rows.schema)
    return sink.write(rows, rows.count(), batch).files


def test_both_readers_read_every_type_and_a_batch_is_committed_once(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(at(tmp_path / "table"), "rows", Layout(tasks=2))
    rows = spark.range(20).selectExpr(*split(EVERY_TYPE))
    written(sink, rows)
    assert sink.last_batch(FIRST) == 0
    assert written(sink, rows) == 0, "the batch is there"
    assertDataFrameEqual(read_by_spark(spark, sink.place, rows.columns), rows)
    same_rows(read_by_arrow(sink.place, rows.columns), rows.toArrow().to_pylist())
    assert written(sink, rows, SECOND) == 2
    assert DeltaTable(sink.place).count() == 40


def split(expressions: str) -> list[str]:
    parts, depth, text = [], 0, ""
    for letter in " ".join(expressions.split()):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(text)
            text = ""
        else:
            text += letter
    return [part.strip() for part in [*parts, text]]


def test_statistics_hold_for_every_row(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(at(tmp_path / "table"), "rows")
    rows = spark.range(20).selectExpr(*split(EVERY_TYPE))
    written(sink, rows)
    files = sorted((sink.place.path / "_delta_log").glob("*.json"))
    log = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    (stats,) = [json.loads(entry["add"]["stats"]) for entry in log if "add" in entry]
    assert stats["numRecords"] == 20
    assert stats["minValues"]["id"] == 0
    assert stats["maxValues"]["id"] == 19
    assert stats["nullCount"]["text"] == 5
    assert stats["nullCount"]["nothing"] == 20
    assert stats["minValues"]["at"] == "2023-11-14T22:13:20.000Z"
    assert stats["maxValues"]["at"] == "2023-11-14T22:13:20.020Z", "rounded up: the greatest is .019020"
    assert stats["minValues"]["day"] == "2024-01-30"
    assert "ratio" not in stats["maxValues"], "NaN is greater than what Parquet says, and in no statistics"
    assert "longer" not in stats["maxValues"]
    greatest = read_by_arrow(sink.place, ["at"])[-1]["at"]
    table = DeltaTable(sink.place).to_pyarrow_table(filters=[("at", "=", greatest)])
    assert table.num_rows == 1, "no reader skips the file by its statistics"


def test_a_time_after_the_year_9999_is_written_without_statistics(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(at(tmp_path / "table"), "rows")
    written(sink, spark.sql("SELECT 1L AS id, timestamp_millis(253402300800000) AS at"))
    (stats,) = pa.table(DeltaTable(sink.place).get_add_actions(flatten=True)).to_pylist()
    assert (stats["num_records"], stats["max.id"], stats["null_count.at"]) == (1, 1, 0)
    assert stats.get("max.at") is None
    assert spark.read.parquet(*files(sink)).selectExpr("unix_millis(at) AS ms").first() == (253402300800000,)


def test_partition_values_survive_escaping_in_directory_names(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(at(tmp_path / "my läke" / "table"), "rows", Layout(partition_by=("kind", "day")))
    kinds = ["plain", "a b", "a/b", "a=b", "a%3Ab", "ü", "x:y", None, "null", "7"]
    content = [(number, kind, f"2024-01-0{number % 2 + 1}") for number, kind in enumerate(kinds * 2)]
    rows = spark.createDataFrame(content, "id LONG, kind STRING, day STRING").selectExpr(
        "id", "kind", "CAST(day AS DATE) AS day"
    )
    written(sink, rows)
    assert len(files(sink)) == len({one[1:] for one in content}), "a file for each partition"
    assert all(Path(file).is_file() for file in files(sink))
    same_rows(read_by_arrow(sink.place, rows.columns), rows.toArrow().to_pylist())
    read = spark.read.option("basePath", str(sink.place)).parquet(*files(sink))
    assertDataFrameEqual(read.select("id"), rows.select("id"))


def test_each_partition_of_a_batch_is_one_file_however_many_tasks_write(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(at(tmp_path / "table"), "rows", Layout(partition_by=("kind",), tasks=3))
    assert written(sink, spark.range(300, numPartitions=5).selectExpr("id", "id % 2 AS kind")) == 2
    assert DeltaTable(sink.place).count() == 300


def test_a_new_column_is_added_to_the_table_and_a_changed_type_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(at(tmp_path / "table"), "rows")
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
        DeltaSink(sink.place, "rows", Layout(("id",))).prepare(spark.range(1).schema)


def test_a_directory_of_other_files_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table/mine.txt").write_text("precious")
    with pytest.raises(PipelineError, match="has files but is not a Delta table"):
        DeltaSink(at(tmp_path / "table"), "rows").prepare(spark.range(1).schema)
    assert [one.name for one in (tmp_path / "table").iterdir()] == ["mine.txt"]
    with pytest.raises(PipelineError, match=r"mine\.txt is a file, but should be a table"):
        DeltaSink(at(tmp_path / "table/mine.txt"), "rows").prepare(spark.range(1).schema)


def test_types_that_delta_does_not_support_are_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cannot have span: Delta lacks the type"):
        DeltaSink(at(tmp_path / "table"), "rows").prepare(spark.sql("SELECT INTERVAL '1' DAY AS span").schema)


def test_an_attempt_that_fails_before_its_commit_leaves_no_row_and_no_file(spark: SparkSession, tmp_path: Path) -> None:
    class Broken(Exception):
        pass

    def fail(point: str) -> None:
        if point == "rows: files written":
            raise Broken

    rows = spark.range(10).selectExpr("id")
    broken = DeltaSink(at(tmp_path / "table"), "rows", reached=fail)
    with pytest.raises(Broken):
        written(broken, rows)
    assert DeltaTable(broken.place).count() == 0
    written(DeltaSink(at(tmp_path / "table"), "rows"), rows)
    assert DeltaTable(broken.place).count() == 10


def test_a_commit_that_succeeded_in_spite_of_an_error_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = DeltaTable.create_write_transaction

    def commit_and_fail(table: DeltaTable, *given: object, **named: object) -> None:
        commit(table, *given, **named)  # type: ignore[arg-type]
        raise OSError("the checkpoint after the commit did not succeed")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_and_fail)
    sink, rows = DeltaSink(at(tmp_path / "table"), "rows"), spark.range(10).selectExpr("id")
    written(sink, rows)
    assert sink.last_batch(FIRST) == 0
    assert len(read_by_arrow(sink.place, ["id"])) == 10, "its files are there"


def test_columns_become_wider_in_one_commit_that_keeps_rows_partitions_and_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    steps: list[str] = []
    sink = DeltaSink(at(tmp_path / "table"), "rows", Layout(("day",)), steps.append)
    narrow = "CAST(id AS INT) AS n, NAMED_STRUCT('x', CAST(id AS INT)) AS s, CONCAT('day ', id % 2) AS day"
    wide = "id + 5000000000 AS n, NAMED_STRUCT('x', id, 'y', 'new') AS s, CONCAT('day ', id % 2) AS day, id AS more"
    written(sink, spark.range(4).selectExpr(*split(narrow)))
    steps.clear()
    sink.prepare(spark.range(4).selectExpr(*split(narrow)).schema)
    assert steps == [], "nothing is wider"
    written(sink, spark.range(2).selectExpr(*split(wide)), SECOND)
    assert steps[0] == "rows: columns grown"
    assert sink.last_batch(FIRST) == 1
    table = DeltaTable(sink.place)
    assert table.metadata().partition_columns == ["day"]
    assert table.protocol().reader_features is None, "every reader can read it"
    rows = sorted(read_by_arrow(sink.place, ["n", "s", "day", "more"]), key=lambda row: row["n"])
    assert rows[3] == {"n": 3, "s": {"x": 3, "y": None}, "day": "day 1", "more": None}
    assert rows[4] == {"n": 5_000_000_000, "s": {"x": 0, "y": "new"}, "day": "day 0", "more": 0}
    assert len(rows) == 6
    same_rows([row.asDict(True) for row in read_by_spark(spark, sink.place, ["n", "s", "day", "more"]).collect()], rows)
    with pytest.raises(PipelineError, match="has n long, but the settings have n integer"):
        sink.prepare(spark.range(4).selectExpr(*split(narrow)).schema)
