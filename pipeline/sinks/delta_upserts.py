"""A Delta table with one row for each key, into which each batch is merged exactly once (mode = upsert).

Executors read the keys of the files that may have keys of the batch, by the statistics in the table's log. Files that
have some are rewritten by executors without those rows, together with the batch's rows. One commit replaces the files
and has the number of the batch. Rows do not pass through the driver, which only has the names of files.

A compaction may commit first. The merge is then repeated from the newer version.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.changed_files import ORDERED, ROWS_PER_FILE, ChangedFiles, rows_with
from odradek.pipeline.sinks.changed_keys import ChangedKeys
from odradek.pipeline.sinks.delta import DeltaSink, nothing
from odradek.pipeline.sinks.delta_commit import Conflict, commit_replacement, refuse_unsupported
from odradek.pipeline.sinks.known_events import DataFiles
from odradek.pipeline.sinks.table_files import Layout, TableFile, Written, write_files
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.delta_tables import has_batch, open_table
from odradek.pipeline.state.location import Location

ATTEMPTS = 8
PAUSE_S = 0.25


class DeltaUpserts(DeltaSink):
    """The table at `place`, with one row for each value of the columns `keys`."""

    def __init__(
        self,
        place: Location,
        name: str,
        layout: Layout,
        keys: Sequence[str],
        reached: Callable[[str], None] = nothing,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(place, name, layout, reached)
        self.keys = tuple(keys)
        self._sleep = sleep

    def prepare(self, schema: StructType) -> None:
        """Creates the table, or adds the columns that it lacks. Raises PipelineError if it is incompatible."""
        super().prepare(schema)
        refuse_unsupported(open_table(self.place), self.place)

    def merge(self, rows: DataFrame, changes: ChangedKeys, batch: BatchId) -> Written:
        """Replaces the rows with changed keys by `rows`, `changes.upserts` in number, unless the table has this batch.

        Raises errors of Spark and of the store, and PipelineError; the table is then unchanged."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._merge(rows, changes, batch)
            except Conflict as error:
                if attempt == ATTEMPTS:
                    raise PipelineError(f"other writers were always faster: {error}", "start again") from error
                self._sleep(PAUSE_S * attempt)
        raise AssertionError("the last attempt returns or raises")

    def rows_with(self, keys: DataFrame, further: Sequence[str]) -> DataFrame:
        """Returns the columns of the key and the `further` ones of the rows that have one of the keys."""
        table = open_table(self.place)
        files, _ = candidates(table, self.place, keys, self.keys)
        return rows_with(keys, files, StructType.fromJson(json.loads(table.schema().to_json())), self.keys, further)

    def _merge(self, rows: DataFrame, changes: ChangedKeys, batch: BatchId) -> Written:
        app, table = batch.app(self.name), open_table(self.place)
        if has_batch(table, app, batch.number):
            return Written()
        there, logged = candidates(table, self.place, changes.keys, self.keys)
        schema = StructType.fromJson(json.loads(table.schema().to_json()))
        found, files = ChangedFiles(there, schema, changes, self.keys), []
        expected = changes.upserts + found.kept
        if expected:
            merged = found.rows().unionByName(rows, allowMissingColumns=True)
            layout = replace(self._layout, rows_per_file=ROWS_PER_FILE)
            files = write_files(merged, self.place, "", layout, expected)
        self._reached(f"{self.name}: files written")
        try:
            removed = [logged[number] for number in found.numbers]
            commit_replacement(self.place, table, removed, files, self._layout.partition_by, app, batch.number)
        except BaseException:
            self._clean_up(files, app, batch)
            raise
        self._reached(f"{self.name}: committed")
        return Written(len(files), sum(file.bytes for file in files), expected)

    def _clean_up(self, files: Sequence[TableFile], app: str, batch: BatchId) -> None:
        """Removes the files of a failed commit, unless it succeeded in spite of the error."""
        if not has_batch(open_table(self.place), app, batch.number):
            self.place.remove(*(file.path for file in files))


def candidates(
    table: DeltaTable, place: Location, changed: DataFrame, keys: Sequence[str]
) -> tuple[DataFiles, list[str]]:
    """Returns the files that may have changed keys, and their paths in the log."""
    actions = pa.table(table.get_add_actions(flatten=True))
    ordered = [name for name in keys if isinstance(changed.schema[name].dataType, ORDERED)]
    ordered = [name for name in ordered if f"min.{name}" in actions.column_names]
    if ordered and actions.num_rows:
        ends = [end(f"`{name}`").alias(f"{end.__name__}.{name}") for name in ordered for end in (sf.min, sf.max)]
        bounds = changed.agg(*ends).toArrow()
        for name in ordered:
            low, high = (actions[f"{end}.{name}"] for end in ("min", "max"))
            least, greatest = (bounds[f"{end}.{name}"][0].cast(low.type) for end in ("min", "max"))
            is_apart = pc.or_kleene(pc.greater(low, greatest), pc.less(high, least))
            actions = actions.filter(pc.invert(pc.fill_null(is_apart, False)))
    names = table.metadata().partition_columns
    columns = [actions[f"partition.{name}"].cast(pa.string()).to_pylist() for name in names]
    values = [dict(zip(names, one, strict=True)) for one in zip(*columns, strict=True)] if names else []
    logged = actions["path"].to_pylist()
    return DataFiles(place, [unquote(path) for path in logged], values), logged
