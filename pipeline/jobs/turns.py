"""Several pipelines in one process and one Spark session: they take turns, batch by batch.

Each pipeline keeps its own ledger, plans, tables and lock, so each is as safe as if it ran alone, and the doctor looks
at each alone. A pipeline that fails takes no more turns, and the others go on: it continues where it stopped when the
job starts again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog
from structlog.contextvars import bound_contextvars

from odradek.pipeline.errors import PipelineError, Stopped
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.errors import as_pipeline_error
from odradek.pipeline.state.places import Places

log = structlog.get_logger("pipeline.turns")


def take_turns(
    turns: Mapping[str, Iterator[float]],
    pause: Callable[[float], None],
    failed: Callable[[str], None],
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Runs pipelines, by their names, until all have ended, or `pause` or a pipeline raises Stopped.

    A turn of a pipeline ends when it yields: the seconds until its next one. The one that is due first is next. Calls
    `failed` with the name of a pipeline that fails. Raises PipelineError at the end, if any has failed.
    """
    due, failures = dict.fromkeys(turns, now()), {}
    try:
        while due:
            name = min(due, key=due.__getitem__)
            pause(max(0.0, due[name] - now()))
            try:
                with bound_contextvars(pipeline=name):
                    waits_s = next(turns[name], None)
            except Stopped:
                raise
            except Exception as error:  # Spark, tables and stores raise many types of errors.
                failures[name] = as_pipeline_error(error, "the job failed")
                failed(name)
                log.error("pipeline failed, the others continue", pipeline=name, error=str(failures[name]))
                waits_s = None
            if waits_s is None:
                del due[name]
            else:
                due[name] = now() + waits_s
    except Stopped:
        pass
    raise_all(failures)


def each(pipelines: Sequence[Settings], run: Callable[[Settings], int]) -> int:
    """Runs a job for one pipeline after the other. Returns the highest status. Raises PipelineError at the end, if any
    has failed.
    """
    worst, failures = 0, {}
    for settings in pipelines:
        try:
            with bound_contextvars(pipeline=settings.name):
                worst = max(worst, run(settings))
        except PipelineError as error:
            failures[settings.name] = error
    raise_all(failures)
    return worst


def raise_all(failures: Mapping[str, PipelineError]) -> None:
    """Raises one PipelineError for all failures, by their pipelines' names."""
    if failures:
        raise PipelineError("; ".join(f"{name}: {error}" for name, error in failures.items()))


def refuse_same_places(pipelines: Sequence[Settings]) -> None:
    """Raises PipelineError if two pipelines would write to one place."""
    owners: dict[str, str] = {}
    for settings in pipelines:
        places = Places.of(settings)
        for place in (*places.tables.values(), places.state):
            if (owner := owners.setdefault(place.url, settings.name)) != settings.name:
                raise PipelineError(
                    f"the pipelines {owner} and {settings.name} would both write to {place}", "set another name"
                )
