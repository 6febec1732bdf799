"""The dead letters of a redrive: read from their table, judged as records, and marked as redriven.

The table of dead letters only grows. A second table, `NAME_redriven`, has a mark for each letter that is dead no more:
its place, the batch in which it died, and the batch of the redrive. A batch reads the letters that its plan selects and
that no earlier batch has marked. Its own marks do not count. So the batch reads the same letters however often it is
repeated, and whichever of its tables have been committed.

A letter is identified by the batch in which it died and its place. If a topic was recreated, letters of different
batches may have the same place: a redrive takes the newest of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, cast

import pyarrow.compute as pc
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.changes import IS_DELETE
from odradek.pipeline.parse.repetitions import PLACE
from odradek.pipeline.parse.transforms import DEAD, of_outcome, without_places
from odradek.pipeline.sinks.batch_tables import BATCH_ID, REDRIVEN, BatchTables, UpsertTable
from odradek.pipeline.sinks.known_events import Spans
from odradek.pipeline.sinks.table_rows import rows_of
from odradek.pipeline.state.ledger import Ledger
from odradek.pipeline.state.plan import Plan
from odradek.pipeline.state.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RECORD = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
LETTER = f"{RECORD}, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, reason STRING, batch_id LONG"
DEAD_BATCH_ID = "dead_batch_id"
IDENTITY = (DEAD_BATCH_ID, *PLACE)
EARLIEST_US, LATEST_US = -(1 << 63), (1 << 63) - 1
UPSERT_NEEDS = ("_topic", "_partition", "_offset", "_timestamp")
"""The record-columns without which a redrive cannot tell whether a row is newer than a dead letter."""


@dataclass(frozen=True, slots=True)
class Letters:
    """The letters of a batch: the columns of a record, `reason` and DEAD_BATCH_ID."""

    all: DataFrame

    @property
    def records(self) -> DataFrame:
        """The letters as records, with the columns of a topic's (kafka/history.py)."""
        return self.all.select(*_columns().names[:-2], sf.lit(0).alias("timestampType"))

    def marks(self, judged: DataFrame) -> DataFrame:
        """Returns the marks of the letters that are not dead. `judged`: the letters' rows, persisted."""
        dead = of_outcome(judged, DEAD).select(*PLACE)
        return without_places(self.all, dead).select(*IDENTITY, "reason")

    def others(self, events: DataFrame) -> DataFrame:
        """Returns the events that are not of these letters, without their places, `_topic` and so on."""
        mine = self.all.select(*(sf.col(name).alias(f"_{name}") for name in PLACE))
        names = mine.columns
        return events.join(mine, names, "left_anti").drop(*names)

    def with_rows(self, changes: DataFrame, table: UpsertTable, ledger: Ledger) -> DataFrame:
        """Returns the letters' `changes` (parse/changes.py), and those that made the rows with the same keys. Raises
        PipelineError if it cannot be known whether a row is newer."""
        found = table.rows_with(changes.select(*_quoted(table.keys)).distinct(), UPSERT_NEEDS).persist()
        try:
            nameless = found.where(reduce(lambda one, other: one | other, (sf.col(n).isNull() for n in UPSERT_NEEDS)))
            if count := nameless.count():
                raise PipelineError(
                    f"{count} rows of {table.place} have keys of dead letters, but no {', '.join(UPSERT_NEEDS)}, so a "
                    "redrive cannot tell which is newer; nothing was changed",
                    "produce these records again; or choose others by --reason, --from, --to",
                )
            self._refuse_deleted(changes, found, table, ledger)
        finally:
            found.unpersist()
        return changes.unionByName(found.withColumn(IS_DELETE, sf.lit(False)))

    def mine(self, last: DataFrame) -> DataFrame:
        """Returns the last changes that are those of letters, and not of rows in the table."""
        return last.join(self.all.select(*PLACE), list(PLACE), "left_semi")

    def _refuse_deleted(self, changes: DataFrame, found: DataFrame, table: UpsertTable, ledger: Ledger) -> None:
        """Raises PipelineError if a letter's row may have been deleted since: a deleted row leaves no trace."""
        content = ledger.content(["batch_id", "deletes"])
        deleted = pc.max(content.filter(pc.greater(content["deletes"], 0))["batch_id"]).as_py()
        if deleted is None:
            return
        absent = changes.where(~sf.col(IS_DELETE)).join(found, list(table.keys), "left_anti")
        places = [sf.col(f"_{name}").alias(name) for name in PLACE]
        older = self.all.where(sf.col(DEAD_BATCH_ID) <= deleted).select(*PLACE)
        if count := absent.select(*places).join(older, list(PLACE), "left_semi").count():
            raise PipelineError(
                f"{count} dead letters are of keys that have no row, and batch {deleted} was the last to delete rows: "
                "theirs may have been deleted after them, and would come back; nothing was changed",
                "choose newer ones by --from; if they are to have rows, produce the records again",
            )


def read_letters(spark: SparkSession, tables: BatchTables, plan: Plan) -> Letters:
    """Returns the letters that a plan selects. Each use reads them again."""
    assert plan.redrive is not None
    files = tables.dead_letters.files("timestamp", _span(plan.redrive))
    there = rows_of(spark, files, _columns(), ())
    chosen = there.where(_is_selected(plan.redrive)).withColumnRenamed(BATCH_ID.name, DEAD_BATCH_ID)
    marks = tables.redriven.files("timestamp", [(EARLIEST_US, LATEST_US)])
    marked = rows_of(spark, marks, REDRIVEN, ())
    done = marked.where(sf.col(BATCH_ID.name) < plan.number).select(*IDENTITY)
    left = chosen.where(sf.col(DEAD_BATCH_ID) < plan.number).join(done, list(IDENTITY), "left_anti")
    by_place = Window.partitionBy(*PLACE).orderBy(sf.desc(DEAD_BATCH_ID))
    newest = left.withColumn("_rank", sf.row_number().over(by_place)).where("_rank = 1").drop("_rank")
    return Letters(newest)


def _columns() -> StructType:
    """Returns the columns of a letter. A session must be active."""
    return cast(StructType, StructType.fromDDL(LETTER))


def _is_selected(selection: Selection) -> Column:
    start, end = _span(selection)[0]
    found = sf.unix_micros("timestamp").between(start, end)
    return found & sf.col("reason").isin(*selection.reasons) if selection.reasons else found


def _span(selection: Selection) -> Spans:
    """Returns the times of a selection, both ends inclusive, in microseconds since 1970."""
    start = EARLIEST_US if selection.since is None else _micros(selection.since)
    return [(start, LATEST_US if selection.until is None else _micros(selection.until) - 1)]


def _micros(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _quoted(names: tuple[str, ...]) -> list[str]:
    return [f"`{name}`" for name in names]
