"""`odradek pipeline backfill`: history up to recorded offsets into the tables of an ingest, which then begins there.

Each chunk of the record (handover.py) is a batch: read, counted, checked, written, and entered in the ledger under its
number. A job that was killed repeats the chunk it was at; tables that have it already skip it.

De-duplication keeps one row of each key over all of history: the first chunk's, and within it the first by event time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import structlog

from odradek.pipeline import shadow_group
from odradek.pipeline.accounting import Counts
from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.batch_metrics import BatchMetrics
from odradek.pipeline.batch_tables import BatchTables, Outcome, cached, outcome_of
from odradek.pipeline.batch_writer import ledger_row
from odradek.pipeline.chunks import Chunk
from odradek.pipeline.errors import ANEW, PipelineError, Stopped
from odradek.pipeline.generations import JOB as INGEST
from odradek.pipeline.generations import compare_tables, filled, fingerprint_of, first_offsets, generations_on_disk
from odradek.pipeline.handover import (
    JOB,
    DamagedHandover,
    Handover,
    backfill_batch,
    backfill_has_begun,
    read_handover,
)
from odradek.pipeline.history import history_records
from odradek.pipeline.inputs import key_types, refuse_beyond, refuse_missing, topics_of
from odradek.pipeline.ledger import Ledger, LedgerRow, Offsets, by_partition
from odradek.pipeline.one_job import one_job, pause, signals
from odradek.pipeline.parsing import parsed
from odradek.pipeline.places import Places
from odradek.pipeline.progress import BatchDone, Progress
from odradek.pipeline.repetitions import earlier_rows, marked, marked_by, without_repeated
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.delta import nothing
from odradek.pipeline.sinks.staged_files import Written
from odradek.pipeline.sources import records_batch
from odradek.pipeline.spark_errors import as_pipeline_error
from odradek.pipeline.topic_ids import TopicRecreated, Topics, compare_ids, compare_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS_PER_CHUNK = 1_000_000

log = structlog.get_logger("pipeline.backfill")


def run(settings: Settings, reached: Callable[[str], None] = nothing, stopping: threading.Event | None = None) -> int:
    """Runs the job; 0 when all of history is in the tables, or when it was told to stop: by a signal, or `stopping`.

    The running chunk is then the last. `reached` is told of each point of a chunk that is passed, for tests that kill
    there. Raises PipelineError."""
    stopping = stopping or threading.Event()
    with signals(stopping.set), one_job("backfill", settings) as (spark, shown), contextlib.suppress(Stopped):
        Backfill(settings, Places.of(settings), spark, shown, reached, stopping).run()
    return 0


class Backfill:
    """One run of the job."""

    def __init__(
        self,
        settings: Settings,
        places: Places,
        spark: SparkSession,
        shown: Progress,
        reached: Callable[[str], None],
        stopping: threading.Event,
    ) -> None:
        self._settings = settings
        self._places = places
        self._spark = spark
        self._shown = shown
        self._reached = reached
        self._stopping = stopping
        self._pause = pause(stopping)
        self._tables = BatchTables(settings, places, reached)
        self._ledger = Ledger(places.ledger)

    def run(self) -> None:
        """Returns when all is read, or between two chunks when it is to stop. Raises PipelineError and Stopped."""
        rows = parsed(records_batch(self._spark, self._settings, "earliest", "latest"), self._settings)
        fingerprint = {
            **fingerprint_of(self._settings, key_types(self._settings, rows)),
            "isolation-level": self._settings.isolation_level,
            "starting-offsets": self._settings.starting_offsets,
        }
        handover = self._recorded(fingerprint)
        done = 0 if handover is None else self._done(handover)
        if handover is not None and done == handover.chunks and self._ingest_has_begun():
            log.info("was at its end before the ingest began", offsets=by_partition(handover.ends))
            return
        self._refuse_begun_ingest()
        self._tables.prepare(rows, JOB)
        if handover is None:
            handover = self._record(fingerprint)
        log.info("begins", chunk=done, chunks=handover.chunks, offsets=by_partition(handover.border(done)))
        for number in range(done, handover.chunks):
            if self._stopping.is_set():
                return
            self._chunk(handover, number)
        shadow_group.commit(self._settings, handover.ends)
        log.info("is at its end; the ingest begins there", offsets=by_partition(handover.ends))

    def _recorded(self, fingerprint: Mapping[str, Any]) -> Handover | None:
        """The record, if there is a good one, checked. Raises PipelineError if there was one that is needed."""
        begun = backfill_has_begun(self._settings.name, self._tables, self._ledger)
        try:
            handover = read_handover(self._places)
        except DamagedHandover:
            if begun:
                raise
            log.warning("the record was torn before anything was done by it; it is made anew")
            return None
        if handover is None and begun:
            raise DamagedHandover(self._places, "is gone")
        if handover is not None:
            handover.compare(fingerprint, self._places)
        return handover

    def _done(self, handover: Handover) -> int:
        """How many chunks are done, by the ledger; the tables must have them, and at most a part of one more."""
        rows = self._ledger.rows(JOB)
        done = handover.done(rows, self._places)
        compare_tables(self._tables, rows, backfill_batch(self._settings.name))
        written = self._tables.last_batch(backfill_batch(self._settings.name))
        if written is not None and written > done:
            raise PipelineError(
                f"the tables have chunk {written}, the ledger {self._places.ledger} has {done}: it is gone, or older",
                f"put it back; or {ANEW}",
            )
        return done

    def _ingest_has_begun(self) -> bool:
        first = BatchId(self._settings.name, INGEST, 1, 0)
        on_disk = bool(generations_on_disk(self._places))
        return on_disk or bool(self._ledger.rows(INGEST)) or self._tables.last_batch(first) is not None

    def _refuse_begun_ingest(self) -> None:
        if self._ingest_has_begun():
            raise PipelineError(
                f"the ingest of {self._settings.name} has begun, so its tables have what a backfill would bring",
                "history comes first; set another name to read it again",
            )

    def _record(self, fingerprint: Mapping[str, Any]) -> Handover:
        """Looks where history begins and ends, and writes it down."""
        topics = topics_of(self._spark, self._settings, self._pause)
        refuse_missing(self._settings, topics)
        starts = _starts(self._settings, topics)
        if self._settings.on_data_loss == "fail":
            compare_offsets(starts, topics)
        size = self._settings.max_offsets_per_trigger or OFFSETS_PER_CHUNK
        ids = {name: topic.id for name, topic in topics.items()}
        handover = Handover(fingerprint, ids, starts, {name: topics[name].ends for name in topics}, size)
        handover.save(self._places)
        return handover

    def _chunk(self, handover: Handover, number: int) -> None:
        """One chunk into all tables. Raises PipelineError."""
        started_at, batch = datetime.now(UTC), backfill_batch(self._settings.name, number)
        chunk = Chunk(handover.border(number), handover.border(number + 1))
        try:
            counts, written = self._write(handover, chunk, batch)
            metrics = BatchMetrics(counts.rows_in, counts.duplicates, 0, 0, None)
            version, now = self._settings.job_version, datetime.now(UTC)
            row = ledger_row(batch, version, counts, metrics, written, chunk.start, chunk.end, started_at, now)
            self._ledger.append(batch, row)
        except Stopped:
            raise
        except Exception as error:
            raise self._cause(error, handover, chunk) from error
        self._reached("ledger: committed")
        self._show(row, handover)

    def _write(self, handover: Handover, chunk: Chunk, batch: BatchId) -> tuple[Counts, Written]:
        topics, gone = self._look(handover)
        self._refuse_loss(chunk, topics, gone)
        readable = chunk.readable(topics, gone)
        with ExitStack() as until:
            rows = self._rows(readable, handover.topics, until)
            rows_in = rows.count() if rows else 0
            fresh, repeated = self._fresh(rows, chunk, until) if rows else (None, 0)
            outcome = outcome_of(fresh) if fresh else Outcome(0, {})
            lost = self._lost(handover, chunk, gone)
            counts = Counts(rows_in, outcome.good, sum(outcome.reasons.values()), repeated, 0, lost, outcome.reasons)
            counts.check(batch)
            self._reached("read")
            return counts, self._tables.write(fresh, counts, batch) if fresh else Written()

    def _rows(self, chunk: Chunk, ids: Mapping[str, str], until: ExitStack) -> DataFrame | None:
        """The chunk parsed, each record once; None where there is nothing to read."""
        if not chunk.start:
            return None
        records = history_records(self._spark, self._settings, chunk.start, chunk.end, ids)
        return cached(parsed(records, self._settings), until)

    def _fresh(self, rows: DataFrame, chunk: Chunk, until: ExitStack) -> tuple[DataFrame, int]:
        """The rows without those whose key was there before, and how many these are."""
        if not self._settings.dedup_keys:
            return rows, 0
        judged = marked(rows, self._settings)
        earlier = earlier_rows(self._spark, self._settings, self._tables.rows, chunk.start)
        if earlier is not None:
            judged = marked_by(earlier, judged, self._settings)
        return without_repeated(cached(judged, until))

    def _look(self, handover: Handover) -> tuple[Topics, list[str]]:
        """The topics of now, and the names of those that were made again, if that may be. Raises PipelineError."""
        topics = topics_of(self._spark, self._settings, self._pause)
        try:
            compare_ids(handover.topics, topics)
        except TopicRecreated as error:
            if self._settings.on_recreated_topic == "fail":
                raise
            return topics, error.topics
        return topics, []

    def _refuse_loss(self, chunk: Chunk, topics: Topics, gone: list[str]) -> None:
        if self._settings.on_data_loss == "fail":
            there = chunk.without_empty()
            for offsets in (there.start, there.end):
                compare_offsets({name: parts for name, parts in offsets.items() if name not in gone}, topics)

    def _lost(self, handover: Handover, chunk: Chunk, gone: list[str]) -> int:
        """Offsets of the chunk that nobody can have read, after it was read. Raises PipelineError."""
        topics, gone_now = self._look(handover)
        if gone_now != gone:
            raise TopicRecreated(gone_now)
        if self._settings.on_data_loss == "fail":  # Then what is there no more was read before.
            return sum(chunk.only(name).offsets() for name in gone)
        return chunk.offsets() - chunk.readable(topics, gone).offsets()

    def _cause(self, error: Exception, handover: Handover, chunk: Chunk) -> PipelineError:
        """Why a chunk failed. What Spark calls lost data, or an unknown topic, a look at the topics tells better."""
        if isinstance(error, PipelineError):
            return error
        try:
            self._refuse_loss(chunk, *self._look(handover))
        except PipelineError as better:
            return better
        return as_pipeline_error(error, "the backfill failed")

    def _show(self, row: LedgerRow, handover: Handover) -> None:
        shadow_group.commit(self._settings, row.end_offsets)
        seconds = (row.finished_at - row.started_at).total_seconds()
        counts = (row.rows_in, row.good, row.dead, row.duplicates, row.late)
        left = Chunk(row.end_offsets, handover.ends).offsets()
        self._shown.batch(BatchDone(row.job, row.batch_id, *counts, seconds, row.lost, left))


def _starts(settings: Settings, topics: Topics) -> Offsets:
    """Where history begins: by starting-offsets, in numbers. Raises PipelineError."""
    found = first_offsets(filled(settings.starting_offsets, topics), topics)
    refuse_beyond(found, topics)
    return found
