"""`odradek pipeline redrive`: judges dead letters again, by today's settings, and writes those that are good now.

It is one batch, planned, written and entered in the ledger like those of an ingest, but its records are dead letters
(letters.py). Those that are still dead stay what they are. The brokers are not needed, so that it does not matter
whether the topics still have the records.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TextIO

from odradek.pipeline.errors import PipelineError, Stopped
from odradek.pipeline.jobs.letters import UPSERT_NEEDS
from odradek.pipeline.jobs.one_job import one_job, signals
from odradek.pipeline.jobs.one_line import one_line
from odradek.pipeline.jobs.runner import Runner
from odradek.pipeline.parse.records import REASONS
from odradek.pipeline.parse.rules import REASON
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.delta import nothing
from odradek.pipeline.state.accounting import OPTIONAL, OUTCOMES, Counts
from odradek.pipeline.state.ledger import Ledger
from odradek.pipeline.state.places import Places
from odradek.pipeline.state.selection import REDRIVE, Selection, time_of


def run(
    settings: Settings,
    reasons: Sequence[str] = (),
    since: str = "",
    until: str = "",
    dry_run: bool = False,
    reached: Callable[[str], None] = nothing,
    out: TextIO | None = None,
) -> int:
    """Runs the job, and prints how many letters are redriven, and how many are still dead. Returns 0.

    `reasons`, `since`, `until`: as in --reason, --from, --to. `dry_run`: only prints. `reached` is called with the name
    of each step that the batch completes, for tests that kill the job there. Raises PipelineError.
    """
    selection = _selection(reasons, since, until)
    with one_line("the redrive failed"):
        _refuse(settings)
    stopping, out = threading.Event(), sys.stdout if out is None else out

    def confirm(counts: Counts) -> bool:
        print(*_summary(counts, dry_run), sep="\n", file=out, flush=True)
        return counts.redriven > 0 and not dry_run

    with signals(stopping.set), one_job(REDRIVE, settings) as (spark, shown), contextlib.suppress(Stopped):
        runner = Runner(REDRIVE, settings, spark, shown, reached, stopping, tries=dry_run)
        runner.pause(0)
        position = runner.position()
        if not dry_run:
            position = runner.finished(position)
        elif position.unfinished is not None:
            raise PipelineError(
                f"batch {position.number} is only in some of the tables, so what is dead is not known yet",
                "run the ingest, or the redrive without --dry-run, which finishes it first",
            )
        tables = runner.prepare()
        if not dry_run:
            runner.forget_plans(position)
        runner.redrive(position, selection, tables, confirm)
    return 0


def _selection(reasons: Sequence[str], since: str, until: str) -> Selection:
    """Returns what a user has chosen. Raises PipelineError."""
    for reason in reasons:
        if reason not in REASONS and not (reason.startswith(REASON) and reason != REASON):
            raise PipelineError(
                f"--reason {reason!r} is no reason of dead letters", f"the reasons are {', '.join(REASONS)}"
            )
    selection = Selection(tuple(reasons), time_of("--from", since), time_of("--to", until))
    if selection.since and selection.until and selection.since >= selection.until:
        raise PipelineError(f"--from {since} is not before --to {until}", "no record has such a timestamp")
    return selection


def _refuse(settings: Settings) -> None:
    """Raises PipelineError if there are no dead letters, or if their order among the rows cannot be known."""
    places = Places.of(settings)
    if Ledger(places.ledger).newest() is None:
        raise PipelineError(
            f"{places.ledger} has no batch of the pipeline {settings.name!r}, so it has no dead letters",
            "run `odradek pipeline ingest` first, or set its lake, state and name",
        )
    missing = [name for name in UPSERT_NEEDS if name not in settings.record_columns]
    if settings.mode == "upsert" and missing:
        raise PipelineError(
            f"record-columns lacks {', '.join(missing)}, without which a redrive cannot tell whether a row of the "
            "table is newer than a dead letter",
            "produce the records again; with these columns, later rows have them",
        )


def _summary(counts: Counts, dry_run: bool) -> Iterator[str]:
    still = sum(counts.still_dead.values())
    yield f"selected    {counts.redriven + still:,} dead letters"
    yield f"{'redrivable' if dry_run else 'redriven':<11} {_by_reason(counts.redriven_reasons)}"
    if counts.redriven:
        shown = [name for name in OUTCOMES if name != "dead" and (getattr(counts, name) or name not in OPTIONAL)]
        yield f"            {counts.redriven:,} = {' + '.join(f'{getattr(counts, name):,} {name}' for name in shown)}"
    yield f"still dead  {_by_reason(counts.still_dead)}"
    if dry_run:
        yield "dry run     nothing was changed"


def _by_reason(reasons: Mapping[str, int]) -> str:
    ordered = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    of_each = ", ".join(f"{count:,} {reason}" for reason, count in ordered)
    return f"{sum(reasons.values()):,}" + (f": {of_each}" if of_each else "")
