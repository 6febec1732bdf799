"""TransactionShard: the transactional ids of one partition of `__transaction_state`.

Source: Kafka's `TransactionStateManager` (its cache, and loading).
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import Act
from odradek.broker.coordinator.transaction.records import read_transaction
from odradek.broker.coordinator.transaction.transaction import Transaction
from odradek.broker.coordinator.transaction.transaction_state import ONGOING


class TransactionShard:
    """`coordinator_epoch` is the partition's leader epoch. Markers carry it, so that markers of an older coordinator
    are refused. `act` carries out a decision on this shard. `transactions` is keyed by transactional id; `open` holds
    those that are Ongoing.
    """

    __slots__ = (
        "_on_loaded",
        "_on_unload",
        "act",
        "coordinator_epoch",
        "is_current",
        "open",
        "partition",
        "transactions",
    )

    def __init__(
        self,
        partition: int,
        coordinator_epoch: int,
        act: Act,
        *,
        on_loaded: Callable[[TransactionShard], object],
        on_unload: Callable[[TransactionShard], object],
    ) -> None:
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self.act = act
        self.transactions: dict[str, Transaction] = {}
        self.open: dict[str, Transaction] = {}
        self.is_current = True
        """False, permanently, once the shard has been unloaded. Its state is then obsolete."""
        self._on_loaded = on_loaded
        self._on_unload = on_unload

    def prepared(self) -> list[Transaction]:
        """Returns the transactions whose markers must be written."""
        return [transaction for transaction in self.transactions.values() if transaction.state.is_prepared]

    def put(self, transaction: Transaction) -> None:
        """Adds the transaction, or updates `open` after its state has changed."""
        self.transactions[transaction.transactional_id] = transaction
        if transaction.state == ONGOING:
            self.open[transaction.transactional_id] = transaction
        else:
            self.open.pop(transaction.transactional_id, None)

    def remove(self, transactional_id: str) -> None:
        """Removes the id."""
        self.transactions.pop(transactional_id, None)
        self.open.pop(transactional_id, None)

    # Called by the runtime

    def replay(
        self, record: CoordinatorRecord, *, offset: int, timestamp_ms: int, producer_id: int, producer_epoch: int
    ) -> None:
        """Applies a record, which replaces earlier records of its id. Raises MalformedMessage."""
        transactional_id, transit = read_transaction(record)
        if transit is None:
            self.remove(transactional_id)
            return
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id, transit.producer_id, transit.timeout_ms, transit.update_ms)
        transaction.take(transit)
        self.put(transaction)

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Does nothing: no record of this topic is written in a transaction."""

    def loaded(self) -> None:
        """Resumes prepared transactions."""
        self._on_loaded(self)

    def unload(self) -> None:
        """Removes all transactions. The runtime calls the `done` of pending decisions with an error."""
        self.is_current = False
        self._on_unload(self)
        self.transactions.clear()
        self.open.clear()
