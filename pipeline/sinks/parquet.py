"""A directory of Parquet files to which each batch is added exactly once, for readers that support only Parquet.

A batch is written to a staging directory, and becomes visible by one rename: `TABLE/batch=00000012/`. A batch that has
this directory is not written again. Readers see `batch` as a column. An object store has no such rename, so the sink
rejects it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.delta import nothing
from odradek.pipeline.sinks.iceberg_tables import has_iceberg_metadata
from odradek.pipeline.sinks.known_events import DataFiles, Spans
from odradek.pipeline.sinks.table_files import Layout, TableFile, Written, partition_values, write_files
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location

STAGING = "_staging"


class ParquetSink:
    """The directory `place`. `reached` is called with the name of each step that a batch completes, prefixed by `name`.

    Raises PipelineError if `place` is in an object store."""

    def __init__(
        self, place: Location, name: str, layout: Layout | None = None, reached: Callable[[str], None] = nothing
    ) -> None:
        if not place.is_local:
            raise PipelineError(
                f"{place}: an object store cannot publish the files of a batch atomically, which plain Parquet needs",
                "set sink to delta or iceberg",
            )
        self.place = place
        self.name = name
        self._layout = layout or Layout()
        self._reached = reached

    def last_batch(self, batch: BatchId) -> int | None:
        """Returns the number of the last batch. Raises PipelineError if the directory is a table of another format."""
        self._refuse_tables()
        return max(self._batches(), default=None)

    def files(self, column: str, spans: Spans) -> DataFiles:
        """Returns the data files of all batches. Only their footers show which have rows of these times."""
        files = [path for path in self.place.sizes() if path.startswith("batch=") and path.endswith(".parquet")]
        names = self._layout.partition_by
        return DataFiles(self.place, files, [dict(partition_values(file, names)) for file in files] if names else [])

    def prepare(self, schema: StructType) -> None:
        """Creates the directory. Raises PipelineError if it is another table, or its columns have other types."""
        self._refuse_tables()
        path = self.place.path
        shutil.rmtree(path / STAGING, ignore_errors=True)  # Left over by a killed attempt.
        path.mkdir(parents=True, exist_ok=True)
        if self._batches():
            self._compare(schema)

    def write(self, rows: DataFrame, expected: int, batch: BatchId) -> Written:
        """Adds the rows, `expected` in number, unless the directory has this batch."""
        directory = self.aside(batch)
        if directory is None:
            return Written()
        try:
            return self.commit(write_files(rows, self.place, directory, self._layout, expected), batch)
        finally:
            self.discard()

    def aside(self, batch: BatchId) -> str | None:
        """Returns where the batch's files belong before they are committed. None if the directory has the batch."""
        return None if (self.place.path / f"batch={batch}").exists() else f"{STAGING}/{batch}"

    def commit(self, files: Sequence[TableFile], batch: BatchId) -> Written:
        """Adds the files in `aside`, without those of attempts of tasks that failed. Raises OSError."""
        aside = self.place.path / STAGING / str(batch)
        try:
            self._reached(f"{self.name}: files written")
            for stray in set(aside.rglob("*.parquet")) - {self.place.path / file.path for file in files}:
                stray.unlink()
            os.rename(aside, self.place.path / f"batch={batch}")
        finally:
            self.discard()
        self._reached(f"{self.name}: committed")
        return Written(len(files), sum(file.bytes for file in files), sum(file.rows for file in files))

    def discard(self, _files: Sequence[TableFile] = ()) -> None:
        """Removes files that were not committed."""
        shutil.rmtree(self.place.path / STAGING, ignore_errors=True)

    def _refuse_tables(self) -> None:
        if (self.place.path / "_delta_log").is_dir():
            raise PipelineError(f"{self.place} is a Delta table", "set sink to delta, or another name")
        if has_iceberg_metadata(self.place):
            raise PipelineError(f"{self.place} is an Iceberg table", "set sink to iceberg, or another name")

    def _batches(self) -> list[int]:
        path = self.place.path
        if not path.is_dir():
            return []
        found = (re.fullmatch(r"batch=(\d+)", one.name) for one in path.iterdir())
        return [int(match[1]) for match in found if match]

    def _compare(self, schema: StructType) -> None:
        """Compares the types of the newest batch with the settings': readers cannot combine a column of two types."""
        from pyarrow import parquet

        from odradek.pipeline.sinks.arrow_types import arrow_schema

        newest = self.place.path / f"batch={max(self._batches()):08d}"
        files = sorted(newest.rglob("*.parquet"))
        if not files:
            return
        there = parquet.read_schema(files[0])
        for field in arrow_schema(schema):
            index = there.get_field_index(field.name)
            if index >= 0 and not _alike(there.field(index).type, field.type):
                raise PipelineError(
                    f"{self.place} has {field.name} {there.field(index).type}, but the settings have {field.type}",
                    "keep the column's type, or set another name",
                )


def _alike(one: object, other: object) -> bool:
    """Whether two Arrow types are equal, except for what Parquet loses: names within lists and maps, nullability."""
    return re.sub(r" not null|element: |item: |\('\w+'\)", "", str(one)) == re.sub(
        r" not null|element: |item: |\('\w+'\)", "", str(other)
    )
