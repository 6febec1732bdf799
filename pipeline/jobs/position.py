"""Determines where a pipeline continues, from its ledger, its plans and its tables.

The ledger's newest row determines the next batch and its start offsets. The tables must agree with it:

A  no table has the next batch: it is planned; an existing plan, which wrote nothing, is replaced
B  some tables have it: it was killed between two commits, and is finished by its plan; without a plan, an error
C  tables have later batches, or batches without a ledger: the ledger was removed or is an older copy. An error
D  a table lacks a batch that the ledger has: the table was removed or is an older copy. An error
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.kafka.offsets import Offsets
from odradek.pipeline.kafka.topics import KnownTopic
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.batch_tables import BatchTables
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.ledger import Ledger, LedgerRow
from odradek.pipeline.state.places import Places
from odradek.pipeline.state.plan import DamagedPlan, Plan, Plans
from odradek.pipeline.state.selection import REDRIVE


@dataclass(frozen=True, slots=True)
class Position:
    """The next batch.

    `done`: the next offsets to read, of all partitions that were ever read. `topics`: the known topics.
    `newest_event_time`: of all earlier batches. `job`: the job of the last batch that read topics; "" before the first.
    `unfinished`: its plan, if some tables have the batch (B). `note`: a message if its plan is replaced."""

    number: int = 0
    done: Offsets = field(default_factory=dict)
    topics: Mapping[str, KnownTopic] = field(default_factory=dict)
    newest_event_time: datetime | None = None
    job: str = ""
    unfinished: Plan | None = None
    note: str = ""


def position_of(settings: Settings, places: Places) -> Position:
    """Returns where the next job continues. Changes nothing. Raises PipelineError."""
    ledger = Ledger(places.ledger)
    newest = ledger.newest()
    position = Position() if newest is None else after(newest)
    if position.job == REDRIVE:
        position = replace(position, job=ledger.last_reading_job())
    batch = BatchId(settings.name, position.number)
    plan, damage = _plan(places, position.number)
    tables = BatchTables(settings if plan is None else plan.settings(settings), places)
    tables.compare(batch)
    written = tables.last_batch(batch)
    if written is not None and written > position.number:
        ends = "has none" if newest is None else f"ends at batch {newest.batch_id}"
        raise PipelineError(
            f"the tables of {settings.name} have batch {written}, the ledger {places.ledger} {ends}: it was removed, "
            "or is an older copy",
            f"restore it; or {ANEW}",
        )
    if written == position.number:
        if plan is None:
            raise damage or PipelineError(
                f"batch {written} is only in some of the tables, and its plan is missing in {places.state}",
                f"restore it; or {ANEW}",
            )
        plan.refuse_other_transform()
        return replace(position, unfinished=plan)
    if plan is None and damage is None:
        return position
    what = "was planned but not started" if damage is None else "had a damaged plan, and nothing of it was written"
    note = f"batch {position.number} {what}; it is planned again"
    if plan is not None and plan.redrive is not None:
        note = f"batch {position.number}, a redrive, {what}; its letters are still dead, and wait for another redrive"
    return replace(position, topics=_seen(position, plan), note=note)


def _seen(position: Position, plan: Plan | None) -> Mapping[str, KnownTopic]:
    """Returns the known topics with the end offsets in a plan, up to which lost offsets are counted."""
    seen = {} if plan is None else plan.topics
    return {
        name: seen[name] if name in seen and seen[name].id == one.id else one for name, one in position.topics.items()
    }


def after(row: LedgerRow) -> Position:
    """Returns the position after a batch."""
    return Position(row.batch_id + 1, row.end_offsets, row.topics, row.newest_event_time, row.job)


def _plan(places: Places, number: int) -> tuple[Plan | None, DamagedPlan | None]:
    try:
        return Plans(places.state).read(number), None
    except DamagedPlan as error:
        return None, error
