"""A transactional producer whose transactions have offsets of groups, and no records."""

from __future__ import annotations

from tests.simulation.client.transactions import Refused, TransactionalProducer
from tests.simulation.history import Outcome, Transaction


class OffsetsProducer(TransactionalProducer):
    """Start `run` as a task."""

    async def begin_with(self, group: str) -> Transaction | None:
        """Begins a transaction that has offsets of the group. Returns None if that fails."""
        transaction = await self.begin()
        try:
            await self._add_group(group)
        except Refused as error:
            self.history.end(transaction, Outcome.FAILED, str(error))
            self._is_initialised = False
            return None
        return transaction

    async def finish(self, transaction: Transaction, *, commits: bool) -> None:
        """Ends the transaction."""
        transaction.commits = commits
        await self._finish(transaction)
