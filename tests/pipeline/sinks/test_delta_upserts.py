"""Upserts into a Delta table: one row for each key, each batch once, whatever else writes the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks import compaction, delta_commit
from odradek.pipeline.sinks.changed_keys import ChangedKeys
from odradek.pipeline.sinks.compaction import compact_table
from odradek.pipeline.sinks.delta_upserts import ATTEMPTS, DeltaUpserts, candidates
from odradek.pipeline.sinks.table_files import Layout
from odradek.pipeline.state import delta_tables
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location
from tests.pipeline.lake import read_by_arrow, read_by_spark
from tests.pipeline.sinks.test_delta_sink import EVERY_TYPE, split

SCHEMA = "id LONG, text STRING"


def sink_at(path: Path, *keys: str, partition_by: tuple[str, ...] = (), **more: Any) -> DeltaUpserts:
    return DeltaUpserts(Location(str(path)), "rows", Layout(partition_by), keys or ("id",), **more)


def upsert(sink: DeltaUpserts, number: int, rows: DataFrame, deleted: DataFrame | None = None) -> int:
    """Merges the rows, and deletes the keys, as batch `number`. Returns the number of rows in the written files."""
    sink.prepare(rows.schema)
    keys = rows.select(*(f"`{name}`" for name in sink.keys))
    deletes = 0 if deleted is None else deleted.count()
    changes = ChangedKeys(keys if deleted is None else keys.unionByName(deleted), rows.count(), deletes)
    return sink.merge(rows, changes, BatchId("orders", number)).rows


def some(spark: SparkSession, *ids: int, text: str = "") -> DataFrame:
    return spark.createDataFrame([(number, text or f"text {number}") for number in ids], SCHEMA)


def texts(sink: DeltaUpserts) -> dict[int, str]:
    rows = read_by_arrow(sink.place, ["id", "text"])
    found = {row["id"]: row["text"] for row in rows}
    assert len(found) == len(rows), "a key has two rows"
    return found


def removed_by_last_commit(sink: DeltaUpserts) -> int:
    newest = max((sink.place.path / "_delta_log").glob("*.json"))
    return sum("remove" in json.loads(line) for line in newest.read_text().splitlines())


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
    spoilt = [Path(file) for file in DeltaTable(sink.place).file_uris()]
    spoilt = [file for file in spoilt if "20" not in _ids_in(file)]
    contents = {file: file.read_bytes() for file in spoilt}
    assert len(spoilt) == 3
    for file in spoilt:
        file.write_bytes(b"spoilt")
    upsert(sink, 4, some(spark, 20, 29, text="new"))
    assert removed_by_last_commit(sink) == 1
    for file, content in contents.items():
        file.write_bytes(content)
    upsert(sink, 5, some(spark, 11, text="between the keys of a file"))
    assert removed_by_last_commit(sink) == 0
    assert sorted(texts(sink)) == [0, 2, 10, 11, 12, 20, 22, 29, 30, 32]
    assert texts(sink)[20] == "new"


def _ids_in(file: Path) -> list[str]:
    from pyarrow import parquet

    return [str(one) for one in parquet.read_table(file)["id"].to_pylist()]


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
    done = compact_table("rows", sink.place, 1 << 27, timedelta(0), datetime(2099, 1, 1, tzinfo=UTC))
    assert done.vacuumed > 0
    upsert(sink, 3, rows.where("id % 7 = 0"))
    wanted = rows.toArrow().sort_by("id").to_pylist()
    for row in wanted:  # In Delta, the empty string as a partition value is null.
        row["text"] = row["text"] or (None if partition_by else row["text"])
    assert repr(_by_id(read_by_arrow(sink.place, rows.columns))) == repr(wanted)


def _by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def test_a_key_may_have_several_columns_one_of_which_is_an_empty_partition_value(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = sink_at(tmp_path / "table", "id", "text", partition_by=("text",))
    rows = spark.createDataFrame([(1, "", 1), (1, "b", 1), (2, "", 1)], "id LONG, text STRING, n INT")
    upsert(sink, 0, rows)
    upsert(sink, 1, rows.where("id = 1").selectExpr("id", "text", "n + 1 AS n"))
    found = sorted((row["id"], row["text"] or "", row["n"]) for row in read_by_arrow(sink.place, rows.columns))
    assert found == [(1, "", 2), (1, "b", 2), (2, "", 1)]


def test_columns_that_only_the_table_or_only_the_batch_has_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "table")
    upsert(sink, 0, some(spark, 1, 2))
    upsert(sink, 1, spark.createDataFrame([(2, 7)], "id LONG, n INT"))
    rows = _by_id(read_by_arrow(sink.place, ["id", "text", "n"]))
    assert rows == [{"id": 1, "text": "text 1", "n": None}, {"id": 2, "text": None, "n": 7}]


def test_a_key_column_of_another_type_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = sink_at(tmp_path / "table")
    upsert(sink, 0, some(spark, 1))
    with pytest.raises(PipelineError, match="has id long, but the settings have id string; keep the column's type"):
        sink.prepare(spark.createDataFrame([], "id STRING, text STRING").schema)
    assert DeltaTable(sink.place).version() == 1


@pytest.mark.parametrize("option", ["delta.appendOnly", "delta.enableChangeDataFeed"])
def test_a_table_whose_files_may_not_simply_be_replaced_is_refused(
    spark: SparkSession, tmp_path: Path, option: str
) -> None:
    write_deltalake(tmp_path / "table", some(spark, 1).toArrow(), configuration={option: "true"})
    with pytest.raises(PipelineError, match=f"{option}.*which mode = upsert does not support"):
        sink_at(tmp_path / "table").prepare(some(spark).schema)


@contextmanager
def before_commit(monkeypatch: pytest.MonkeyPatch, work: Any, times: int = 1) -> Iterator[list[int]]:
    """Runs `work` between a merge's reading and its commit, for the first attempts."""
    commit, done = delta_commit.commit_replacement, list[int]()

    def overtaken(*arguments: Any) -> None:
        if len(done) < times:
            done.append(1)
            work()
        commit(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("odradek.pipeline.sinks.delta_upserts.commit_replacement", overtaken)
        yield done


def test_a_merge_that_a_compaction_overtakes_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(tmp_path / "table", sleep=lambda _: None)
    for number in range(3):
        upsert(sink, number, some(spark, number))

    def compacted() -> None:
        assert compact_table("rows", sink.place, 1 << 27, timedelta(days=7), None).files_after == 1

    with before_commit(monkeypatch, compacted):
        upsert(sink, 3, some(spark, 1, 7, text="new"))
    assert texts(sink) == {0: "text 0", 1: "new", 2: "text 2", 7: "new"}
    there = {Path(file).name for file in DeltaTable(sink.place).file_uris()}
    assert len(there) == 1
    written = {file.name for file in sink.place.path.glob("*.parquet")}
    assert len(written) == 3 + 1 + 1, "the files of the first attempt were removed"


def test_a_compaction_that_a_merge_overtakes_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(tmp_path / "table")
    for number in range(3):
        upsert(sink, number, some(spark, number))
    merges = [3]

    class Overtaken(DeltaTable):
        @property
        def optimize(self) -> Any:
            if merges:
                upsert(sink, merges.pop(), some(spark, 1, text="new"))
            return super().optimize

    pauses = list[float]()
    monkeypatch.setattr(compaction, "open_table", lambda place: Overtaken(place.url))
    assert compact_table("rows", sink.place, 1 << 27, timedelta(days=7), None, pauses.append).files_after == 1
    assert len(pauses) == 1
    assert texts(sink) == {0: "text 0", 1: "new", 2: "text 2"}
    assert sink.last_batch(BatchId("orders", 0)) == 3


def test_after_repeated_conflicts_the_table_is_unchanged_and_the_error_is_one_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(tmp_path / "table", sleep=lambda _: None)
    upsert(sink, 0, some(spark, 1))

    def other() -> None:
        commit = CommitProperties(app_transactions=[Transaction("other", DeltaTable(sink.place).version())])
        write_deltalake(sink.place.url, some(spark).toArrow(), mode="append", commit_properties=commit)

    with before_commit(monkeypatch, other, ATTEMPTS), pytest.raises(PipelineError, match="other writers were always"):
        upsert(sink, 1, some(spark, 1, text="new"))
    assert texts(sink) == {1: "text 1"}
    assert len(list(sink.place.path.glob("*.parquet"))) == 1


def test_a_commit_whose_response_is_lost_counts_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(tmp_path / "table")
    upsert(sink, 0, some(spark, 1))
    create = Location.create

    def lost(self: Location, name: str, content: bytes) -> bool:
        create(self, name, content)
        raise OSError("the connection was reset")

    monkeypatch.setattr(Location, "create", lost)
    with pytest.raises(OSError, match="reset"):
        upsert(sink, 1, some(spark, 1, 2, text="new"))
    monkeypatch.undo()
    assert upsert(sink, 1, some(spark, 1, 2, text="new")) == 0
    assert texts(sink) == {1: "new", 2: "new"}


def test_the_log_gets_checkpoints_that_readers_begin_at(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_commit, "CHECKPOINT_EACH", 3)
    sink = sink_at(tmp_path / "table")
    for number in range(4):
        upsert(sink, number, some(spark, number % 2, text=f"of {number}"))
    log = sink.place.path / "_delta_log"
    assert len(list(log.glob("*.checkpoint.parquet"))) == 1
    for version in range(2):
        (log / f"{version:020}.json").unlink()
    assert texts(sink) == {0: "of 2", 1: "of 3"}
    assert delta_tables.table_at(sink.place) is not None
    assert pa.table(DeltaTable(sink.place).get_add_actions()).num_rows == 2


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
    place = Location(str(tmp_path / "table"))
    for keys in files:
        rows = spark.createDataFrame([(key,) for key in keys], f"id {kind}")
        write_deltalake(place.url, rows.toArrow(), mode="append")
    table = DeltaTable(place)
    for key, wanted in ((inside, 1), (outside, 0)):
        found, logged = candidates(table, place, spark.createDataFrame([(key,)], f"id {kind}"), ["id"])
        assert (len(found.paths), len(logged)) == (wanted, wanted)
