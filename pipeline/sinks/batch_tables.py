"""Writes a batch to all tables of a pipeline: completely, once, and the ledger last.

After a kill between two commits only some tables have the batch. It is then repeated, and each table that has the batch
skips it. The ledger gets it only after all tables have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.parse import transforms
from odradek.pipeline.parse.transforms import DEAD, GOOD, LATE
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.changed_keys import ChangedKeys
from odradek.pipeline.sinks.delta import DeltaSink, nothing
from odradek.pipeline.sinks.delta_upserts import DeltaUpserts
from odradek.pipeline.sinks.delta_windows import DeltaWindows
from odradek.pipeline.sinks.iceberg_tables import INSTALL
from odradek.pipeline.sinks.known_events import DataFiles, Spans
from odradek.pipeline.sinks.one_pass import Staged, Target, write_all
from odradek.pipeline.sinks.parquet import ParquetSink
from odradek.pipeline.sinks.results_topic import ResultsTopic
from odradek.pipeline.sinks.table_files import Layout, TableFile, Written
from odradek.pipeline.state.accounting import Counts
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.ledger import Ledger
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.places import Places

BATCH_ID = StructField("batch_id", LongType())
REDRIVEN = StructType(
    [
        StructField("dead_batch_id", LongType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("reason", StringType()),
        BATCH_ID,
    ]
)
"""A row for each redriven dead letter: the batch in which it died, its place, its reason, the batch of the redrive."""


class Table(Protocol):
    """The common interface of all sinks of rows."""

    @property
    def place(self) -> Location: ...
    def last_batch(self, batch: BatchId) -> int | None: ...
    def files(self, column: str, spans: Spans) -> DataFiles: ...
    def prepare(self, schema: StructType) -> None: ...
    def write(self, rows: DataFrame, expected: int, batch: BatchId) -> Written: ...


@runtime_checkable
class StagedTable(Table, Protocol):
    """A table whose files may be written before they are committed, so that one pass can write those of all tables."""

    def aside(self, batch: BatchId) -> str | None: ...
    def commit(self, files: Sequence[TableFile], batch: BatchId) -> Written: ...
    def discard(self, files: Sequence[TableFile]) -> None: ...


class UpsertTable(Table, Protocol):
    """A table with one row for each key."""

    keys: tuple[str, ...]

    def rows_with(self, keys: DataFrame, further: Sequence[str]) -> DataFrame: ...
    def merge(self, rows: DataFrame, changes: ChangedKeys, batch: BatchId) -> Written: ...


class WindowsTable(Protocol):
    """A table of event-time windows."""

    @property
    def place(self) -> Location: ...
    def last_batch(self, batch: BatchId) -> int | None: ...
    def prepare(self, schema: StructType) -> None: ...
    def add(self, rows: DataFrame, batch: BatchId) -> Written: ...


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """The rows of a batch by outcome, parsed and not committed. Each use executes them again.

    `changes`: the keys of the good rows and of the deletes, if mode is upsert. `redriven`: rows of REDRIVEN, without
    BATCH_ID."""

    good: DataFrame
    dead: DataFrame
    late: DataFrame
    changes: ChangedKeys | None = None
    redriven: DataFrame | None = None


class Sinks(NamedTuple):
    """What makes the tables of one format."""

    rows: Callable[[Location, str, Layout], Table]
    upserts: Callable[[Location, str, Layout, Sequence[str]], UpsertTable]
    windows: Callable[[Location, Sequence[str]], WindowsTable]


def sinks_of(settings: Settings, reached: Callable[[str], None]) -> Sinks:
    """Returns the sinks of the format that the settings name. Raises PipelineError if its package is missing."""
    if settings.sink == "iceberg":
        try:
            from odradek.pipeline.sinks.iceberg.sink import IcebergSink
            from odradek.pipeline.sinks.iceberg.upserts import IcebergUpserts
            from odradek.pipeline.sinks.iceberg.windows import IcebergWindows
        except ModuleNotFoundError as error:
            raise PipelineError(f"the sink iceberg needs {error.name}", INSTALL) from error

        common: dict[str, Any] = {"reached": reached, "catalog": settings.iceberg}
        return Sinks(
            partial(IcebergSink, **common), partial(IcebergUpserts, **common), partial(IcebergWindows, **common)
        )
    rows = ParquetSink if settings.sink == "parquet" else DeltaSink
    return Sinks(
        partial(rows, reached=reached), partial(DeltaUpserts, reached=reached), partial(DeltaWindows, reached=reached)
    )


class BatchTables:
    """All tables and topics to which batches are written, by the settings. Raises PipelineError."""

    def __init__(self, settings: Settings, places: Places, reached: Callable[[str], None] = nothing) -> None:
        if settings.window and settings.sink == "parquet":
            raise PipelineError("windows need the sink delta or iceberg", "set one of them, or leave window empty")
        self._layout = layout = Layout(settings.partition_by, settings.files_per_batch)
        self._settings = settings
        self._ledger = Ledger(places.ledger)
        make = sinks_of(settings, reached)
        self.upserts = (
            make.upserts(places.rows, "rows", layout, settings.upsert_keys) if settings.mode == "upsert" else None
        )
        self.rows: Table = self.upserts or make.rows(places.rows, "rows", layout)
        self.dead_letters: Table = make.rows(places.dead_letters, "dead_letters", Layout())
        self.redriven: Table = make.rows(places.redriven, "redriven", Layout())
        self.late: Table | None = make.rows(places.late, "late", Layout()) if settings.late_rows == "keep" else None
        self.windows: WindowsTable | None = (
            make.windows(places.windows, settings.window_by) if settings.window else None
        )
        self._results = ResultsTopic(settings, reached) if settings.results_topic else None

    def prepare(self, parsed: DataFrame) -> None:
        """Creates the tables, or adds columns, for rows like `parsed`, which is not executed. Raises PipelineError."""
        good = transforms.good_rows(parsed, self._settings)
        unknown = [name for name in self._settings.partition_by if name not in good.columns]
        if unknown:
            raise PipelineError(f"partition-by: unknown column {', '.join(unknown)}", "set columns of the schema")
        self.rows.prepare(good.schema)
        dead = transforms.dead_letters(parsed, self._settings).schema
        self.dead_letters.prepare(StructType([*dead.fields, BATCH_ID]))
        if self.late is not None:
            self.late.prepare(StructType([*good.schema.fields, BATCH_ID]))
        if self.windows is not None:
            self.windows.prepare(transforms.windowed(parsed, self._settings).schema)

    def prepare_redrive(self) -> None:
        """Creates the table of redriven letters. Raises PipelineError."""
        self.redriven.prepare(REDRIVEN)

    def last_batch(self, batch: BatchId) -> int | None:
        """Returns the newest batch that any table has."""
        numbers = [number for table in self._all() if (number := table.last_batch(batch)) is not None]
        return max(numbers, default=None)

    def compare(self, batch: BatchId) -> None:
        """Raises PipelineError if a table lacks a batch that the ledger has. `batch`: any batch of this pipeline."""
        content = self._ledger.content(["batch_id", "good", "dead", "redriven"])
        for column, what, table in (
            ("good", "rows", self.rows),
            ("dead", "dead letters", self.dead_letters),
            ("redriven", "redriven letters", self.redriven),
        ):
            entered = pc.max(content.filter(pc.greater(content[column], 0))["batch_id"]).as_py()
            last = None if entered is None else table.last_batch(batch)
            if entered is not None and (last is None or last < entered):
                raise PipelineError(
                    f"the ledger has batch {entered} of the {what} in {table.place}, the table "
                    f"{'has none' if last is None else f'ends at batch {last}'}: it was removed, or is an older copy",
                    f"restore the table; or {ANEW}",
                )

    def write(self, rows: JudgedRows, counts: Counts, batch: BatchId) -> Written:
        """Writes the rows, counted by `counts`, to all tables that lack the batch. Raises PipelineError."""
        written = Written()
        number = sf.lit(batch.number).cast("long").alias(BATCH_ID.name)
        if rows.redriven is not None:
            written += self.redriven.write(rows.redriven.select("*", number), counts.redriven, batch)
        if counts.dead:
            dead = transforms.dead_letters(rows.dead, self._settings)
            written += self.dead_letters.write(dead.select("*", number), counts.dead, batch)
        if counts.late and self.late is not None:
            late = transforms.good_rows(rows.late, self._settings)
            written += self.late.write(late.select("*", number), counts.late, batch)
        if self.upserts is not None and rows.changes is not None and counts.good + counts.deletes:
            good = transforms.good_rows(rows.good, self._settings)
            return written + self.upserts.merge(good, rows.changes, batch)
        if counts.good == 0:
            return written
        if self.windows is not None:
            written += self.windows.add(transforms.windowed(rows.good, self._settings), batch)
        written += self.rows.write(transforms.good_rows(rows.good, self._settings), counts.good, batch)
        if self._results is not None:
            columns = [sf.col("data")[name].alias(name) for name in rows.good.schema["data"].dataType.names]  # type: ignore[attr-defined]
            as_json = sf.to_json(sf.struct(*columns), {"ignoreNullFields": "false"})
            self._results.write(rows.good.select("key", as_json.alias("value")), batch)
        return written

    @property
    def take_one_pass(self) -> bool:
        """Whether each row is used once, by a table whose files can be written before they are committed. Otherwise the
        rows are kept and counted first, and then written by `write`. So are those among lost ones, as one pass does not
        count the first offset of each partition."""
        settings = self._settings
        needs = (settings.dedup_keys, settings.window, settings.results_topic, settings.transform, settings.rules)
        used_again = settings.mode == "upsert" or settings.on_data_loss == "continue" or any(needs)
        return not used_again and all(isinstance(table, StagedTable) for table in self._of_outcomes().values())

    @contextmanager
    def staged(self, judged: DataFrame, most: int, batch: BatchId) -> Iterator[Staged]:
        """Writes the judged rows, at most `most`, for all tables that lack the batch, and counts all. What is not
        committed in the end is removed. Raises Spark's errors and PipelineError."""
        tables, targets, staged = self._of_outcomes(), {}, Staged()
        number = sf.lit(batch.number).cast("long").alias(BATCH_ID.name)
        good = transforms.good_columns(self._settings)
        columns = {GOOD: good, LATE: [*good, number]}
        columns[DEAD] = [*transforms.dead_letter_columns(self._settings), number]
        for outcome, table in tables.items():
            directory = table.aside(batch)
            if directory is not None:
                targets[outcome] = Target(table.place, directory, columns[outcome])
        if GOOD in targets:
            by = tuple(transforms.good_column(judged, name) for name in self._layout.partition_by)
            targets[GOOD] = replace(targets[GOOD], layout=self._layout, partitions=by)
        try:
            write_all(judged, targets, self._layout, most, staged)
            yield staged
        finally:
            if staged.rejected is not None:
                staged.rejected.unpersist()
            for outcome, files in staged.files.items():
                if files:
                    tables[outcome].discard(files)

    def commit(self, staged: Staged, batch: BatchId) -> Written:
        """Commits the files to their tables. Raises errors of the tables, and PipelineError."""
        written = Written()
        for outcome, table in self._of_outcomes().items():
            if files := staged.files.pop(outcome, []):
                written += table.commit(files, batch)
        return written

    def _of_outcomes(self) -> dict[str, StagedTable]:
        """Returns the tables by the outcome of their rows, in the order of their commits."""
        late = {} if self.late is None else {LATE: self.late}
        return cast("dict[str, StagedTable]", {DEAD: self.dead_letters, **late, GOOD: self.rows})

    def _all(self) -> list[Table | WindowsTable]:
        tables = (self.dead_letters, self.redriven, self.rows, self.late, self.windows)
        return [table for table in tables if table is not None]
