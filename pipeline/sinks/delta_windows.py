"""Event-time windows in a Delta table, to which each batch's counts and sums are added.

A window is in the table from its first event on, and is correct after every batch; it does not wait for a watermark.
The merge's commit names the batch, so a repeated batch is not added twice.

The table is partitioned by `window_day`. A merge only reads and rewrites files of the days of its batch, so its
duration does not depend on the size of the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.parse.schemas import WINDOW_DAY
from odradek.pipeline.sinks.delta import DeltaSink, commit_of, nothing
from odradek.pipeline.sinks.table_files import Layout, Written
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.delta_tables import has_batch, open_table, table_at
from odradek.pipeline.state.location import Location

ATTEMPTS = 5
PAUSE_S = 0.2
MOST_DAYS = 1000
"""The maximum number of days that a merge names individually. With more days, it names the first and the last."""


class DeltaWindows(DeltaSink):
    """The table at `place`, with the columns of `transforms.windowed`. `by`: the columns that group the windows."""

    def __init__(
        self,
        place: Location,
        by: Sequence[str],
        reached: Callable[[str], None] = nothing,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(place, "windows", Layout((WINDOW_DAY,)), reached)
        self._by = ("window_start", "window_end", *by)
        self._sleep = sleep

    def prepare(self, schema: StructType) -> None:
        """Creates the table, or adds the columns that it lacks. Raises PipelineError if it is incompatible."""
        table = table_at(self.place)
        if table is not None and table.metadata().partition_columns != [WINDOW_DAY]:
            raise PipelineError(
                f"the table {self.place} is not partitioned by {WINDOW_DAY}: it is from an earlier version of the "
                "pipeline, or not a table of windows",
                ANEW,
            )
        super().prepare(schema)

    def add(self, rows: DataFrame, batch: BatchId) -> Written:
        """Adds the counts and sums, unless the table has this batch."""
        for pause in range(1, ATTEMPTS + 1):
            try:
                return self._merge(rows, batch)
            except CommitFailedError:  # Another writer, such as `compact`, committed first.
                if pause == ATTEMPTS:
                    raise
                self._sleep(PAUSE_S * pause)
        raise AssertionError("the last attempt returns or raises")

    def _merge(self, rows: DataFrame, batch: BatchId) -> Written:
        app = batch.app(self.name)
        table = open_table(self.place)
        if has_batch(table, app, batch.number):
            return Written()
        content = rows.toArrow()
        self._reached("windows: files written")
        same = [f"(t.`{name}` IS NOT DISTINCT FROM s.`{name}`)" for name in self._by]
        matching = " AND ".join([of_days(content[WINDOW_DAY]), *same])
        measures = [name for name in content.column_names if name not in (*self._by, WINDOW_DAY)]
        sums = {f"`{name}`": f"coalesce(t.`{name}` + s.`{name}`, t.`{name}`, s.`{name}`)" for name in measures}
        merge = table.merge(content, matching, "s", "t", commit_properties=commit_of(app, batch.number))
        done = merge.when_matched_update(sums).when_not_matched_insert_all().execute()
        merged = int(done["num_target_rows_inserted"]) + int(done["num_target_rows_updated"])
        if merged != content.num_rows:
            raise PipelineError(
                f"{self.place} has duplicate rows: {content.num_rows} windows of batch {batch} changed {merged} rows",
                "remove the duplicates: a window (its day, time and keys) must have one row",
            )
        self._reached("windows: committed")
        return Written(int(done["num_target_files_added"]), 0, content.num_rows)


def of_days(days: pa.ChunkedArray) -> str:
    """Returns a condition that selects the target's windows of these days with literals. An equivalent comparison with
    the source's column would not let deltalake skip files."""
    distinct: list[date] = pc.unique(days).sort().to_pylist()
    if not distinct:
        return "false"
    literals = [f"DATE '{day.isoformat()}'" for day in distinct]
    if len(literals) > MOST_DAYS:
        return f"(t.`{WINDOW_DAY}` BETWEEN {literals[0]} AND {literals[-1]})"
    return f"(t.`{WINDOW_DAY}` IN ({', '.join(literals)}))"
