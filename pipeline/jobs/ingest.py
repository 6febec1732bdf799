"""`odradek pipeline ingest`: streams topics into tables until it has all (available-now) or is told to stop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from pyspark.errors import PySparkException

from odradek.pipeline import shadow_group
from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.batch_metrics import counted
from odradek.pipeline.batch_tables import BatchTables
from odradek.pipeline.batch_writer import BatchWriter, Committed
from odradek.pipeline.errors import PipelineError, Stopped
from odradek.pipeline.generations import JOB, Generation, Generations, filled, fingerprint_of, first_offsets
from odradek.pipeline.handover import Handover
from odradek.pipeline.inputs import key_types, refuse_beyond, refuse_missing, topics_of
from odradek.pipeline.ledger import Ledger, Offsets, by_partition
from odradek.pipeline.one_job import one_job, pause, signals
from odradek.pipeline.parsing import parsed
from odradek.pipeline.places import Places
from odradek.pipeline.progress import BatchDone, Progress
from odradek.pipeline.repetitions import Remembered
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.delta import nothing
from odradek.pipeline.sources import records_stream
from odradek.pipeline.spark_errors import as_pipeline_error
from odradek.pipeline.topic_ids import TopicRecreated, Topics, compare_ids, compare_offsets
from odradek.pipeline.transforms import deduplicated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_S = 1
AVAILABLE_NOW = "available-now"

log = structlog.get_logger("pipeline.ingest")


def run(settings: Settings, reached: Callable[[str], None] = nothing, stopping: threading.Event | None = None) -> int:
    """Runs the job; 0 when all is read, or when it was told to stop: by a signal, or by `stopping` being set.

    The running batch is then the last. `reached` is told of each point of a batch that is passed, for tests that kill
    there. Raises PipelineError."""
    stopping = stopping or threading.Event()
    with signals(stopping.set), one_job("ingest", settings) as (spark, shown), contextlib.suppress(Stopped):
        Ingest(settings, Places.of(settings), spark, shown, reached, stopping).run()
    return 0


class Ingest:
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
        self._tables = BatchTables(settings, places, reached)
        self._ledger = Ledger(places.ledger)
        self._stopping = stopping
        self._pause = pause(stopping)

    def run(self) -> None:
        """Returns when all is read, or between two batches when it is to stop. Raises PipelineError and Stopped."""
        self._pause(0)
        rows = self._rows("earliest")
        fingerprint = fingerprint_of(self._settings, key_types(self._settings, rows))
        generations = Generations(self._settings, self._places, self._tables, self._ledger, fingerprint)
        generation = generations.current()
        self._tables.prepare(rows, JOB)
        while True:
            attempt = _Attempt(generation, self._look)
            try:
                self._run(generations, attempt)
                return
            except TopicRecreated as error:
                if self._settings.on_recreated_topic == "fail":
                    raise
                generation = generations.after_recreation(self._as_entered(attempt.generation), error.topics)

    def _run(self, generations: Generations, attempt: _Attempt) -> None:
        """Runs one generation. Raises TopicRecreated and other PipelineErrors."""
        topics = attempt.look()
        refuse_missing(self._settings, topics)
        starting = filled(attempt.generation.starting, topics)
        attempt.generation = replace(attempt.generation, starting=starting)
        done = attempt.generation.done
        if done is None:
            refuse_beyond(first_offsets(starting, topics), topics)
        if self._settings.on_data_loss == "fail":
            compare_offsets(first_offsets(starting, topics) if done is None else done, topics)
        checkpoint = generations.begin(attempt.generation)
        attempt.save = lambda generation: generation.save(self._places)
        for note in generations.notes:
            log.warning(note)
        generations.notes.clear()
        number = attempt.generation.number
        log.info("begins", generation=number, offsets=by_partition(first_offsets(done or starting, topics)))
        if done:
            shadow_group.commit(self._settings, done)
        writer = BatchWriter(
            self._settings,
            self._tables,
            self._ledger,
            checkpoint,
            BatchId(self._settings.name, JOB, number, 0),
            look=attempt.look,
            lost=attempt.generation.lost,
            remembered=self._remembered(generations.handover(number)),
            committed=self._show,
            reached=self._reached,
            stopping=self._stopping.is_set,
        )
        try:
            query = self._start(self._rows(starting), writer, checkpoint.path)
            writer.started(query)
            self._wait(query)
        except Exception as error:
            if isinstance(writer.failure, Stopped):
                return
            raise self._cause(writer.failure or error, attempt) from error

    def _remembered(self, handover: Handover | None) -> Remembered | None:
        if handover is None or not self._settings.dedup_keys:
            return None
        return Remembered(self._settings, self._tables.rows, handover.ends)

    def _cause(self, error: BaseException, attempt: _Attempt) -> PipelineError:
        """Why the query failed. What Spark calls lost data, or an unknown topic, a look at the topics tells better."""
        if isinstance(error, PipelineError):
            return error
        try:
            topics = attempt.look()
            done = self._as_entered(attempt.generation).done
            if done is not None and self._settings.on_data_loss == "fail":
                compare_offsets(done, topics)
        except PipelineError as better:
            return better
        return as_pipeline_error(error, "the ingest failed")

    def _as_entered(self, generation: Generation) -> Generation:
        """The generation with the ledger's last offsets."""
        rows = [row for row in self._ledger.rows(JOB) if row.generation == generation.number]
        return replace(generation, done=rows[-1].end_offsets) if rows else generation

    def _rows(self, starting: str) -> DataFrame:
        """The stream up to the split into good and dead. Raises PipelineError."""
        try:
            records = parsed(records_stream(self._spark, self._settings, starting), self._settings)
            return deduplicated(counted(records), self._settings)
        except PySparkException as error:
            raise as_pipeline_error(error, "the settings do not fit together") from error

    def _look(self) -> Topics:
        return topics_of(self._spark, self._settings, self._pause)

    def _start(self, rows: DataFrame, writer: BatchWriter, checkpoint: Path) -> StreamingQuery:
        stream = rows.writeStream.queryName(self._settings.name).foreachBatch(writer)
        return self._triggered(stream.option("checkpointLocation", str(checkpoint))).start()

    def _triggered(self, stream: DataStreamWriter) -> DataStreamWriter:
        trigger = self._settings.trigger
        if trigger == AVAILABLE_NOW:
            return stream.trigger(availableNow=True)
        try:
            return stream.trigger(processingTime=trigger)
        except PySparkException as error:
            raise PipelineError(
                f"trigger {trigger!r} is neither {AVAILABLE_NOW} nor a length of time", "give one like '10 seconds'"
            ) from error

    def _wait(self, query: StreamingQuery) -> None:
        """Until the query ends; or between two batches once it is told to stop. Raises what ended it."""
        try:
            while not query.awaitTermination(POLL_S):
                if self._stopping.is_set() and not query.status["isTriggerActive"]:
                    query.stop()
        finally:
            query.stop()

    def _show(self, committed: Committed) -> None:
        row = committed.row
        shadow_group.commit(self._settings, row.end_offsets)
        ends = {name: topic.ends for name, topic in committed.topics.items()}
        self._shown.batch(
            BatchDone(
                row.job,
                row.batch_id,
                row.rows_in,
                row.good,
                row.dead,
                row.duplicates,
                row.late,
                (row.finished_at - row.started_at).total_seconds(),
                row.lost,
                _between(row.end_offsets, ends),
                row.watermark,
            )
        )


class _Attempt:
    """A generation that is run, with what is learned of its topics meanwhile."""

    def __init__(self, generation: Generation, look_at_topics: Callable[[], Topics]) -> None:
        self.generation = generation
        self.save: Callable[[Generation], None] = lambda _: None
        self._look = look_at_topics

    def look(self) -> Topics:
        """The topics of now. Raises PipelineError if they are not those that the generation knows."""
        topics = self._look()
        compare_ids(self.generation.known, topics)
        self.generation = self.generation.with_topics(topics)
        self.save(self.generation)
        return topics


def _between(done: Offsets, ends: Offsets) -> int:
    return sum(
        max(0, end - done.get(name, {}).get(number, 0))
        for name, partitions in ends.items()
        for number, end in partitions.items()
    )
