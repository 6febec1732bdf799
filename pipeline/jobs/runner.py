"""The common part of ingest and backfill: runs batches one after the other, each planned where the last one ended.

A job starts at the position given by the ledger, the plans and the tables, finishes a batch that was stopped between
two commits, and then plans, runs and shows further batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import structlog
from pyspark.sql import SparkSession

from odradek.pipeline.jobs.batch import Batches
from odradek.pipeline.jobs.one_job import pause
from odradek.pipeline.jobs.planning import next_plan, redrive_plan
from odradek.pipeline.jobs.position import Position, after, position_of
from odradek.pipeline.jobs.registered_schemas import NewSchemas, RegisteredSchemas, refuse_unfit_settings
from odradek.pipeline.jobs.show import show
from odradek.pipeline.kafka.inputs import TopicMatcher
from odradek.pipeline.kafka.offsets import Offsets
from odradek.pipeline.kafka.topics import Topics, look
from odradek.pipeline.report.progress import Progress
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.batch_tables import BatchTables
from odradek.pipeline.state.accounting import Counts
from odradek.pipeline.state.places import Places
from odradek.pipeline.state.plan import Plan, Plans, changed, judging_settings
from odradek.pipeline.state.selection import REDRIVE, Selection


class Runner:
    """Runs the batches of one run of a job. `pause` sleeps, and raises Stopped as soon as the job has to stop.
    `reached` is called with the name of each step that a batch completes, for tests that kill the job there. `tries`:
    nothing is written.
    """

    def __init__(
        self,
        job: str,
        settings: Settings,
        spark: SparkSession,
        shown: Progress,
        reached: Callable[[str], None],
        stopping: threading.Event,
        tries: bool = False,
    ) -> None:
        judging_settings(settings)  # Raises PipelineError before anything is read.
        self.settings = settings
        self.places = Places.of(settings)
        self.pause = pause(stopping)
        self._job = job
        self._shown = shown
        self._matches = TopicMatcher(spark, settings)
        self._plans = Plans(self.places.state)
        refuse_unfit_settings(settings)
        self._tries = tries
        self._schemas = (
            RegisteredSchemas(settings, self.places.state, self.pause, keeps=not tries)
            if settings.schema_registry
            else None
        )
        self._batches = Batches(spark, settings, self.places, self.look, reached)
        if self._schemas is not None:
            self._batches.look_up = self._schemas.look_up
        self._log = structlog.get_logger(f"pipeline.{job}")

    def position(self) -> Position:
        """Returns where the job continues. Raises PipelineError."""
        position = position_of(self.settings, self.places)
        self._shown.metrics.begin(self.settings.name, position.done)
        return position

    def look(self) -> Topics:
        """Returns the current topics. Raises PipelineError, and Stopped."""
        topics = look(self.settings, self._matches, sleep=self.pause)
        self._shown.metrics.looked(self.settings.name, topics)
        return topics

    def prepare(self) -> BatchTables:
        """Creates the tables, or adds columns, for the batches of this run. Raises PipelineError, and Stopped."""
        if self._schemas is not None:
            self.settings = self._schemas.start(lambda: self.settings.topics or self.look())
        return self._prepared()

    def finished(self, position: Position) -> Position:
        """Finishes a batch that was stopped between two commits, with its original settings."""
        plan = position.unfinished
        if plan is None:
            return position
        if others := changed(plan, self.settings):
            self._log.warning("batch resumed with its original settings", batch=plan.number, changed=others)
        topics = self.look() if plan.start else {}
        done = self._run(plan, self._batches.prepare(plan.settings(self.settings)), topics)
        assert done is not None
        return replace(done, job=position.job) if plan.redrive is not None else done

    def forget_plans(self, position: Position) -> None:
        """Removes all plans: that of a batch to be planned again, and those of batches in the ledger."""
        if position.note:
            self._log.warning(position.note)
        for number in self._plans.numbers():
            self._plans.remove(number)

    def next(self, position: Position, topics: Topics, until: Offsets, tables: BatchTables) -> Position | None:
        """Plans and runs the next batch, at most up to `until`. Returns None if there is nothing to read. Raises
        PipelineError, and Stopped before the batch.
        """
        return self._next(
            lambda: next_plan(position, topics, self.settings, self._job, datetime.now(UTC), until), tables, topics
        )

    def redrive(
        self, position: Position, selection: Selection, tables: BatchTables, confirm: Callable[[Counts], bool]
    ) -> None:
        """Runs a batch of the dead letters that are selected, if `confirm` returns True for its counts. Raises
        PipelineError, and Stopped before the batch.
        """
        self._batches.confirm = confirm
        self._next(lambda: redrive_plan(position, self.settings, selection, datetime.now(UTC)), tables, {})

    def _next(self, planned: Callable[[], Plan | None], tables: BatchTables, topics: Topics) -> Position | None:
        """Plans and runs a batch, again if it has new schemas."""
        while True:
            self.pause(0)
            plan = planned()
            if plan is None:
                return None
            if not self._tries:
                self._plans.create(plan)
            try:
                return self._run(plan, tables, topics)
            except NewSchemas as new:
                assert self._schemas is not None
                self._forget(plan)
                self.settings = self._schemas.learn(new.found)
                tables = self._prepared()

    def _prepared(self) -> BatchTables:
        """Returns the tables for the current settings, which are created or changed first."""
        if self._tries:
            return BatchTables(self.settings, self.places)
        tables = self._batches.prepare(self.settings)
        if self._job == REDRIVE:
            tables.prepare_redrive()
        return tables

    def _forget(self, plan: Plan) -> None:
        if not self._tries:
            self._plans.remove(plan.number)

    def _run(self, plan: Plan, tables: BatchTables, topics: Topics) -> Position | None:
        """Returns None if the batch was not confirmed."""
        row = self._batches.run(plan, tables, topics)
        if self._schemas is not None:
            self._schemas.batch_done()
        if row is None:
            self._forget(plan)
            return None
        show(self._shown, self.settings, row)
        return after(row)
