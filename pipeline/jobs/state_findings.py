"""The doctor's findings on the state and the topics: what the next ingest would do with them.

They are based on the job's own decisions (position.py, planning.py, history.py), which are only worded here. Nothing is
changed. Whether the columns still fit the tables is not checked, as this needs Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError

from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.jobs.history import read_history, refuse_unfinished
from odradek.pipeline.jobs.planning import BACKFILL, beginning
from odradek.pipeline.jobs.position import Position, after, position_of
from odradek.pipeline.kafka.chunks import Chunk
from odradek.pipeline.kafka.inputs import refuse_missing
from odradek.pipeline.kafka.offsets import Offsets
from odradek.pipeline.kafka.topics import Topics, compare_offsets, ends_of, look
from odradek.pipeline.report.findings import OK, PROBLEM, WARNING, Finding, problem
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.errors import as_pipeline_error
from odradek.pipeline.state.delta_tables import BrokenTable
from odradek.pipeline.state.ledger import Ledger
from odradek.pipeline.state.lock import is_held
from odradek.pipeline.state.places import JOB_LOCK, Places
from odradek.pipeline.state.plan import changed

SHOWN_PARTITIONS = 4
PATIENCE_S = 5.0
"""How long a broker that has just responded may take to describe the topics."""
ITSELF = "nothing to do: the next job handles it"
COUNTED = "nothing to do: the job continues with what is left, and counts the loss"


def state_findings(settings: Settings, broker_answers: bool) -> Iterator[Finding]:
    """Yields findings on a running job, a backfill, the ledger and the tables, and the next offsets to read."""
    try:
        yield from _State(settings, broker_answers).findings()
    except BrokenTable as error:
        yield problem("tables", error)
    except PipelineError as error:
        yield problem("state", error)
    except (DeltaError, BaseError) as error:
        yield problem("state", as_pipeline_error(error, "it cannot be read"))
    except (OSError, ValueError) as error:
        if (failure := as_pipeline_error(error, "it cannot be read")).remedy:
            yield problem("state", failure)
            return
        message = f"the state of {settings.name} cannot be read: {' '.join(str(error).split())}"
        yield Finding("state", PROBLEM, message, f"restore it; or {ANEW}")


class _State:
    """The state of one pipeline. Raises PipelineError, and errors of reading the tables."""

    def __init__(self, settings: Settings, broker_answers: bool) -> None:
        self._settings = settings
        self._broker_answers = broker_answers
        self._places = Places.of(settings)

    def findings(self) -> Iterator[Finding]:
        """Yields all findings."""
        if is_held(self._places.state, JOB_LOCK):
            yield from self._at_work()
            return
        position = position_of(self._settings, self._places)
        yield self._next(position)
        backfill = self._backfill(position)
        if backfill is not None:
            yield backfill
        if backfill is None or backfill.state == OK:
            yield from self._offsets(position, self._waiting)

    def _at_work(self) -> Iterator[Finding]:
        """Yields the findings during a job, which checked the state at its start and is changing it: only the newest
        complete batch counts.
        """
        held = self._places.state / JOB_LOCK
        yield Finding(
            "job",
            WARNING,
            f"an ingest, backfill or redrive is running: it holds {held}",
            "no other can start until it ends",
        )
        newest = Ledger(self._places.ledger).newest()
        if newest is None:
            yield Finding("state", OK, "in use: no batch is done yet")
            return
        yield Finding("state", OK, f"in use: batch {newest.batch_id} is done")
        yield from self._offsets(after(newest), self._waiting)

    def _next(self, position: Position) -> Finding:
        """Returns the finding on the next batch."""
        if (plan := position.unfinished) is not None:
            others = changed(plan, self._settings)
            under = f", with its original settings (changed since: {', '.join(others)})" if others else ""
            batch = f"batch {plan.number}" if plan.redrive is None else f"batch {plan.number}, a redrive,"
            return Finding("state", WARNING, f"{batch} is in some of the tables{under}", ITSELF)
        if position.note:
            return Finding("state", WARNING, position.note, ITSELF)
        at = _shortened(position.done) if position.done else self._settings.starting_offsets
        if position.number == 0:
            return Finding("state", OK, f"none yet in {self._places.state}; the first batch starts at {at}")
        return Finding("state", OK, f"batch {position.number - 1} is done; continues at {at}")

    def _backfill(self, position: Position) -> Finding | None:
        """Returns whether the ingest can start where a backfill ended. None if it has started, or if there is none."""
        try:
            refuse_unfinished(self._places, position)
        except PipelineError as error:
            return problem("backfill", error)
        history = read_history(self._places.state) if position.job == BACKFILL else None
        return None if history is None else Finding("backfill", OK, f"is finished, with {history.offsets} offsets")

    def _offsets(self, position: Position, compare: Callable[[Position, Topics], Finding]) -> Iterator[Finding]:
        """Yields the finding on the topics; nothing if another finding names the broker or a missing topic."""
        if not self._broker_answers:
            return
        pattern, known = self._settings.pattern, position.topics
        try:
            topics = look(
                self._settings,
                lambda names: [name for name in names if (pattern.fullmatch(name) if pattern else name in known)],
                patience_s=PATIENCE_S,
            )
            if not topics or any(name not in topics and name not in known for name in self._settings.topics):
                return  # The findings of the broker name a missing topic.
            yield compare(position, topics)
        except PipelineError as error:
            yield problem("offsets", error)

    def _waiting(self, position: Position, topics: Topics) -> Finding:
        """Returns the finding on unread offsets. Raises PipelineError if the ingest would."""
        start = beginning(position, topics, self._settings)
        refuse_missing(self._settings, topics, position.topics)
        notes = [*start.notes, *self._loss(start.offsets, topics)]
        if notes:
            return Finding("offsets", WARNING, "; ".join(notes), COUNTED)
        return Finding("offsets", OK, f"{Chunk(start.offsets, ends_of(topics)).offsets()} left to read")

    def _loss(self, offsets: Offsets, topics: Topics) -> list[str]:
        """Returns a message on offsets that were deleted, if this is not an error."""
        try:
            compare_offsets(offsets, topics)
        except PipelineError as error:
            return [error.problem]
        return []


def _shortened(offsets: Offsets) -> str:
    """Formats offsets, shortened to SHOWN_PARTITIONS partitions."""
    places = sorted((name, *place) for name, parts in offsets.items() for place in parts.items())
    shown = ", ".join(f"{name}-{number} {offset}" for name, number, offset in places[:SHOWN_PARTITIONS])
    return shown + (f" and more, in {len(places)} partitions" if len(places) > SHOWN_PARTITIONS else "")
