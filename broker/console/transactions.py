"""`/api/transactions`: the transactional ids that this broker coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from odradek.broker.background.stepwise import Steps
from odradek.broker.console.queries import Query
from odradek.broker.console.selection import Row, listing, rows_of, select, shown
from odradek.broker.coordinator.transaction.transaction import NO_PRODUCER_ID, Transaction
from odradek.broker.metrics.sources import MetricSources

MOST_PARTITIONS = 10


def transactions(sources: MetricSources, query: Query) -> Steps[Row]:
    selection = yield from select(_all(sources), lambda transaction: transaction.transactional_id, query)
    now_ms = sources.timer.clock.wall_ms()
    rows = yield from rows_of(selection, lambda transaction: _row(transaction, now_ms))
    return listing(query, selection, rows)


def _all(sources: MetricSources) -> Iterator[Transaction]:
    for shard in sources.transaction_coordinator.shards():
        yield from list(shard.transactions.values())


def _row(transaction: Transaction, now_ms: int) -> Row:
    is_open = not transaction.state.is_idle
    return {
        "name": shown(transaction.transactional_id),
        "state": transaction.state.label,
        "changes_to": None if transaction.pending is None else transaction.pending.label,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "next_producer_id": None if transaction.next_producer_id == NO_PRODUCER_ID else transaction.next_producer_id,
        "version": transaction.client_version,
        "timeout_ms": transaction.timeout_ms,
        "open_ms": max(now_ms - transaction.start_ms, 0) if is_open else None,
        "partitions": [shown(str(key)) for key in islice(transaction.partitions, MOST_PARTITIONS)],
        "partitions_left_off": max(len(transaction.partitions) - MOST_PARTITIONS, 0),
    }
