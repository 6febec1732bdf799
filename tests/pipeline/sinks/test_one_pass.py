"""One pass writes the good rows and counts all of them; a second one writes the others, if there are any."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from odradek.pipeline.durations import duration
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.batch import tally_of
from odradek.pipeline.parse.records import parsed
from odradek.pipeline.parse.transforms import DEAD, GOOD, LATE, judged
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.sinks import table_files
from odradek.pipeline.sinks.batch_tables import BatchTables
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.places import Places
from tests.pipeline.lake import read_by_arrow
from tests.pipeline.parse.parsing_records import records

BATCH = BatchId("orders", 0)
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def settings_of(directory: Path, **more: object) -> Settings:
    given = {"schema": "id LONG, shop STRING, at TIMESTAMP", "event_time": "at", "lake": str(directory / "lake")}
    return make_settings({**given, "late_rows": "keep", **more})


def order(number: int, shop: str = "a", hour: int = 13) -> bytes:
    return json.dumps({"id": number, "shop": shop, "at": f"2024-01-01T{hour}:00:00Z"}).encode()


VALUES = [order(0), b"{", order(1, "b"), None, order(2, hour=11), b'{"id":"x"}', order(3, "b", 15)]
"""Three good records, three dead ones, and one that is late at noon."""


def rows_of(spark: SparkSession, settings: Settings, values: Iterable[bytes | None] = VALUES) -> DataFrame:
    by_partition = (
        records(spark, list(values)).repartition(3, "offset").withColumn("partition", sf.spark_partition_id())
    )
    return judged(parsed(by_partition, settings), NOON)


def prepared(spark: SparkSession, settings: Settings) -> BatchTables:
    tables = BatchTables(settings, Places.of(settings))
    tables.prepare(parsed(records(spark, []), settings))
    return tables


def files_below(settings: Settings) -> list[Path]:
    return list(Path(settings.lake).rglob("*.parquet"))


@pytest.mark.parametrize("partition_by", [(), ("shop",)])
def test_each_row_is_in_the_table_of_its_outcome(
    spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    settings = settings_of(tmp_path, partition_by=list(partition_by), files_per_batch=2)
    rows, tables, places = rows_of(spark, settings), prepared(spark, settings), Places.of(settings)
    with tables.staged(rows, 7, BATCH) as staged:
        assert tables.last_batch(BATCH) is None, "nothing is committed yet"
        written = tables.commit(staged, BATCH)
    assert sorted(row["id"] for row in read_by_arrow(places.rows, ["id"])) == [0, 1, 3]
    letters = read_by_arrow(places.dead_letters, ["reason", "detail", "value", "offset", "batch_id"])
    assert {row["offset"]: (row["reason"], row["value"], row["batch_id"]) for row in letters} == {
        1: ("not_json", b"{", 0),
        3: ("tombstone", None, 0),
        5: ("wrong_type", b'{"id":"x"}', 0),
    }
    assert {row["detail"] for row in letters} >= {'id is not LONG: "x"', "the value is null"}
    assert read_by_arrow(places.late, ["id", "_offset", "batch_id"]) == [{"id": 2, "_offset": 4, "batch_id": 0}]
    assert (written.rows, written.files) == (7, len(files_below(settings)))
    assert tables.last_batch(BATCH) == 0


def test_the_counts_are_those_of_a_count_beforehand(spark: SparkSession, tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    rows = rows_of(spark, settings)
    with prepared(spark, settings).staged(rows, 7, BATCH) as staged:
        tally = staged.tally
    expected = tally_of(rows, duration(settings.watermark_delay, ""))
    assert tally == dataclasses.replace(expected, buckets=set(), first={})
    assert tally.by_outcome == {GOOD: 3, DEAD: 3, LATE: 1}
    assert tally.newest_us == int(NOON.timestamp() + 3 * 3600) * 1_000_000


def test_a_table_that_has_the_batch_is_skipped_but_its_rows_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    rows, tables = rows_of(spark, settings), prepared(spark, settings)
    with tables.staged(rows, 7, BATCH) as staged:
        staged.files[DEAD].clear()
        for file in staged.files[GOOD]:
            assert file.rows
        tables.rows.commit(staged.files.pop(GOOD), BATCH)  # type: ignore[attr-defined]
    with tables.staged(rows, 7, BATCH) as again:
        assert set(again.files) == {DEAD, LATE}
        assert again.tally.by_outcome == {GOOD: 3, DEAD: 3, LATE: 1}
        tables.commit(again, BATCH)
    assert len(read_by_arrow(Places.of(settings).rows, ["id"])) == 3
    assert len(read_by_arrow(Places.of(settings).dead_letters, ["offset"])) == 3


def test_a_batch_of_good_rows_takes_one_pass(spark: SparkSession, tmp_path: Path) -> None:
    settings, seen = settings_of(tmp_path), tmp_path / "seen"
    rows = judged(parsed(seen_each_time(records(spark, [order(0), order(1)]), seen), settings), NOON)
    with prepared(spark, settings).staged(rows, 2, BATCH) as staged:
        assert (staged.tally.by_outcome, staged.rejected) == ({GOOD: 2}, None)
    assert seen.read_text() == "x"


def seen_each_time(given: DataFrame, seen: Path, fewer: bool = False) -> DataFrame:
    """Adds a letter to a file each time that the records are read. `fewer`: later reads lack the first record."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            again = seen.exists()
            with seen.open("a") as file:
                file.write("x")
            yield batch.slice(1 if fewer and again else 0)

    return given.coalesce(1).mapInArrow(count, given.schema)


def test_a_second_pass_that_finds_other_dead_rows_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    settings, seen = settings_of(tmp_path), tmp_path / "seen"
    rows = judged(parsed(seen_each_time(records(spark, [b"{", order(1)]), seen, fewer=True), settings), NOON)
    tables = prepared(spark, settings)
    with (
        pytest.raises(PipelineError, match="1 rows were counted, but 0 found: the records were read again"),
        tables.staged(rows, 2, BATCH),
    ):
        pytest.fail("not reached")
    assert not files_below(settings)


@pytest.mark.parametrize("sink", ["delta", "iceberg", "parquet"])
def test_files_that_are_not_committed_are_removed(spark: SparkSession, tmp_path: Path, sink: str) -> None:
    settings = settings_of(tmp_path, sink=sink)
    tables = prepared(spark, settings)
    with tables.staged(rows_of(spark, settings), 7, BATCH) as staged:
        assert len(files_below(settings)) == sum(map(len, staged.files.values())) >= 3
    assert not files_below(settings)


def test_files_that_the_driver_cannot_read_are_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path)
    tables = prepared(spark, settings)

    def unreadable(*_: object) -> None:
        raise PipelineError("not found")

    monkeypatch.setattr(table_files, "read_back", unreadable)
    with pytest.raises(PipelineError, match="not found"), tables.staged(rows_of(spark, settings), 7, BATCH):
        pytest.fail("not reached")
    assert not files_below(settings)


def test_a_batch_without_good_rows_writes_no_file_of_them(spark: SparkSession, tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    tables = prepared(spark, settings)
    with tables.staged(rows_of(spark, settings, [b"{", None]), 2, BATCH) as staged:
        assert (staged.files[GOOD], Counter(staged.tally.reasons)) == ([], {"not_json": 1, "tombstone": 1})


def test_only_batches_whose_rows_are_used_once_take_one_pass(spark: SparkSession, tmp_path: Path) -> None:
    plain = settings_of(tmp_path)
    more = [{"dedup_keys": ("id",)}, {"window": "1 minute"}, {"results_topic": "results"}]
    more += [{"transform": "m:f"}, {"rules": {"id": "id > 0"}}, {"on_data_loss": "continue"}]
    found = [
        BatchTables(dataclasses.replace(plain, **one), Places.of(plain)).take_one_pass  # type: ignore[arg-type]
        for one in [{}, *more]
    ]
    assert found == [True] + [False] * len(more)


def test_a_file_of_a_failed_attempt_of_a_task_is_not_published(spark: SparkSession, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, sink="parquet")
    tables, rows = prepared(spark, settings), Places.of(settings).rows.path
    with tables.staged(rows_of(spark, settings), 7, BATCH) as staged:
        (file,) = staged.files[GOOD]
        (rows / file.path).with_name("part-failed-0.parquet").write_bytes((rows / file.path).read_bytes())
        tables.commit(staged, BATCH)
    assert [path.name for path in rows.rglob("*.parquet")] == [Path(file.path).name]
    assert not (rows / "_staging").exists()
