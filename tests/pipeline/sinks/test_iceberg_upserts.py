"""Upserts into an Iceberg table: one row for each key, each batch once, whatever else writes the table."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.changed_keys import ChangedKeys
from odradek.pipeline.sinks.iceberg.compaction import compact_iceberg
from odradek.pipeline.sinks.iceberg.tables import TablePlace
from odradek.pipeline.sinks.iceberg.upserts import IcebergUpserts, rows_between
from odradek.pipeline.sinks.table_files import Layout
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location
from tests.pipeline.lake import open_iceberg, read_by_arrow, read_by_spark
from tests.pipeline.sinks.test_delta_sink import EVERY_TYPE, split
from tests.pipeline.sinks.test_delta_upserts import some
from tests.pipeline.sinks.test_iceberg_sink import before_commit, data_files


def sink_at(path: Path, *keys: str, partition_by: tuple[str, ...] = (), **more: Any) -> IcebergUpserts:
    given = {"sleep": lambda _: None, **more}
    return IcebergUpserts(Location(str(path)), "rows", Layout(partition_by), keys or ("id",), **given)


def upsert(sink: IcebergUpserts, number: int, rows: DataFrame, deleted: DataFrame | None = None) -> int:
    """Merges the rows, and deletes the keys, as batch `number`. Returns the number of rows in the written files."""
    sink.prepare(rows.schema)
    keys = rows.select(*(f"`{name}`" for name in sink.keys))
    deletes = 0 if deleted is None else deleted.count()
    changes = ChangedKeys(keys if deleted is None else keys.unionByName(deleted), rows.count(), deletes)
    return sink.merge(rows, changes, BatchId("orders", number)).rows


def texts(sink: IcebergUpserts) -> dict[int, str]:
    rows = read_by_arrow(sink.place, ["id", "text"])
    found = {row["id"]: row["text"] for row in rows}
    assert len(found) == len(rows), "a key has two rows"
    return found


def test_rows_are_inserted_replaced_and_deleted_once(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "table")
    assert upsert(sink, 0, some(spark, 1, 2, 3)) == 3
    deleted = spark.createDataFrame([(1,), (99,)], "id LONG")
    assert upsert(sink, 1, some(spark, 3, 4, text="new"), deleted) == 3
    assert texts(sink) == {2: "text 2", 3: "new", 4: "new"}
    assert upsert(sink, 1, some(spark, 2, text="again")) == 0, "the batch is there"
    assert texts(sink) == {2: "text 2", 3: "new", 4: "new"}
    assert sink.last_batch(BatchId("orders", 0)) == 1
    upsert(sink, 2, some(spark), spark.createDataFrame([(2,), (3,), (4,)], "id LONG"))
    assert texts(sink) == {}
    upsert(sink, 3, some(spark), spark.createDataFrame([(7,)], "id LONG"))
    assert sink.last_batch(BatchId("orders", 0)) == 3, "a batch that changes no row is in the table, too"
    assert read_by_spark(spark, sink.place, ["id"]).count() == 0


def test_only_files_that_have_changed_keys_are_read_fully_and_rewritten(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "table")
    for number in range(4):
        upsert(sink, number, some(spark, 10 * number, 10 * number + 2))
    before = {file: ids_in(file) for file in data_files(sink)}
    contents = {file: file.read_bytes() for file, ids in before.items() if 20 not in ids}
    assert len(contents) == 3
    for file in contents:
        file.write_bytes(b"spoilt")
    upsert(sink, 4, some(spark, 20, 29, text="new"))
    for file, content in contents.items():
        file.write_bytes(content)
    assert set(before) - set(data_files(sink)) == set(before) - set(contents)
    there = set(data_files(sink))
    upsert(sink, 5, some(spark, 11, text="between the keys of a file"))
    assert there < set(data_files(sink))
    assert sorted(texts(sink)) == [0, 2, 10, 11, 12, 20, 22, 29, 30, 32]
    assert texts(sink)[20] == "new"


def ids_in(file: Path) -> list[int]:
    from pyarrow import parquet

    found: list[int] = parquet.read_table(file)["id"].to_pylist()
    return found


@pytest.mark.parametrize("partition_by", [(), ("text", "day")])
def test_rows_of_every_type_and_of_odd_partitions_survive_rewriting_and_compaction(
    spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    columns = [one for one in split(EVERY_TYPE) if not one.endswith(" AS text")]
    odd = "ELEMENT_AT(ARRAY('a b', 'a/b', 'a=b', 'a%3Ab', 'ü', 'x:y', NULL, '', 'null', '7'), CAST(id % 10 AS INT) + 1)"
    rows = spark.range(20).selectExpr(*columns, f"{odd} AS text")
    sink = sink_at(tmp_path / "my läke" / "table", partition_by=partition_by)
    upsert(sink, 0, rows.where("id % 2 = 0"))
    upsert(sink, 1, rows.where("id % 2 = 1"))
    upsert(sink, 2, rows.where("id % 3 = 0"))
    place = TablePlace(sink.place)
    done = compact_iceberg("rows", place, 1 << 27, timedelta(0), datetime(2099, 1, 1, tzinfo=UTC))
    assert done.vacuumed > 0
    upsert(sink, 3, rows.where("id % 7 = 0"))
    wanted = rows.toArrow().sort_by("id").to_pylist()
    assert repr(by_id(read_by_arrow(sink.place, rows.columns))) == repr(wanted)


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def test_a_key_may_have_several_columns_one_of_which_is_an_empty_partition_value(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = sink_at(tmp_path / "table", "id", "text", partition_by=("text",))
    rows = spark.createDataFrame([(1, "", 1), (1, "b", 1), (2, "", 1)], "id LONG, text STRING, n INT")
    upsert(sink, 0, rows)
    upsert(sink, 1, rows.where("id = 1").selectExpr("id", "text", "n + 1 AS n"))
    found = sorted((row["id"], row["text"], row["n"]) for row in read_by_arrow(sink.place, rows.columns))
    assert found == [(1, "", 2), (1, "b", 2), (2, "", 1)]


def test_columns_that_only_the_table_or_only_the_batch_has_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "table")
    upsert(sink, 0, some(spark, 1, 2))
    upsert(sink, 1, spark.createDataFrame([(2, 7)], "id LONG, n INT"))
    rows = by_id(read_by_arrow(sink.place, ["id", "text", "n"]))
    assert rows == [{"id": 1, "text": "text 1", "n": None}, {"id": 2, "text": None, "n": 7}]


def test_a_key_column_that_became_wider_is_found_in_older_files(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "table")
    upsert(sink, 0, some(spark, 1, 2).selectExpr("CAST(id AS INT) AS id", "text"))
    upsert(sink, 1, some(spark, 2, 5_000_000_000, text="new"))
    assert texts(sink) == {1: "text 1", 2: "new", 5_000_000_000: "new"}
    with pytest.raises(PipelineError, match="has id long, but the settings have id string; keep the column's type"):
        sink.prepare(spark.createDataFrame([], "id STRING, text STRING").schema)


def test_a_merge_that_a_compaction_overtakes_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(tmp_path / "table")
    for number in range(3):
        upsert(sink, number, some(spark, number))

    def compacted() -> None:
        done = compact_iceberg("rows", TablePlace(sink.place), 1 << 27, timedelta(days=7), None)
        assert done.files_after == 1

    with before_commit(monkeypatch, compacted):
        upsert(sink, 3, some(spark, 1, 7, text="new"))
    assert texts(sink) == {0: "text 0", 1: "new", 2: "text 2", 7: "new"}
    assert len(data_files(sink)) == 1
    written = list((sink.place.path / "data").glob("*.parquet"))
    assert len(written) == 3 + 1 + 1, "the files of the first attempt were removed"


def test_a_compaction_that_a_merge_overtakes_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(tmp_path / "table")
    for number in range(3):
        upsert(sink, number, some(spark, number))
    pauses = list[float]()
    with before_commit(monkeypatch, lambda: upsert(sink, 3, some(spark, 1, text="new"))):
        done = compact_iceberg("rows", TablePlace(sink.place), 1 << 27, timedelta(days=7), None, pauses.append)
    assert (done.files_after, len(pauses)) == (1, 1)
    assert texts(sink) == {0: "text 0", 1: "new", 2: "text 2"}
    assert sink.last_batch(BatchId("orders", 0)) == 3


@pytest.mark.parametrize(
    ("kind", "files", "inside", "outside"),
    [
        ("STRING", [["a", "c"], ["x", None]], "b", "d"),
        ("DATE", [[date(2024, 1, 1), date(2024, 1, 3)], [date(2025, 1, 1)]], date(2024, 1, 2), date(2024, 2, 1)),
        ("TINYINT", [[1, 3], [5]], 2, 4),
    ],
)
def test_statistics_exclude_files_without_the_keys(
    spark: SparkSession, tmp_path: Path, kind: str, files: list[list[Any]], inside: object, outside: object
) -> None:
    sink = sink_at(tmp_path / "table")
    for number, keys in enumerate(files):
        rows = spark.createDataFrame([(key,) for key in keys], f"id {kind}")
        sink.prepare(rows.schema)
        sink.write(rows, len(keys), BatchId("orders", number))
    table = open_iceberg(sink.place)
    for key, wanted in ((inside, 1), (outside, 0)):
        condition = rows_between(spark.createDataFrame([(key,)], f"id {kind}"), ["id"])
        assert len(list(table.scan(row_filter=condition).plan_files())) == wanted
