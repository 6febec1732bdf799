"""`odradek pipeline backfill`: loads history into the tables of an ingest, up to recorded offsets, where the ingest
then starts.

Its batches are like an ingest's, in the same ledger, with two differences: they end at the recorded offsets, and no row
of history is late. With backfill-from = segments they are read from the files of a broker on the same machine.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

import structlog

from odradek.pipeline.errors import PipelineError, Stopped
from odradek.pipeline.jobs.history import History, recorded_history, write_history
from odradek.pipeline.jobs.one_job import one_job, signals
from odradek.pipeline.jobs.planning import BACKFILL, INGEST, beginning
from odradek.pipeline.jobs.position import Position
from odradek.pipeline.jobs.runner import Runner
from odradek.pipeline.jobs.turns import each, refuse_same_places
from odradek.pipeline.kafka import shadow_group
from odradek.pipeline.kafka.inputs import refuse_missing
from odradek.pipeline.kafka.offsets import by_partition
from odradek.pipeline.kafka.topics import ends_of, known_topics
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.delta import nothing

log = structlog.get_logger("pipeline.backfill")


def run(settings: Settings, reached: Callable[[str], None] = nothing, stopping: threading.Event | None = None) -> int:
    """Runs the job. Returns 0 when the tables have all of history, or after the current batch if a signal arrives or
    `stopping` is set. `reached` is called with the name of each step that a batch completes, for tests that kill the
    job there. Raises PipelineError.
    """
    stopping = stopping or threading.Event()
    with signals(stopping.set), one_job(BACKFILL, settings) as (spark, shown), contextlib.suppress(Stopped):
        _backfill(Runner(BACKFILL, settings, spark, shown, reached, stopping))
    return 0


def run_all(pipelines: Sequence[Settings]) -> int:
    """Runs the job for one pipeline after the other. A pipeline that fails does not stop the others, but raises
    PipelineError in the end.
    """
    stopping = threading.Event()
    refuse_same_places(pipelines)
    return each(pipelines, lambda one: 0 if stopping.is_set() else run(one, stopping=stopping))


def _backfill(runner: Runner) -> None:
    """Returns when all of history is read. Raises PipelineError, and Stopped between two batches if it has to stop."""
    settings, state = runner.settings, runner.places.state
    position = runner.position()
    history = recorded_history(state, position)
    if position.job == INGEST or (position.unfinished and position.unfinished.job == INGEST):
        if history is None or history.left(position).start:
            raise PipelineError(
                f"the ingest of {settings.name} has started, so its tables already have the history",
                "run the backfill first; set another name to read history again",
            )
        log.info("backfill already finished", offsets=by_partition(history.ends))
        return
    position = runner.finished(position)
    tables = runner.prepare()
    runner.forget_plans(position)
    history = history or _record(runner)
    log.info("backfill started", batch=position.number, offsets=by_partition(position.done or history.starts))
    while True:
        topics = runner.look()
        following = runner.next(history.begun(position), topics, history.until(topics), tables)
        if following is None:
            break
        position = following
    shadow_group.commit(settings, position.done or history.ends)
    log.info("backfill finished", offsets=by_partition(history.ends))


def _record(runner: Runner) -> History:
    """Requests the start and the end of history, and records them."""
    topics = runner.look()
    refuse_missing(runner.settings, topics)
    starts = beginning(Position(), topics, runner.settings).offsets
    return write_history(runner.places.state, History(starts, ends_of(topics), known_topics(topics)))
