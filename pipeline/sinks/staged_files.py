"""Parquet files that Spark's executors have written, before they belong to a table.

Each attempt to write a batch has a directory of its own below `TABLE/_staging/JOB`; nothing there is read by anybody.
Names that begin with an underscore are no data to Spark, Arrow and Delta. What a killed attempt leaves there is
removed when the job starts again.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from odradek.pipeline.batch_id import BatchId

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
STAGING = "_staging"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where rows go within a table: its partition columns, and how many files each partition gets at most."""

    partition_by: tuple[str, ...] = ()
    files: int = 1


@dataclass(frozen=True, slots=True)
class Written:
    """Files of a batch that are a table's by now."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Written) -> Written:
        return Written(self.files + other.files, self.bytes + other.bytes)


@contextmanager
def staged(rows: DataFrame, table: Path, layout: Layout, batch: BatchId) -> Iterator[Path]:
    """A directory with the rows as Parquet files, in Hive's directories if partitioned; gone at the end.

    Raises what Spark raises, with whatever was written gone."""
    directory = table / STAGING / batch.job / f"{batch.number}-{uuid.uuid4().hex}"
    try:
        writer = _arranged(rows, layout).write
        if layout.partition_by:
            writer = writer.partitionBy(*layout.partition_by)
        writer.parquet(str(directory))
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _arranged(rows: DataFrame, layout: Layout) -> DataFrame:
    """As few tasks as files: each writes one into each table partition that it has rows of.

    One file for each partition of a table is best written by as many tasks as there are partitions."""
    if layout.partition_by and layout.files <= 1:
        return rows.repartition(*(sf.col(f"`{name}`") for name in layout.partition_by))
    return rows.coalesce(max(layout.files, 1))


def clear_staging(table: Path, job: str) -> None:
    """Removes what killed attempts of this job have left."""
    shutil.rmtree(table / STAGING / job, ignore_errors=True)


def parquet_files(directory: Path) -> list[Path]:
    """The data files below a directory, relative to it."""
    return sorted(path.relative_to(directory) for path in directory.rglob("*.parquet") if path.is_file())


def partition_values(file: Path, partition_by: Sequence[str]) -> dict[str, str | None]:
    """What Hive's directories say: `day=2024-01-01/part-0.parquet`."""
    texts = dict(part.split("=", 1) for part in file.parts[:-1])
    values = {unquote(name): None if text == NULL_PARTITION else unquote(text) for name, text in texts.items()}
    return {name: values[name] for name in partition_by}
