"""Aborts transactions that are open for too long, and deletes unused transactional ids.

An open transaction is aborted when it is older than its producer's transaction.timeout.ms; the producer is fenced.
An id without an open transaction is deleted with a tombstone transactional.id.expiration.ms after its last change.

Source: Kafka's `TransactionCoordinator.abortTimedOutTransactions` and
`TransactionStateManager.removeExpiredTransactionalIds`.
"""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import Decision
from odradek.broker.coordinator.transaction.coordinator import TransactionCoordinator
from odradek.broker.coordinator.transaction.records import tombstone
from odradek.broker.coordinator.transaction.shard import TransactionShard
from odradek.broker.coordinator.transaction.transaction import Transaction
from odradek.broker.coordinator.transaction.transaction_state import DEAD
from odradek.protocol.errors import ProtocolError

IDS_PER_STEP = 1000
ABORTS_PER_STEP = 10
BYTES_PER_BATCH = 16384
BYTES_PER_RECORD = 16
"""The approximate size of a tombstone without its key."""

log = structlog.get_logger("coordinator.transaction")


def abort_timed_out(coordinator: TransactionCoordinator, now_ms: int) -> int:
    """Aborts all transactions that have timed out at `now_ms` (since 1970). Returns their number."""
    return sum(abort_steps(coordinator, now_ms))


def abort_steps(coordinator: TransactionCoordinator, now_ms: int) -> Iterator[int]:
    """Does the same, a few transactions per step. Yields the number aborted in each step."""
    late = [
        (shard, transaction)
        for shard in coordinator.shards()
        for transaction in shard.open.values()
        if _is_late(transaction, now_ms)
    ]
    for start in range(0, len(late), ABORTS_PER_STEP):
        aborted = 0
        for shard, transaction in late[start : start + ABORTS_PER_STEP]:
            is_open = shard.is_current and shard.open.get(transaction.transactional_id) is transaction
            if is_open and _is_late(transaction, now_ms):
                coordinator.fence(shard, transaction, "transaction.timeout.ms has expired", lambda error: None)
                aborted += 1
        yield aborted


def _is_late(transaction: Transaction, now_ms: int) -> bool:
    return transaction.pending is None and transaction.start_ms + transaction.timeout_ms < now_ms


def expiry_steps(coordinator: TransactionCoordinator, now_ms: int, expiration_ms: int) -> Iterator[int]:
    """Deletes ids not used since `now_ms - expiration_ms`, some ids per step. Yields the number found in each step."""
    for shard in coordinator.shards():
        names = list(shard.transactions)
        for start in range(0, len(names), IDS_PER_STEP):
            if not shard.is_current:
                break
            expired = [
                transaction
                for name in names[start : start + IDS_PER_STEP]
                if (transaction := shard.transactions.get(name)) is not None
                and transaction.pending is None
                and transaction.state.is_idle
                and transaction.update_ms <= now_ms - expiration_ms
            ]
            for batch in _batches(expired):
                _forget(shard, batch)
            yield len(expired)


def _batches(expired: list[Transaction]) -> Iterator[list[tuple[Transaction, CoordinatorRecord]]]:
    """Splits the expired ids and their tombstones into batches of at most BYTES_PER_BATCH."""
    batch: list[tuple[Transaction, CoordinatorRecord]] = []
    size = 0
    for transaction in expired:
        record = tombstone(transaction.transactional_id)
        size += len(record.key) + BYTES_PER_RECORD
        if batch and size > BYTES_PER_BATCH:
            yield batch
            batch, size = [], len(record.key) + BYTES_PER_RECORD
        batch.append((transaction, record))
    if batch:
        yield batch


def _forget(shard: TransactionShard, batch: list[tuple[Transaction, CoordinatorRecord]]) -> None:
    for transaction, _ in batch:
        transaction.prepare_death()

    def settled(error: ProtocolError | None) -> None:
        if not shard.is_current:
            return
        for transaction, _ in batch:
            if error is not None:
                transaction.give_up()
                continue
            shard.remove(transaction.transactional_id)
            log.info(
                "transaction state changed",
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                old=transaction.state.label,
                new=DEAD.label,
                reason="not used for transactional.id.expiration.ms",
            )

    shard.act(Decision([record for _, record in batch], settled, replay=False))
