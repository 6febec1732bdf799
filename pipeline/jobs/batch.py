"""Runs one batch: reads, judges, counts, checks and writes its records, and appends it to the ledger.

The plan defines what is read and how it is judged; it is always executed completely, however often. If each row goes
into one table and nowhere else, one pass over the records writes the files of good rows and counts all rows; a second
one writes those that are dead or late, if there are any. Otherwise (de-duplication, windows, a results-topic) the rows
are kept, counted, and then written.

Every count comes from results of executors, once for each task that succeeded, as Spark may run stages again. Before
anything is committed, the counts must add up, and the topics must be those of the plan. Before a table is committed,
its files' footers are read and must have as many rows. After an exception the ledger lacks the batch, which is then
repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog
from deltalake.exceptions import DeltaError
from pyspark.sql import functions as sf

from odradek.pipeline.durations import duration
from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.jobs.letters import Letters, read_letters
from odradek.pipeline.jobs.registered_schemas import NewSchemas
from odradek.pipeline.kafka.chunks import Chunk
from odradek.pipeline.kafka.history import records_of
from odradek.pipeline.kafka.topics import Topics, compare_ids, compare_offsets
from odradek.pipeline.parse.changes import IS_DELETE, changes_by_key, last_changes, with_deletes
from odradek.pipeline.parse.derived import FILTERED
from odradek.pipeline.parse.framed_rows import UNKNOWN, new_ids
from odradek.pipeline.parse.hook import dropped_rows, is_from_transform
from odradek.pipeline.parse.records import checked, decoded, parsed
from odradek.pipeline.parse.repetitions import PLACE, repeated_places
from odradek.pipeline.parse.rules import refuse_violations, warnings_of
from odradek.pipeline.parse.transforms import DEAD, GOOD, LATE, OUTCOME, judged, of_outcome, without_places, without_raw
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.batch_tables import BatchTables, JudgedRows, UpsertTable
from odradek.pipeline.sinks.changed_keys import ChangedKeys
from odradek.pipeline.sinks.delta import nothing
from odradek.pipeline.sinks.known_events import Spans, known_events, time_column
from odradek.pipeline.sinks.one_pass import Staged
from odradek.pipeline.sinks.table_files import Written
from odradek.pipeline.spark.errors import as_pipeline_error
from odradek.pipeline.state.accounting import Counts, Tally
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.ledger import COMPACTED_EACH, Ledger, LedgerRow
from odradek.pipeline.state.lock import alone, is_held
from odradek.pipeline.state.places import COMPACT_LOCK, Places
from odradek.pipeline.state.plan import Plan, Plans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_SPANS = 100
LEAST_BUCKET = timedelta(hours=1)
FEW = 2_000_000
"""The maximum number of rows whose keys are broadcast."""

log = structlog.get_logger("pipeline.batch")


@dataclass(frozen=True, slots=True)
class _Judged:
    """The counts of a batch, its latest event time, and its rows, in files or to be written."""

    counts: Counts
    newest_us: int | None
    rows: Staged | JudgedRows

    def commit(self, tables: BatchTables, batch: BatchId) -> Written:
        if isinstance(self.rows, Staged):
            return tables.commit(self.rows, batch)
        return tables.write(self.rows, self.counts, batch)


class Batches:
    """Runs the batches of one job. `settings`: the current ones. `look`: returns the current topics, or raises
    PipelineError. `reached`: called with each step that a batch completes. `now`: the wall clock.
    `look_up`: called with the ids of schemas that the plan of a batch lacks; raises NewSchemas if there are any.
    `confirm`: called with the counts before anything is committed; if it returns False, nothing is."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        places: Places,
        look: Callable[[], Topics],
        reached: Callable[[str], None] = nothing,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._places = places
        self._look = look
        self._reached = reached
        self._now = now
        self.look_up: Callable[[list[int]], None] = lambda ids: None
        self.confirm: Callable[[Counts], bool] = lambda counts: True
        self._ledger = Ledger(places.ledger)
        self._plans = Plans(places.state)

    def prepare(self, settings: Settings) -> BatchTables:
        """Creates the tables, or adds columns, as batches with these settings need them. Raises PipelineError."""
        tables = BatchTables(settings, self._places, self._reached)
        tables.prepare(parsed(self._no_records(), settings))
        return tables

    def run(self, plan: Plan, tables: BatchTables, topics: Topics) -> LedgerRow | None:
        """Writes the batch to all tables and the ledger. `topics`: the current ones. Raises PipelineError. A repeated
        batch continues where it stopped. Returns None if `confirm` has returned False.
        """
        settings, started_at = plan.settings(self._settings), self._now()
        batch = BatchId(settings.name, plan.number)
        try:
            with ExitStack() as until:
                judged = self._judge(plan, settings, tables, topics, until)
                counts = judged.counts
                if not self.confirm(counts):
                    return None
                self._reached("read")
                written = judged.commit(tables, batch)
        except (PipelineError, NewSchemas):
            raise
        except Exception as error:
            raise self._cause(error, plan, settings, tables) from error
        row = LedgerRow(
            job=plan.job,
            batch_id=plan.number,
            started_at=started_at,
            finished_at=self._now(),
            rows_in=counts.rows_in,
            good=counts.good,
            dead=counts.dead,
            duplicates=counts.duplicates,
            late=counts.late,
            superseded=counts.superseded,
            deletes=counts.deletes,
            filtered=counts.filtered,
            dropped=counts.dropped,
            warnings=counts.warnings,
            lost=counts.lost,
            watermark=plan.watermark,
            newest_event_time=_newest(plan.newest_event_time, judged.newest_us),
            files_written=written.files,
            bytes_written=written.bytes,
            reasons=counts.reasons,
            start_offsets=plan.start if plan.redrive is None else plan.end,
            end_offsets=plan.end,
            topics=plan.topics,
            job_version=settings.job_version,
            redriven=counts.redriven,
            redriven_reasons=counts.redriven_reasons,
        )
        self._ledger.append(batch, row)
        self._reached("ledger: committed")
        self._plans.remove(plan.number)
        if plan.number % COMPACTED_EACH == COMPACTED_EACH - 1:
            self._compact_ledger()
        return row

    def _judge(self, plan: Plan, settings: Settings, tables: BatchTables, topics: Topics, until: ExitStack) -> _Judged:
        """Reads, judges and counts the records. Nothing is committed."""
        batch = BatchId(settings.name, plan.number)
        chunk = Chunk(plan.start, {name: {n: plan.end[name][n] for n in parts} for name, parts in plan.start.items()})
        _check(plan, settings, tables, topics)
        readable = chunk.readable(topics)
        letters = None if plan.redrive is None else self._letters(plan, tables, until)
        records = self._records(plan, settings, readable) if letters is None else letters.records
        whole, rows = self._rows(records, plan, settings, until)
        if letters is None and tables.take_one_pass:
            staged = until.enter_context(tables.staged(rows, readable.offsets(), batch))
            tally, duplicates = staged.tally, 0
        else:
            # What a transform returns is compared with the records.
            rows = (rows if settings.transform else without_raw(rows, settings)).persist()
            until.callback(rows.unpersist)
            staged, tally = None, tally_of(rows, duration(settings.watermark_delay, "watermark-delay"))
        if tally.reasons.get(UNKNOWN) and tables.last_batch(batch) != plan.number:
            rejected = rows if staged is None or staged.rejected is None else staged.rejected
            self.look_up(new_ids(rejected))  # A repeated batch keeps to its plan.
        dropped = self._dropped(whole, rows, tally, settings) if settings.transform else 0
        if letters is None:  # Of dead letters, those that violate a rule stay what they are.
            applied = sum(tally.by_outcome.get(one, 0) for one in (GOOD, LATE))
            refuse_violations(settings, tally.reasons, applied, batch)
        changes = None
        if staged is None:
            good = of_outcome(rows, GOOD)
            good, duplicates = self._without_repetitions(good, tally, plan, settings, tables, letters, until)
            if tables.upserts is not None:
                good, changes = self._last_changes(rows, good, tables.upserts, letters, until)
        topics = self._look() if plan.start else {}
        _check_ids(plan, batch, tables, topics)
        # With `fail` nothing is lost: offsets that were deleted after a successful read were read before.
        lost = plan.lost + (0 if settings.on_data_loss == "fail" else chunk.lost(topics, tally.first))
        counts = Counts(
            rows_in=tally.rows_in,
            good=changes.upserts if changes else tally.by_outcome.get(GOOD, 0) - duplicates,
            dead=tally.by_outcome.get(DEAD, 0),
            duplicates=duplicates,
            late=tally.by_outcome.get(LATE, 0),
            superseded=changes.superseded(tally.by_outcome) if changes else 0,
            deletes=changes.deletes if changes else 0,
            filtered=tally.by_outcome.get(FILTERED, 0),
            dropped=dropped,
            lost=lost,
            reasons=tally.reasons,
            warnings=warnings_of(rows),
        )
        marks = None if letters is None else letters.marks(rows)
        counts = counts if marks is None else _of_redrive(counts, marks)
        counts.check(batch)
        if staged is not None:
            return _Judged(counts, tally.newest_us, staged)
        by_outcome = JudgedRows(good, of_outcome(rows, DEAD), of_outcome(rows, LATE), changes, marks)
        return _Judged(counts, tally.newest_us, by_outcome)

    def _records(self, plan: Plan, settings: Settings, readable: Chunk) -> DataFrame:
        if not readable.start:
            return self._no_records()
        ids = {name: one.id for name, one in plan.topics.items()}
        return records_of(self._spark, settings, plan.job, readable.start, readable.end, ids)

    def _letters(self, plan: Plan, tables: BatchTables, until: ExitStack) -> Letters:
        """Returns the dead letters of a redrive, kept until `until` is closed."""
        letters = read_letters(self._spark, tables, plan)
        until.callback(letters.all.persist().unpersist)
        return letters

    def _rows(
        self, records: DataFrame, plan: Plan, settings: Settings, until: ExitStack
    ) -> tuple[DataFrame, DataFrame]:
        """Returns the decoded records, and the same parsed and judged. Each use decodes them again, but with a
        `transform`, whose records are kept until `until` is closed."""
        whole, detail = decoded(records, settings)
        if settings.transform:
            until.callback(whole.persist().unpersist)
        rows = judged(checked(whole, detail, settings, plan.planned_at), plan.watermark)
        return whole, with_deletes(rows, settings) if settings.mode == "upsert" else rows

    def _dropped(self, whole: DataFrame, rows: DataFrame, tally: Tally, settings: Settings) -> int:
        """Returns the number of rows that `transform` dropped, and adds their records to the tally."""
        dropped = dropped_rows(whole, rows, settings)
        tally.rows_in = 0
        for row in whole.groupBy("topic", "partition").agg(sf.count(sf.lit(1)), sf.min("offset")).collect():
            topic, partition, count, first = row
            tally.rows_in += count
            tally.first[topic, partition] = first
        return dropped

    def _without_repetitions(
        self,
        good: DataFrame,
        tally: Tally,
        plan: Plan,
        settings: Settings,
        tables: BatchTables,
        letters: Letters | None,
        until: ExitStack,
    ) -> tuple[DataFrame, int]:
        """Returns the good rows without duplicates, and the number of duplicates."""
        if not settings.dedup_keys or not tally.by_outcome.get(GOOD):
            return good, 0
        delay = duration(settings.watermark_delay, "watermark-delay")
        spans = spans_of(tally.buckets, delay)
        files = tables.rows.files(time_column(settings), spans)
        # Only a repeated batch may find itself. Otherwise all rows count, also those of a deleted topic of this name.
        is_there = tables.rows.last_batch(BatchId(settings.name, plan.number)) == plan.number
        below = plan.start if is_there else {}
        mine = letters if is_there else None
        known = known_events(self._spark, settings, files, spans, below, with_places=mine is not None)
        if mine is not None and known is not None:
            known = mine.others(known)
        few = tally.by_outcome[GOOD] <= FEW
        places = repeated_places(good, known, settings.dedup_keys, delay, few).persist()
        until.callback(places.unpersist)
        duplicates = places.count()
        return (without_places(good, places, duplicates <= FEW) if duplicates else good), duplicates

    def _last_changes(
        self, rows: DataFrame, good: DataFrame, table: UpsertTable, letters: Letters | None, until: ExitStack
    ) -> tuple[DataFrame, ChangedKeys]:
        """Returns the good rows that are the last change of their key, and the changed keys."""
        changes = changes_by_key(rows, table.keys)
        if letters is None:
            last = last_changes(changes, table.keys).persist()
        else:
            changes = letters.with_rows(changes, table, self._ledger)
            last = letters.mine(last_changes(changes, table.keys)).persist()
        until.callback(last.unpersist)
        counted = {row[IS_DELETE]: row["count"] for row in last.groupBy(IS_DELETE).count().collect()}
        found = ChangedKeys(last.drop(*PLACE, IS_DELETE), counted.get(False, 0), counted.get(True, 0))
        places = last.where(~sf.col(IS_DELETE)).select(*PLACE)
        places = sf.broadcast(places) if found.upserts <= FEW else places
        return good.join(places, list(PLACE), "left_semi"), found

    def _compact_ledger(self) -> None:
        """Merges the ledger's files, unless `compact` is running: concurrent compactions would duplicate its rows."""
        if is_held(self._places.state, COMPACT_LOCK):
            return
        try:
            with alone(self._places.state, COMPACT_LOCK, "another compact is running"):
                self._ledger.compact()
        except (PipelineError, DeltaError, OSError) as error:  # The batch is in the ledger; a later job can compact it.
            log.warning("ledger not compacted", error=str(error).splitlines()[0])

    def _cause(self, error: Exception, plan: Plan, settings: Settings, tables: BatchTables) -> PipelineError:
        """Returns the cause of a failure. The topics explain Spark's errors on lost data or unknown topics better."""
        try:
            if plan.start:
                _check(plan, settings, tables, self._look())
        except PipelineError as better:
            return better
        of_transform = f"transform {settings.transform} raised an error"
        return as_pipeline_error(
            error, of_transform if is_from_transform(error, settings) else f"the {plan.job} failed"
        )

    def _no_records(self) -> DataFrame:
        return self._spark.createDataFrame(
            [],
            "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING, "
            "partition INT, offset LONG, timestamp TIMESTAMP, timestampType INT",
        )


def _check(plan: Plan, settings: Settings, tables: BatchTables, topics: Topics) -> None:
    """Raises PipelineError if the topics are not those of the plan, or lack required offsets."""
    _check_ids(plan, BatchId(settings.name, plan.number), tables, topics)
    if settings.on_data_loss == "fail":
        compare_offsets(plan.start, topics)


def _check_ids(plan: Plan, batch: BatchId, tables: BatchTables, topics: Topics) -> None:
    """Raises PipelineError if a topic was deleted or recreated: a batch in some of the tables cannot be finished."""
    try:
        compare_ids({name: one for name, one in plan.topics.items() if name in plan.start}, topics)
    except PipelineError as error:
        if tables.last_batch(batch) != plan.number:
            raise
        problem = f"{error.problem}, and batch {plan.number} is only in some of the tables"
        raise PipelineError(problem, ANEW) from error


def tally_of(rows: DataFrame, delay: timedelta) -> Tally:
    """Counts judged rows. Executes the batch."""
    time = sf.unix_micros("event_time")
    bucket = sf.when(sf.col(OUTCOME) == GOOD, sf.floor(time / bucket_us(delay)))
    counted = rows.groupBy("topic", "partition", OUTCOME, "reason").agg(
        sf.count(sf.lit(1)).alias("rows"),
        sf.min("offset").alias("first"),
        sf.max(time).alias("newest"),
        sf.collect_set(bucket).alias("buckets"),
    )
    tally = Tally()
    for row in counted.collect():
        place = (row["topic"], row["partition"])
        tally.add(row[OUTCOME], row["reason"], place, row["rows"], row["first"], row["newest"])
        tally.buckets |= set(row["buckets"])
    return tally


def _of_redrive(counts: Counts, marks: DataFrame) -> Counts:
    """Returns the counts of a redrive. Its letters were counted before, as rows in and as dead."""
    by_reason = {row["reason"]: row["count"] for row in marks.groupBy("reason").count().orderBy("reason").collect()}
    of_letters = {"redriven": sum(by_reason.values()), "redriven_reasons": by_reason, "still_dead": counts.reasons}
    return replace(counts, rows_in=0, dead=0, reasons={}, **of_letters)


def bucket_us(delay: timedelta) -> int:
    """Returns the length of a bucket of event times, in microseconds."""
    return max(delay, LEAST_BUCKET) // timedelta(microseconds=1)


def spans_of(buckets: Iterable[int], delay: timedelta) -> Spans:
    """Returns the times of the buckets, extended by the delay on both sides: they may contain the same events.

    Times without events are left out, unless this would give more than MOST_SPANS spans."""
    step, margin = bucket_us(delay), delay // timedelta(microseconds=1)
    spans: list[tuple[int, int]] = []
    for bucket in sorted(buckets):
        start, end = bucket * step - margin, (bucket + 1) * step + margin
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans if len(spans) <= MOST_SPANS else [(spans[0][0], spans[-1][1])]


def _newest(before: datetime | None, found_us: int | None) -> datetime | None:
    if found_us is None:
        return before
    found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=found_us)
    return found if before is None else max(before, found)
