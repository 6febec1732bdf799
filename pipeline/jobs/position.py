"""Where a pipeline goes on: what its ledger, its plans and its tables say together.

The ledger's newest row says which batch is next and at which offsets it begins. The tables must agree with it:

A  no table has the next batch: it is planned, anew if a plan is there that nothing was done by
B  some tables have it: it was killed between two commits, and is finished by its plan; without that an error
C  tables have more than that, or batches and no ledger: the ledger is gone, or older. An error
D  a table lacks what the ledger says it has: the table is gone, or older. An error
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


@dataclass(frozen=True, slots=True)
class Position:
    """The batch that is next.

    `done`: the next offsets to read, of all partitions that were ever read. `topics`: what is known of them.
    `newest_event_time`: of all batches before. `job`: that which has entered the last batch; "" before the first.
    `unfinished`: its plan, where some tables have it (B). `note`: of a plan that is to be made anew."""

    number: int = 0
    done: Offsets = field(default_factory=dict)
    topics: Mapping[str, KnownTopic] = field(default_factory=dict)
    newest_event_time: datetime | None = None
    job: str = ""
    unfinished: Plan | None = None
    note: str = ""


def position_of(settings: Settings, places: Places) -> Position:
    """Where the next job goes on. Changes nothing. Raises PipelineError."""
    newest = Ledger(places.ledger).newest()
    position = Position() if newest is None else after(newest)
    batch = BatchId(settings.name, position.number)
    plan, damage = _plan(places, position.number)
    tables = BatchTables(settings if plan is None else plan.settings(settings), places)
    tables.compare(batch)
    written = tables.last_batch(batch)
    if written is not None and written > position.number:
        ends = "has none" if newest is None else f"ends at batch {newest.batch_id}"
        raise PipelineError(
            f"the tables of {settings.name} have batch {written}, the ledger {places.ledger} {ends}: it is gone, or "
            "older",
            f"put it back; or {ANEW}",
        )
    if written == position.number:
        if plan is None:
            raise damage or PipelineError(
                f"batch {written} is only in a part of the tables, and its plan is gone from {places.state}",
                f"put it back; or {ANEW}",
            )
        return replace(position, unfinished=plan)
    if plan is None and damage is None:
        return position
    what = "was planned and not begun" if damage is None else "had a torn plan, and nothing was done by it"
    note = f"batch {position.number} {what}; it is planned anew"
    return replace(position, topics=_seen(position, plan), note=note)


def _seen(position: Position, plan: Plan | None) -> Mapping[str, KnownTopic]:
    """What is known of the topics, with the ends that a plan has seen: what is lost is counted up to them."""
    seen = {} if plan is None else plan.topics
    return {
        name: seen[name] if name in seen and seen[name].id == one.id else one for name, one in position.topics.items()
    }


def after(row: LedgerRow) -> Position:
    """What follows on a batch."""
    return Position(row.batch_id + 1, row.end_offsets, row.topics, row.newest_event_time, row.job)


def _plan(places: Places, number: int) -> tuple[Plan | None, DamagedPlan | None]:
    try:
        return Plans(places.state).read(number), None
    except DamagedPlan as error:
        return None, error
