"""Windows of event time in a Delta table: each batch's counts and sums are added to what is there.

A window is in the table from its first event on, and right after every batch: none waits for a watermark. The merge's
commit names the batch, so a repeated batch is not added twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame

from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.delta_tables import open_table
from odradek.pipeline.sinks.delta import DeltaSink, commit_of, nothing
from odradek.pipeline.sinks.staged_files import Written

ATTEMPTS = 5
PAUSE_S = 0.2


class DeltaWindows(DeltaSink):
    """The table at `path`, of the columns of `transforms.windowed`; `by` are those that windows are counted by."""

    def __init__(
        self,
        path: Path,
        by: Sequence[str],
        reached: Callable[[str], None] = nothing,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(path, "windows", reached=reached)
        self._by = ("window_start", "window_end", *by)
        self._sleep = sleep

    def write(self, rows: DataFrame, batch: BatchId) -> Written:
        """Adds the counts and sums, unless this batch is there."""
        for pause in range(1, ATTEMPTS + 1):
            if self.has(batch):
                return Written()
            try:
                return self._merge(rows, batch)
            except CommitFailedError:  # Another writer was faster, such as `compact`.
                if pause == ATTEMPTS:
                    raise
                self._sleep(PAUSE_S * pause)
        raise AssertionError("the last attempt returns or raises")

    def _merge(self, rows: DataFrame, batch: BatchId) -> Written:
        content = rows.toArrow()
        if content.num_rows == 0:
            return Written()
        self._reached("windows: files written")
        same = " AND ".join(f"(t.`{name}` IS NOT DISTINCT FROM s.`{name}`)" for name in self._by)
        measures = [name for name in content.column_names if name not in self._by]
        sums = {f"`{name}`": f"coalesce(t.`{name}` + s.`{name}`, t.`{name}`, s.`{name}`)" for name in measures}
        commit = commit_of(batch.app(self.name), batch.number)
        merge = open_table(self.path).merge(content, same, "s", "t", commit_properties=commit)
        done = merge.when_matched_update(sums).when_not_matched_insert_all().execute()
        self._reached("windows: committed")
        return Written(int(done["num_target_files_added"]), 0)
