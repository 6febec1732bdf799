"""Transactional producers of transactions version 2 (KIP-890, part 2).

They add no partitions and no groups: what they write adds them. The end of a transaction gives them the epoch of the
next one, which must be higher, or the first one of another producer id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import GROUP, TRANSACTION
from tests.simulation.client.late_producer import Batches, LateProducer
from tests.simulation.client.transactions import (
    Refused,
    TransactionalProducer,
    commit_codes,
    end_request,
    txn_commit_request,
)
from tests.simulation.history import Outcome, Transaction
from tests.simulation.missteps import Finding, Misstep

RAISED = "raised"
PRODUCE, END, TXN_COMMIT = 12, 5, 5
"""The versions of these requests."""
OUT_OF_ORDER = 5
"""A sequence number with which nobody begins."""


class NewerProducer(TransactionalProducer):
    """Start `run` as a task; then call `transact` for one transaction after the other."""

    produce_version = PRODUCE
    end_version = END
    txn_commit_version = TXN_COMMIT

    async def begin(self) -> Transaction:
        """See TransactionalProducer. The decision bears the next epoch."""
        transaction = await super().begin()
        transaction.decided_epoch = transaction.producer_epoch + 1
        return transaction

    async def _add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """The batches do."""

    async def _add_group(self, group: str) -> None:
        """The offsets do."""

    def _goes_on(self, answer: Any) -> None:
        """Takes the epoch of the next transaction."""
        before = self.state.producer_id, self.state.epoch
        after = answer.producer_id, answer.producer_epoch
        is_next = after == (before[0], before[1] + 1) or (after[0] != before[0] and after[1] == 0)
        if not is_next:
            text = f"the end of a transaction of {self.transactional_id} has not raised the epoch {before}: {after}"
            if after > before:
                text = (
                    f"the end of a transaction of {self.transactional_id} has skipped an epoch after {before}: {after}"
                )
            self.history.note(Misstep(process=self.name, finding=Finding(RAISED, text)))
        self._end(self.state.identify(*after))


class NewerLateProducer(NewerProducer, LateProducer):
    """One that does what it must not."""

    async def write_in_the_epoch_before(self, batches: Batches, text: str, group: str, offset: TopicPartition) -> None:
        """Runs a transaction to its end, and goes on in its epoch. Records wait for the markers: what overtakes them
        belongs to this transaction.
        """
        transaction = await self._open(batches)
        if transaction is None:
            return
        await self._quiet()
        await self._finish(transaction)
        if transaction.outcome is not Outcome.OK:
            return
        request = txn_commit_request(self, group, {offset: 1 << 40})
        request.producer_epoch -= 1
        asked = (GROUP, group, request, TXN_COMMIT)
        await self._late_request("commit an offset in the epoch before", *asked, commit_codes)
        other_way = end_request(self, committed=not transaction.commits)
        other_way.producer_epoch -= 1
        asked_end = (TRANSACTION, self.transactional_id, other_way, END)
        await self._late_request("end it the other way", *asked_end, _code)
        if await self._has_ended(transaction):
            partition, written = next(iter(batches.items()))
            await self._late_record("write in the epoch before", partition, text, len(written), epochs_before=1)

    async def write_out_of_order(self, batches: Batches, elsewhere: TopicPartition, text: str) -> None:
        """Begins to write to a partition with a sequence number in the midst. Then the transaction is aborted."""
        transaction = await self._open(batches)
        if transaction is None:
            return
        await self._late_record("begin in the midst", elsewhere, text, OUT_OF_ORDER)
        await self._quiet()
        transaction.commits = False
        await self._finish(transaction)

    async def end_nothing(self) -> None:
        """Asks for the commit of a transaction without anything in it."""
        await self.initialise()
        request = end_request(self, committed=True)
        asked = (TRANSACTION, self.transactional_id, request, END)
        await self._late_request("commit nothing", *asked, _code)
        self._is_initialised = False

    async def end_twice(self, batches: Batches) -> None:
        """Asks for the end of a transaction again: the answer is the same."""
        transaction = await self._open(batches)
        if transaction is None:
            return
        await self._quiet()
        request = end_request(self, committed=transaction.commits)
        before = self.state.producer_id, self.state.epoch
        await self._finish(transaction)
        if transaction.outcome is not Outcome.OK:
            return
        after = self.state.producer_id, self.state.epoch
        try:
            answer = await self._ask(TRANSACTION, self.transactional_id, request, _code, END)
        except Refused as error:
            if error.code is ErrorCode.INVALID_TXN_STATE or error.code is ErrorCode.PRODUCER_FENCED:
                self._wrong(f"the end of epoch {before} of {self.transactional_id} was refused again: {error}")
        else:
            if (answer.producer_id, answer.producer_epoch) != after:
                self._wrong(f"the end of epoch {before} of {self.transactional_id} led to {after}, and to another one")

    def _wrong(self, text: str) -> None:
        self.history.note(Misstep(process=self.name, finding=Finding(RAISED, text)))


def _code(answer: Any) -> list[int]:
    return [answer.error_code]
