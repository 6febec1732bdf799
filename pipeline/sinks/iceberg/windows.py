"""Event-time windows in an Iceberg table, to which each batch's counts and sums are added.

A window is in the table from its first event on, and is correct after every batch; it does not wait for a watermark.
The table is partitioned by `window_day`. The driver reads the files of the batch's days, adds the batch, and replaces
them in the snapshot that has the number of the batch. So the duration does not depend on the size of the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysFalse, BooleanExpression, In
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.parse.schemas import WINDOW_DAY
from odradek.pipeline.sinks.delta import nothing
from odradek.pipeline.sinks.iceberg.batches import has_batch
from odradek.pipeline.sinks.iceberg.data_files import DIRECTORY, between, files_of, listed
from odradek.pipeline.sinks.iceberg.sink import ATTEMPTS, PAUSE_S, Conflict, IcebergSink
from odradek.pipeline.sinks.table_files import Layout, TableFile, Written, read_back, scratch_directory, write_rows
from odradek.pipeline.sinks.table_rows import read_rows
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location

MOST_DAYS = 1000
"""The maximum number of days that a merge names individually. With more days, it names the first and the last."""


class IcebergWindows(IcebergSink):
    """The table at `place`, with the columns of `transforms.windowed`. `by`: the columns that group the windows."""

    def __init__(
        self,
        place: Location,
        by: Sequence[str],
        reached: Callable[[str], None] = nothing,
        catalog: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(place, "windows", Layout((WINDOW_DAY,)), reached, catalog, sleep)
        self._by = (WINDOW_DAY, "window_start", "window_end", *by)

    def prepare(self, schema: StructType) -> None:
        """Creates the table, or adds the columns that it lacks. Raises PipelineError if it is incompatible."""
        table = self._table.find()
        if table is not None and [one.name for one in table.spec().fields] != [WINDOW_DAY]:
            raise PipelineError(
                f"the table {self.place} is not partitioned by {WINDOW_DAY}: it is not a table of windows", ANEW
            )
        super().prepare(schema)

    def add(self, rows: DataFrame, batch: BatchId) -> Written:
        """Adds the counts and sums, unless the table has this batch."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._merge(rows, batch)
            except Conflict:  # Another writer, such as `compact`, committed first.
                if attempt == ATTEMPTS:
                    raise
                self._sleep(PAUSE_S * attempt)
        raise AssertionError("the last attempt returns or raises")

    def _merge(self, rows: DataFrame, batch: BatchId) -> Written:
        table = self._table.open()
        if has_batch(table, batch.app(self.name), batch.number):
            return Written()
        content = rows.toArrow()
        removed = files_of(table, _of_days(content[WINDOW_DAY]))
        merged = self._added(self._rows(table, removed, content.schema), content)
        files = self._written(merged)
        self._reached("windows: files written")
        try:
            self._replace(table, removed, files, batch)
        except Conflict:
            self.discard(files)
            raise
        self._reached("windows: committed")
        return Written(len(files), 0, content.num_rows)

    def _rows(self, table: Table, files: Sequence[DataFile], wanted: pa.Schema) -> pa.Table:
        """Returns the windows in the files, with the columns `wanted` and those that only the table has."""
        named = set(wanted.names)
        others = [one for one in table.schema().as_arrow() if one.name not in named]
        whole = pa.schema([*wanted, *(pa.field(one.name, one.type) for one in others)])
        found = listed(files, table, self.place)
        batches = (
            batch
            for number, path in enumerate(found.paths)
            for batch in read_rows(self.place, path, found.partitions[number], whole)
        )
        return pa.Table.from_batches(batches, whole)

    def _added(self, there: pa.Table, new: pa.Table) -> pa.Table:
        """Returns all windows, each once: with sums over both. Null and a number make the number."""
        if there.group_by(list(self._by)).aggregate([]).num_rows != there.num_rows:
            raise PipelineError(
                f"{self.place} has duplicate rows: several of one window",
                "remove the duplicates: a window (its day, time and keys) must have one row",
            )
        both = pa.concat_tables([there, new], promote_options="default")
        measures = [name for name in both.column_names if name not in self._by]
        summed = both.group_by(list(self._by)).aggregate([(name, "sum") for name in measures])
        columns = {name: summed[name if name in self._by else f"{name}_sum"] for name in both.column_names}
        return pa.table(columns).cast(both.schema)

    def _written(self, rows: pa.Table) -> list[TableFile]:
        """Writes the windows to files. The driver does, since they are few."""
        with scratch_directory() as scratch:
            written = write_rows(iter(rows.to_batches()), scratch, self.place / DIRECTORY, self._layout)
        return [self._read_back(one) for one in written]

    def _read_back(self, one: Mapping[str, Any]) -> TableFile:
        return read_back(self.place, f"{DIRECTORY}/{one['path']}", one["rows"], one["bytes"], one["host"])


def _of_days(days: pa.ChunkedArray) -> BooleanExpression:
    """Returns a condition that selects the windows of these days."""
    distinct: list[int] = pc.unique(days).sort().cast(pa.int32()).to_pylist()
    if not distinct:
        return AlwaysFalse()
    if len(distinct) > MOST_DAYS:
        return between(WINDOW_DAY, distinct[0], distinct[-1])
    one_of: Any = In
    condition: BooleanExpression = one_of(WINDOW_DAY, set(distinct))
    return condition
