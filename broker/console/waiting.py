"""`/api/waiting`: what waits in each purgatory, for whom, why, and until when. The soonest deadline comes first.

Of a purgatory with more than MOST_LOOKED_AT operations, these are the soonest of as many; all are counted.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.console.hand_overs import Takers
from odradek.broker.console.queries import Query
from odradek.broker.console.reasons import MOST_NAMED, keys_of, why
from odradek.broker.console.requesters import clients_of, group_of, purgatories, waiting_in
from odradek.broker.console.selection import Row
from odradek.broker.coordinator.group.group import Group
from odradek.broker.metrics.sources import MetricSources
from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat

ITEMS_PER_OPERATION = 30
SORTED_PER_STEP = 2000
Deadline = tuple[int, int, DelayedOperation]


def waiting(sources: MetricSources, query: Query) -> Steps[Row]:
    """`limit` is the number of rows of each purgatory."""
    pace = Pace()
    found: list[Row] = []
    for purgatory in purgatories(sources):
        found += [(yield from _purgatory(sources, purgatory, query, pace))]
    return {"now_ms": sources.timer.clock.now_ms(), "purgatories": found}


def _purgatory(sources: MetricSources, purgatory: DelayedOperationPurgatory, query: Query, pace: Pace) -> Steps[Row]:
    operations = yield from waiting_in(purgatory, pace)
    rows = []
    takers = Takers()
    for operation in (yield from _soonest(operations, query.limit)):
        group = group_of(sources, operation)
        waiting_for = yield from takers.of(operation, group)
        if not operation.is_completed:
            rows.append(_row(sources, operation, group, waiting_for))
        if pace.step_ends(ITEMS_PER_OPERATION):
            yield
    return {
        "name": purgatory.name,
        "waiting": purgatory.delayed,
        "keys": purgatory.watched_keys,
        "entries": purgatory.watched,
        "completed": purgatory.completed,
        "expired": purgatory.expired,
        "left_off": max(purgatory.delayed - len(rows), 0),
        "rows": rows,
    }


def _soonest(operations: list[DelayedOperation], most: int) -> Steps[list[DelayedOperation]]:
    """Returns the operations with the soonest deadlines, in their order."""
    soonest: list[Deadline] = []
    for start in range(0, len(operations), SORTED_PER_STEP):
        more = operations[start : start + SORTED_PER_STEP]
        soonest += [(deadline_of(operation), start + index, operation) for index, operation in enumerate(more)]
        soonest.sort(key=itemgetter(0, 1))
        del soonest[most:]
        yield
    return [operation for _, _, operation in soonest]


def deadline_of(operation: DelayedOperation) -> int:
    """When the operation ends by itself, on the timer's clock."""
    if isinstance(operation, DelayedHeartbeat):
        return operation.deadline_ms
    return operation.expiration_ms


def _row(sources: MetricSources, operation: DelayedOperation, group: Group | None, takers: Collection[str]) -> Row:
    now_ms = sources.timer.clock.now_ms()
    clients = clients_of(operation, group)
    return {
        "operation": type(operation).__name__,
        "clients": clients,
        "why": why(operation, sources, group, takers),
        "keys": keys_of(operation),
        "keys_left_off": max(len(operation.watch_keys) - MOST_NAMED, 0),
        "waited_ms": max(now_ms - (operation.expiration_ms - operation.delay_ms), 0),
        "left_ms": max(deadline_of(operation) - now_ms, 0),
        "deadline_ms": deadline_of(operation),
    }
