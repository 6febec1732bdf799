"""A directory of Parquet files that grows by batches, exactly once each, for readers that know nothing but Parquet.

A batch is staged, and becomes visible by one rename: `TABLE/batch=ingest-1-00000012/`. That directory is also the
memory of what was written: a batch that has one is not written again. `batch` is a column to readers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.delta import nothing
from odradek.pipeline.sinks.staged_files import Layout, Written, clear_staging, parquet_files, staged


class ParquetSink:
    """The directory `path`; `name` is what the points are called that `reached` is told of."""

    def __init__(
        self, path: Path, name: str, layout: Layout | None = None, reached: Callable[[str], None] = nothing
    ) -> None:
        self.path = path
        self.name = name
        self._layout = layout or Layout()
        self._reached = reached

    def last_batch(self, batch: BatchId) -> int | None:
        """The number of the last batch of this job and generation that is there."""
        numbers = [number for job, generation, number in self._batches() if (job, generation) == batch_line(batch)]
        return max(numbers, default=None)

    def files(self) -> list[str]:
        """The data files of all batches."""
        return [str(place / file) for place in sorted(self.path.glob("batch=*")) for file in parquet_files(place)]

    def prepare(self, schema: StructType, job: str) -> None:
        """Makes the directory. Raises PipelineError if it is a Delta table, or its columns are of other types."""
        if (self.path / "_delta_log").is_dir():
            raise PipelineError(f"{self.path} is a Delta table", "set sink to delta, or another name")
        clear_staging(self.path, job)
        self.path.mkdir(parents=True, exist_ok=True)
        if self._batches():
            self._compare(schema)

    def write(self, rows: DataFrame, batch: BatchId) -> Written:
        """Adds the rows, unless this batch is there."""
        place = self.path / f"batch={batch}"
        if place.exists():
            return Written()
        with staged(rows, self.path, self._layout, batch) as directory:
            files = parquet_files(directory)
            size = sum((directory / file).stat().st_size for file in files)
            self._reached(f"{self.name}: files written")
            os.rename(directory, place)
        self._reached(f"{self.name}: committed")
        return Written(len(files), size)

    def _batches(self) -> list[tuple[str, int, int]]:
        if not self.path.is_dir():
            return []
        found = (re.fullmatch(r"batch=(.+)-(\d+)-(\d+)", one.name) for one in self.path.iterdir())
        return [(match[1], int(match[2]), int(match[3])) for match in found if match]

    def _compare(self, schema: StructType) -> None:
        """The newest file's types against the settings': readers cannot join a column of two types."""
        import pyarrow as pa
        from pyarrow import parquet
        from pyspark.sql.pandas.types import to_arrow_schema

        newest = max(self.path.glob("batch=*"), key=lambda place: place.stat().st_mtime)
        files = parquet_files(newest)
        if not files:
            return
        there = parquet.read_schema(newest / files[0])
        wanted: pa.Schema = to_arrow_schema(schema, timestamp_utc=True)
        for field in wanted:
            index = there.get_field_index(field.name)
            if index >= 0 and not _alike(there.field(index).type, field.type):
                raise PipelineError(
                    f"{self.path} has {field.name} {there.field(index).type}, the settings say {field.type}",
                    "keep the column as it was, or set another name",
                )


def _alike(one: object, other: object) -> bool:
    """Whether two Arrow types are one, but for what Parquet does not keep: names within lists and maps, nullability."""
    return re.sub(r" not null|element: |item: |\('\w+'\)", "", str(one)) == re.sub(
        r" not null|element: |item: |\('\w+'\)", "", str(other)
    )


def batch_line(batch: BatchId) -> tuple[str, int]:
    """What all batches of one checkpoint have in common."""
    return batch.job, batch.generation
