"""The tables of a pipeline, and one batch written into all of them: whole, once, the ledger last.

A kill between two commits leaves some tables with the batch and some without. The batch is then repeated, and each
table that has it skips it; only when all have it does the ledger say so.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructField, StructType

from odradek.pipeline import transforms
from odradek.pipeline.accounting import Counts
from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.places import Places
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.delta import DeltaSink, nothing
from odradek.pipeline.sinks.delta_windows import DeltaWindows
from odradek.pipeline.sinks.parquet import ParquetSink
from odradek.pipeline.sinks.results_topic import ResultsTopic
from odradek.pipeline.sinks.staged_files import Layout, Written


class Table(Protocol):
    """What DeltaSink and ParquetSink have in common."""

    @property
    def path(self) -> Path: ...
    def last_batch(self, batch: BatchId) -> int | None: ...
    def files(self) -> list[str]: ...
    def prepare(self, schema: StructType, job: str) -> None: ...
    def write(self, rows: DataFrame, batch: BatchId) -> Written: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """Good rows and dead ones by their reason, of records that are not yet committed."""

    good: int
    reasons: dict[str, int]


class BatchTables:
    """All that batches are written to, as the settings want it. Raises PipelineError."""

    def __init__(self, settings: Settings, places: Places, reached: Callable[[str], None] = nothing) -> None:
        if settings.window and settings.sink != "delta":
            raise PipelineError("windows need the delta sink", "set sink to delta, or leave window empty")
        kind = DeltaSink if settings.sink == "delta" else ParquetSink
        layout = Layout(settings.partition_by, settings.files_per_batch)
        self._settings = settings
        self.rows: Table = kind(places.rows, "rows", layout, reached)
        self.dead_letters: Table = kind(places.dead_letters, "dead_letters", Layout(), reached)
        self.windows: Table | None = (
            DeltaWindows(places.windows, settings.window_by, reached) if settings.window else None
        )
        self._results = ResultsTopic(settings, reached) if settings.results_topic else None

    def prepare(self, parsed: DataFrame, job: str) -> None:
        """Makes and grows the tables for rows like `parsed`, which is not executed. Raises PipelineError."""
        good = transforms.good_rows(parsed, self._settings)
        unknown = [name for name in self._settings.partition_by if name not in good.columns]
        if unknown:
            raise PipelineError(f"partition-by: there is no column {', '.join(unknown)}", "name columns of the schema")
        self.rows.prepare(good.schema, job)
        dead = transforms.dead_letters(parsed, self._settings).schema
        self.dead_letters.prepare(StructType([*dead.fields, StructField("batch_id", LongType())]), job)
        if self.windows is not None:
            self.windows.prepare(transforms.windowed(parsed, self._settings).schema, job)

    def last_batch(self, batch: BatchId) -> int | None:
        """The newest batch of this job and generation that any table has."""
        tables = [self.dead_letters, self.rows, *([self.windows] if self.windows else [])]
        numbers = [number for table in tables if (number := table.last_batch(batch)) is not None]
        return max(numbers, default=None)

    def write(self, parsed: DataFrame, counts: Counts, batch: BatchId) -> Written:
        """Writes what `counts` says there is of `parsed`, to all tables that lack the batch."""
        written = Written()
        if counts.dead:
            dead = transforms.dead_letters(parsed, self._settings).withColumn(
                "batch_id", sf.lit(batch.number).cast("long")
            )
            written += self.dead_letters.write(dead, batch)
        if counts.good == 0:
            return written
        if self.windows is not None:
            written += self.windows.write(transforms.windowed(parsed, self._settings), batch)
        good = transforms.good_rows(parsed, self._settings)
        written += self.rows.write(good, batch)
        if self._results is not None:
            columns = [sf.col("data")[name].alias(name) for name in parsed.schema["data"].dataType.names]  # type: ignore[attr-defined]
            as_json = sf.to_json(sf.struct(*columns), {"ignoreNullFields": "false"})
            sent = parsed.where(sf.col("reason").isNull()).select("key", as_json.alias("value"))
            self._results.write(sent, batch)
        return written


def outcome_of(parsed: DataFrame) -> Outcome:
    """Counts good rows and dead ones; executes the batch."""
    found = {row["reason"]: int(row["count"]) for row in parsed.groupBy("reason").count().collect()}
    return Outcome(found.pop(None, 0), found)


def cached(rows: DataFrame, until: ExitStack) -> DataFrame:
    """Executes the rows once, however often they are used before `until` ends."""
    until.callback(rows.persist().unpersist)
    return rows
