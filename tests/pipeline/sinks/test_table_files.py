"""The driver finds the executors' files with the counted rows, or commits nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.parquet import ParquetSink
from odradek.pipeline.sinks.table_files import ROWS_PER_TASK, Layout, partition_values, write_files
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location
from tests.pipeline.lake import read_by_arrow

BATCH = BatchId("orders", 0)
ROOT = Path(__file__).parents[3]


def at(path: Path) -> Location:
    return Location(str(path / "table"))


def files_below(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*.parquet"))


def test_the_driver_finds_each_file_with_its_rows_and_bytes(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(100, numPartitions=3).selectExpr("id", "id % 2 AS kind")
    files = write_files(rows, at(tmp_path), "aside", Layout(("kind",), 2), 100)
    assert files_below(tmp_path / "table") == sorted(file.path for file in files)
    assert all(file.path.startswith("aside/kind=") for file in files)
    assert sorted(file.rows for file in files) == [50, 50]
    for file in files:
        assert file.bytes == (tmp_path / "table" / file.path).stat().st_size
        assert file.footer.num_rows == file.rows
        assert partition_values(file.path, ["kind"]) == {"kind": file.path[len("aside/kind=")]}


@pytest.mark.parametrize(("tasks", "expected", "files"), [(0, 1, 1), (0, ROWS_PER_TASK + 1, 2), (1, 9, 1), (2, 9, 2)])
def test_the_number_of_tasks_follows_the_rows_or_the_setting(
    spark: SparkSession, tmp_path: Path, tasks: int, expected: int, files: int
) -> None:
    rows = spark.range(expected, numPartitions=4).toDF("id")
    assert len(write_files(rows, at(tmp_path), "", Layout(tasks=tasks), expected)) == files


def test_no_file_is_written_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    assert write_files(spark.range(0).toDF("id"), at(tmp_path), "", Layout(), 0) == []
    assert files_below(tmp_path) == []


@pytest.mark.parametrize("expected", [9, 11])
@pytest.mark.parametrize("kind", [DeltaSink, ParquetSink])
def test_a_row_count_mismatch_is_an_error_and_nothing_is_committed(
    spark: SparkSession, tmp_path: Path, kind: type[DeltaSink] | type[ParquetSink], expected: int
) -> None:
    rows = spark.range(10).toDF("id")
    sink = kind(at(tmp_path), "rows")
    sink.prepare(rows.schema)
    with pytest.raises(PipelineError, match=f"{expected} rows were counted, but 10 written: .*; start the job again"):
        sink.write(rows, expected, BATCH)
    assert sink.last_batch(BATCH) is None
    assert files_below(tmp_path) == [], "what is of no use is removed"
    assert sink.write(rows, 10, BATCH).rows == 10


@dataclass(frozen=True, slots=True)
class NotShared(Location):
    """A lake that each machine has separately: tasks write to `theirs`, the driver reads here."""

    theirs: str = ""

    def put_file(self, name: str, file: Path) -> None:
        """Tasks call this; the driver does not."""
        Location(self.theirs).put_file(name, file)


@pytest.mark.parametrize("kind", [DeltaSink, ParquetSink])
def test_an_unshared_lake_is_reported_and_nothing_is_committed(
    spark: SparkSession, tmp_path: Path, kind: type[DeltaSink] | type[ParquetSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.range(10).toDF("id")
    place = NotShared(f"{tmp_path}/table", {}, f"{tmp_path}/of the executor")
    monkeypatch.setattr(NotShared, "__truediv__", lambda self, name: NotShared(f"{self.url}/{name}", {}, self.theirs))
    sink = kind(place, "rows")
    sink.prepare(rows.schema)
    with pytest.raises(PipelineError, match=r"wrote .*part-.*: they do not share the lake") as caught:
        sink.write(rows, 10, BATCH)
    assert "the executor on " in caught.value.problem
    assert "a shared directory, or an object store" in caught.value.remedy
    assert sink.last_batch(BATCH) is None
    assert files_below(tmp_path / "table") == []
    if kind is DeltaSink:
        assert DeltaTable(place.url).version() == 0


@dataclass(frozen=True, slots=True)
class Losing(Location):
    """A place that keeps only `part` of what is written."""

    part: float = 0.5

    def put_file(self, name: str, file: Path) -> None:
        Location(self.url).put_file(name, file)
        there = self.path / name
        there.write_bytes(there.read_bytes()[: int(there.stat().st_size * self.part)])


@pytest.mark.parametrize("part", [0, 0.5, 0.99])
def test_a_torn_file_is_reported_and_removed(spark: SparkSession, tmp_path: Path, part: float) -> None:
    place = Losing(f"{tmp_path}/table", {}, part)
    with pytest.raises(PipelineError, match=r"cannot be read back: .*; start again"):
        write_files(spark.range(10).toDF("id"), place, "", Layout(), 10)
    assert files_below(tmp_path) == []


def breaking_off(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Makes the first attempt of each task fail in the middle of its rows."""
    for number, batch in enumerate(batches):
        if number == 1:
            raise OSError("the first attempt breaks off")
        yield batch


def test_a_failed_task_ends_the_batch_and_the_next_attempt_duplicates_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(40_000, numPartitions=2).toDF("id")
    sink = DeltaSink(at(tmp_path), "rows")
    sink.prepare(rows.schema)
    with pytest.raises(Exception, match="breaks off"):
        sink.write(rows.mapInArrow(breaking_off, rows.schema), 40_000, BATCH)
    assert sink.last_batch(BATCH) is None
    assert sink.write(rows, 40_000, BATCH).rows == 40_000
    assert sorted(row["id"] for row in read_by_arrow(sink.place, ["id"])) == list(range(40_000))


RETRYING = """
import sys
from pathlib import Path
from pyspark import TaskContext
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.table_files import Layout
from odradek.pipeline.spark.session import open_session
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location
from tests.pipeline.conftest import QUICK_SESSION

class FailingOnce(Location):
    def put_file(self, name, file):
        super().put_file(name, file)
        if TaskContext.get().attemptNumber() == 0:
            raise OSError("the first attempt breaks off")

def breaking_off(batches):
    for number, batch in enumerate(batches):
        if number == 1 and TaskContext.get().attemptNumber() == 0:
            raise OSError("the first attempt breaks off")
        yield batch

spark = open_session(Settings(master="local[2,3]"), QUICK_SESSION)
rows = spark.range(40_000, numPartitions=2).selectExpr("id", "id % 3 AS kind")
sink = DeltaSink(FailingOnce(sys.argv[1]), "rows", Layout(("kind",), 2))
sink.prepare(rows.schema)
for number in range(2):
    broken = rows.mapInArrow(breaking_off, rows.schema) if number else rows
    assert sink.write(broken, 40_000, BatchId("orders", number)).rows == 40_000
spark.stop()
"""


def test_a_retried_task_duplicates_nothing(tmp_path: Path) -> None:
    """The shared session never retries a task, so this test has its own session."""
    command = [sys.executable, "-c", RETRYING, str(tmp_path / "table")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    place = at(tmp_path)
    assert sorted(row["id"] for row in read_by_arrow(place, ["id"])) == sorted([*range(40_000)] * 2)
    named = pa.table(DeltaTable(place).get_add_actions()).num_rows
    assert named == 6
    assert named < len(files_below(tmp_path)), "an attempt has left files that were not reported"


def test_partition_values_are_read_from_directories_in_the_requested_order() -> None:
    file = "batch=00000001/kind=a%2Fb%3Dc/day=__HIVE_DEFAULT_PARTITION__/x=/part-0=1.parquet"
    wanted: list[tuple[str, Any]] = [("x", ""), ("day", None), ("kind", "a/b=c")]
    assert list(partition_values(file, [name for name, _ in wanted]).items()) == wanted
    assert partition_values("part-0.parquet", []) == {}
