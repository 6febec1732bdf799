"""An Iceberg table with one row for each key, into which each batch is merged exactly once (mode = upsert).

As in a Delta table (delta_upserts.py): executors find the files that have changed keys, and rewrite them without those
rows, together with the batch's rows. One snapshot replaces the files and has the number of the batch. If another writer
commits first, the merge is repeated from the newer version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import DateType

from odradek.pipeline.sinks.changed_files import ORDERED, ROWS_PER_FILE, ChangedFiles, rows_with
from odradek.pipeline.sinks.changed_keys import ChangedKeys
from odradek.pipeline.sinks.delta import nothing
from odradek.pipeline.sinks.iceberg.batches import has_batch
from odradek.pipeline.sinks.iceberg.columns import columns_of
from odradek.pipeline.sinks.iceberg.data_files import DIRECTORY, between, files_of, listed
from odradek.pipeline.sinks.iceberg.sink import ATTEMPTS, PAUSE_S, Conflict, IcebergSink
from odradek.pipeline.sinks.table_files import Layout, TableFile, Written, write_files
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location


class IcebergUpserts(IcebergSink):
    """The table at `place`, with one row for each value of the columns `keys`."""

    def __init__(
        self,
        place: Location,
        name: str,
        layout: Layout,
        keys: Sequence[str],
        reached: Callable[[str], None] = nothing,
        catalog: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(place, name, layout, reached, catalog, sleep)
        self.keys = tuple(keys)

    def merge(self, rows: DataFrame, changes: ChangedKeys, batch: BatchId) -> Written:
        """Replaces the rows with changed keys by `rows`, `changes.upserts` in number, unless the table has this batch.

        Raises errors of Spark and of the catalog, and PipelineError; the table is then unchanged."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._merge(rows, changes, batch)
            except Conflict:
                if attempt == ATTEMPTS:
                    raise
                self._sleep(PAUSE_S * attempt)
        raise AssertionError("the last attempt returns or raises")

    def rows_with(self, keys: DataFrame, further: Sequence[str]) -> DataFrame:
        """Returns the columns of the key and the `further` ones of the rows that have one of the keys."""
        table = self._table.open()
        files = listed(files_of(table, rows_between(keys, self.keys)), table, self.place)
        return rows_with(keys, files, columns_of(table), self.keys, further)

    def _merge(self, rows: DataFrame, changes: ChangedKeys, batch: BatchId) -> Written:
        table = self._table.open()
        if has_batch(table, batch.app(self.name), batch.number):
            return Written()
        candidates = files_of(table, rows_between(changes.keys, self.keys))
        found = ChangedFiles(listed(candidates, table, self.place), columns_of(table), changes, self.keys)
        files: list[TableFile] = []
        expected = changes.upserts + found.kept
        if expected:
            merged = found.rows().unionByName(rows, allowMissingColumns=True)
            layout = replace(self._layout, rows_per_file=ROWS_PER_FILE)
            files = write_files(merged, self.place, DIRECTORY, layout, expected)
        self._reached(f"{self.name}: files written")
        try:
            self._replace(table, [candidates[number] for number in found.numbers], files, batch)
        except Conflict:
            self.discard(files)
            raise
        self._reached(f"{self.name}: committed")
        return Written(len(files), sum(file.bytes for file in files), expected)


def rows_between(changed: DataFrame, keys: Sequence[str]) -> BooleanExpression:
    """Returns a condition that is true of all rows with changed keys."""
    ordered = [name for name in keys if isinstance(changed.schema[name].dataType, ORDERED)]
    condition: BooleanExpression = AlwaysTrue()
    if not ordered:
        return condition
    ends = [end(f"`{name}`").alias(f"{end.__name__}.{name}") for name in ordered for end in (sf.min, sf.max)]
    bounds = changed.agg(*ends).toArrow()
    for name in ordered:
        least, greatest = bounds[f"min.{name}"][0], bounds[f"max.{name}"][0]
        if not least.is_valid:
            continue
        if isinstance(changed.schema[name].dataType, DateType):
            least, greatest = least.cast(pa.int32()), greatest.cast(pa.int32())
        condition = And(condition, between(name, least.as_py(), greatest.as_py()))
    return condition
