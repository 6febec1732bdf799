"""`odradek pipeline ingest`: brings topics into tables, until it has all (available-now) or has to stop.

The ledger alone says where the next batch begins (runner.py, planning.py, batch.py).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import structlog

from odradek.pipeline.durations import duration
from odradek.pipeline.errors import PipelineError, Stopped
from odradek.pipeline.jobs.history import refuse_unfinished
from odradek.pipeline.jobs.one_job import one_job, signals
from odradek.pipeline.jobs.planning import INGEST, beginning, recreated_topics
from odradek.pipeline.jobs.position import Position
from odradek.pipeline.jobs.runner import Runner
from odradek.pipeline.kafka import shadow_group
from odradek.pipeline.kafka.inputs import refuse_missing
from odradek.pipeline.kafka.offsets import by_partition
from odradek.pipeline.kafka.topics import PATIENCE_S, TopicRecreated, Topics, TopicVanished, ends_of
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.batch_tables import BatchTables
from odradek.pipeline.sinks.delta import nothing

IDLE_S = 0.5
"""Between two looks at topics that have nothing new, at least."""
AVAILABLE_NOW = "available-now"

log = structlog.get_logger("pipeline.ingest")


def run(settings: Settings, reached: Callable[[str], None] = nothing, stopping: threading.Event | None = None) -> int:
    """Runs the job. Returns 0 when it has read everything, or after its current batch once a signal came or `stopping`
    is set. `reached` gets the name of each point that a batch passes, for tests that kill there. Raises PipelineError.
    """
    stopping = stopping or threading.Event()
    with signals(stopping.set), one_job(INGEST, settings) as (spark, shown), contextlib.suppress(Stopped):
        every_s = 0.0 if settings.trigger == AVAILABLE_NOW else _seconds(settings.trigger)
        _ingest(Runner(INGEST, settings, spark, shown, reached, stopping), every_s)
    return 0


def _ingest(runner: Runner, every_s: float) -> None:
    """Returns when all is read. Raises PipelineError, and Stopped between two batches when it has to stop."""
    settings = runner.settings
    runner.pause(0)
    position = runner.position()
    refuse_unfinished(runner.places, position)
    position = runner.finished(position)
    tables = runner.prepare()
    topics = runner.look()
    refuse_missing(settings, topics, position.topics)  # `beginning` names known topics that are gone.
    start = beginning(position, topics, settings)
    runner.forget_plans(position)
    for note in start.notes:
        log.warning(note)
    log.info("begins", batch=position.number, offsets=by_partition(start.offsets))
    if position.done:
        shadow_group.commit(settings, position.done)
    if settings.trigger == AVAILABLE_NOW:
        _all_of(topics, runner, position, tables)
    else:
        _for_ever(runner, every_s, position, tables)


def _all_of(topics: Topics, runner: Runner, position: Position, tables: BatchTables) -> None:
    """Reads what is in the topics by now, and not what comes meanwhile."""
    until = ends_of(topics)
    while (following := runner.next(position, topics, until, tables)) is not None:
        position, topics = following, runner.look()


def _for_ever(runner: Runner, every_s: float, position: Position, tables: BatchTables) -> None:
    while True:
        began = time.monotonic()
        topics = _look(runner, position)
        try:
            following = runner.next(position, topics, ends_of(topics), tables)
        except (TopicVanished, TopicRecreated) as error:  # Amid the batch, of which no table has anything.
            if runner.settings.on_recreated_topic == "fail":
                raise
            log.warning(error.problem)
            position = runner.position()  # With what the plan has seen of the old topic, so that it counts as lost.
            runner.forget_plans(position)
            continue
        position = following or position
        took = time.monotonic() - began
        runner.pause(max(every_s - took, IDLE_S if following is None else 0))


def _look(runner: Runner, position: Position) -> Topics:
    """The topics of now. With on-recreated-topic = continue a topic that is gone has a minute to be made again."""
    until, told = time.monotonic() + PATIENCE_S, False
    while True:
        topics = runner.look()
        try:
            recreated_topics(position, topics, runner.settings)
        except TopicVanished as error:
            if runner.settings.on_recreated_topic == "fail" or time.monotonic() >= until:
                raise
            if not told:
                log.warning(f"{error.problem}; waiting for it to be created again", seconds=PATIENCE_S)
                told = True
        else:
            return topics
        runner.pause(IDLE_S)


def _seconds(trigger: str) -> float:
    try:
        return duration(trigger, "trigger").total_seconds()
    except PipelineError as error:
        raise PipelineError(
            f"trigger {trigger!r} is neither {AVAILABLE_NOW} nor a length of time", "give one like '10 seconds'"
        ) from error
