"""`odradek pipeline ingest`: loads topics into tables, until all records are read (available-now) or it is stopped.

Only the ledger determines where the next batch starts (runner.py, planning.py, batch.py). Several pipelines take turns
(turns.py).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import structlog

from odradek.pipeline.durations import duration
from odradek.pipeline.errors import PipelineError, Stopped
from odradek.pipeline.jobs.history import refuse_unfinished
from odradek.pipeline.jobs.one_job import one_job, pause, signals
from odradek.pipeline.jobs.planning import INGEST, beginning, recreated_topics
from odradek.pipeline.jobs.position import Position
from odradek.pipeline.jobs.runner import Runner
from odradek.pipeline.jobs.turns import refuse_same_places, take_turns
from odradek.pipeline.kafka import shadow_group
from odradek.pipeline.kafka.inputs import refuse_missing
from odradek.pipeline.kafka.offsets import by_partition
from odradek.pipeline.kafka.topics import PATIENCE_S, TopicRecreated, Topics, TopicVanished, ends_of
from odradek.pipeline.report.progress import Progress
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.batch_tables import BatchTables
from odradek.pipeline.sinks.delta import nothing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDLE_S = 0.5
"""The minimum pause between two requests for topics without new records."""
AVAILABLE_NOW = "available-now"

log = structlog.get_logger("pipeline.ingest")


def run(settings: Settings, reached: Callable[[str], None] = nothing, stopping: threading.Event | None = None) -> int:
    """Runs the job. Returns 0 when it has read everything, or after the current batch if a signal arrives or `stopping`
    is set. `reached` is called with the name of each step that a batch completes, for tests that kill the job there.
    Raises PipelineError.
    """
    stopping = stopping or threading.Event()
    with signals(stopping.set), one_job(INGEST, settings) as (spark, shown), contextlib.suppress(Stopped):
        runner = Runner(INGEST, settings, spark, shown, reached, stopping)
        for waits_s in _ingest(runner):
            runner.pause(waits_s)
    return 0


def run_all(
    pipelines: Sequence[Settings],
    reached: Callable[[str], None] = nothing,
    stopping: threading.Event | None = None,
) -> int:
    """Runs several pipelines, which take turns. Otherwise as `run`. A pipeline that fails does not stop the others, but
    raises PipelineError in the end.
    """
    stopping = stopping or threading.Event()
    refuse_same_places(pipelines)
    with signals(stopping.set), one_job(INGEST, *pipelines) as (spark, shown):
        turns = {one.name: _turns(one, spark, shown, reached, stopping) for one in pipelines}
        take_turns(turns, pause(stopping), shown.metrics.failed)
    return 0


def _turns(
    settings: Settings,
    spark: SparkSession,
    shown: Progress,
    reached: Callable[[str], None],
    stopping: threading.Event,
) -> Iterator[float]:
    """As `_ingest`. Errors in the settings are those of the first turn."""
    yield from _ingest(Runner(INGEST, settings, spark, shown, reached, stopping))


def _ingest(runner: Runner) -> Iterator[float]:
    """Yields after each batch, and when there is nothing to read, the seconds until it continues. Ends when everything
    is read. Raises PipelineError, and Stopped between two batches if it has to stop.
    """
    every_s = 0.0 if runner.settings.trigger == AVAILABLE_NOW else _seconds(runner.settings.trigger)
    settings = runner.settings
    runner.pause(0)
    position = runner.position()
    refuse_unfinished(runner.places, position)
    position = runner.finished(position)
    tables = runner.prepare()
    topics = runner.look()
    refuse_missing(settings, topics, position.topics)  # `beginning` reports deleted known topics.
    start = beginning(position, topics, settings)
    runner.forget_plans(position)
    for note in start.notes:
        log.warning(note)
    log.info("ingest started", batch=position.number, offsets=by_partition(start.offsets))
    if position.done:
        shadow_group.commit(settings, position.done)
    if settings.trigger == AVAILABLE_NOW:
        yield from _all_of(topics, runner, position, tables)
    else:
        yield from _for_ever(runner, every_s, position, tables)


def _all_of(topics: Topics, runner: Runner, position: Position, tables: BatchTables) -> Iterator[float]:
    """Reads the records that are in the topics now, without those that arrive in the meantime."""
    until = ends_of(topics)
    while (following := runner.next(position, topics, until, tables)) is not None:
        yield 0
        position, topics = following, runner.look()


def _for_ever(runner: Runner, every_s: float, position: Position, tables: BatchTables) -> Iterator[float]:
    while True:
        began = time.monotonic()
        topics = yield from _look(runner, position)
        try:
            following = runner.next(position, topics, ends_of(topics), tables)
        except (TopicVanished, TopicRecreated) as error:  # During the batch, which no table has.
            if runner.settings.on_recreated_topic == "fail":
                raise
            log.warning(error.problem)
            position = runner.position()  # With the old topic's ends in the plan, so that its offsets count as lost.
            runner.forget_plans(position)
            continue
        position = following or position
        took = time.monotonic() - began
        yield max(every_s - took, IDLE_S if following is None else 0)


def _look(runner: Runner, position: Position) -> Generator[float, None, Topics]:
    """Returns the current topics. With on-recreated-topic = continue, waits a minute for a deleted topic to be
    recreated, and yields as `_ingest` meanwhile.
    """
    until, is_logged = time.monotonic() + PATIENCE_S, False
    while True:
        topics = runner.look()
        try:
            recreated_topics(position, topics, runner.settings)
        except TopicVanished as error:
            if runner.settings.on_recreated_topic == "fail" or time.monotonic() >= until:
                raise
            if not is_logged:
                log.warning(f"{error.problem}; waiting for it to be recreated", seconds=PATIENCE_S)
                is_logged = True
        else:
            return topics
        yield IDLE_S


def _seconds(trigger: str) -> float:
    try:
        return duration(trigger, "trigger").total_seconds()
    except PipelineError as error:
        raise PipelineError(
            f"trigger {trigger!r} is neither {AVAILABLE_NOW} nor a duration", "set it to, say, '10 seconds'"
        ) from error
