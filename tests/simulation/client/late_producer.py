"""A transactional producer that does not know when to stop. It runs one transaction, and then writes where it may not:

    to a partition that it has not added, during the transaction and after EndTxn was answered; also in the epoch before
    in the epoch before to one that it has added
    to one that it has added after a refusal, without what was refused
    to those that it has added, while EndTxn is on its way, or comes a moment later
    to one that it has added, when EndTxn says again that the transaction has ended: then its markers are there
    after the coordinator has aborted the transaction because it was open for too long

Each late write is sent once, but for those whose EndTxn is on its way. Nobody writes under the id meanwhile, and what
comes next has a new epoch: a write that arrives very late belongs to no later transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import Record, build_batch
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import GROUP, TRANSACTION
from tests.simulation.client.producer import TIMEOUT_MS
from tests.simulation.client.producer_state import NO_EFFECT, RECORD_BYTES
from tests.simulation.client.transactions import (
    FENCED,
    Refused,
    TransactionalProducer,
    add_partitions_codes,
    add_partitions_request,
    commit_codes,
    end_request,
    txn_commit_request,
)
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.clock import START_OF_TIME_MS
from tests.simulation.history import Operation, Outcome, Send, Transaction
from tests.simulation.transaction_history import LateWrite
from tests.wire.requests import produce_batches

OPEN_FOR_MS = 1500
"""The transaction timeout of a producer that waits for it."""
ASK_EVERY_S = 0.3
LONGEST_WAIT_S = 25.0

Batches = Mapping[TopicPartition, Sequence[str]]


class LateProducer(TransactionalProducer):
    """Start `run` as a task, then call one of `write_elsewhere`, `write_after_end`, `write_after_timeout`."""

    async def write_elsewhere(self, batches: Batches, elsewhere: TopicPartition, texts: Sequence[str]) -> None:
        """Writes to a partition that is not in the transaction: while it is open, and right after it has ended."""
        transaction = await self._open(batches)
        if transaction is None:
            return
        await self._late_record("write where it has not added", elsewhere, texts[0], 0)
        await self._late_record("write there in the epoch before", elsewhere, texts[2], 0, epochs_before=1)
        if self.state.epoch > 0:
            partition, written = next(iter(batches.items()))
            await self._late_record("write in the epoch before", partition, texts[3], len(written), epochs_before=1)
        await self._quiet()
        await self._finish(transaction)
        if transaction.outcome is Outcome.OK:
            await self._late_record("write elsewhere after the end", elsewhere, texts[1], 0)

    async def write_after_refusal(self, batches: Batches, elsewhere: TopicPartition, texts: Sequence[str]) -> None:
        """Writes to a partition that it has not added, adds it, and goes on there with the next sequence number. A
        leader that remembers the refusal refuses this, too; a new one may accept it. Then the transaction is aborted.
        """
        transaction = await self._open(batches)
        if transaction is None:
            return
        late = await self._late_record("write where it has not added", elsewhere, texts[0], 0)
        await self._quiet()
        transaction.commits = False
        if late.outcome is Outcome.FAILED:
            try:
                await self._add_partitions([elsewhere])
            except Refused as error:
                self.history.end(transaction, Outcome.FAILED, str(error))
                return
            send = Send(process=self.name, partition=elsewhere, records=(texts[1],), transaction=transaction)
            await self._write(self.history.begin(send), elsewhere, texts[1], 1)
        await self._finish(transaction)

    async def end_at_once(self, batches: Batches, pause_s: float) -> None:
        """Has the transaction aborted while its records are on their way: the marker may overtake them, or come before
        they are replicated.
        """
        transaction = await self.begin()
        transaction.commits = False
        try:
            await self._add_partitions(list(batches))
        except Refused as error:
            self.history.end(transaction, Outcome.FAILED, str(error))
            return
        sending = asyncio.gather(*(self.send(partition, texts, transaction) for partition, texts in batches.items()))
        await asyncio.sleep(pause_s)
        await self._finish(transaction)
        await self._quiet()
        await sending

    async def write_after_end(self, batches: Batches, group: str, offset: TopicPartition, text: str) -> None:
        """Writes a record and an offset when the transaction has ended, and its markers are there."""
        transaction = await self._open(batches)
        if transaction is None:
            return
        await self._quiet()
        await self._finish(transaction)
        if transaction.outcome is not Outcome.OK or not await self._has_ended(transaction):
            return
        partition, written = next(iter(batches.items()))
        await self._late_record("write after the end", partition, text, len(written))
        await self._late_offset(group, offset)
        await self._late("end the other way", end_request(self, committed=not transaction.commits), _code)

    async def write_after_timeout(
        self, batches: Batches, elsewhere: TopicPartition, group: str, offset: TopicPartition, text: str
    ) -> None:
        """Leaves the transaction open until the coordinator has aborted it, and goes on."""
        transaction = await self._open(batches)
        if transaction is None:
            return
        await self._quiet()
        if await self._was_fenced(list(batches)):
            self.history.end(transaction, Outcome.FAILED, "it was open for too long")
            await self._late_record("write after the timeout", elsewhere, text, 0)
            await self._late_offset(group, offset)
            await self._late("add after the timeout", add_partitions_request(self, [elsewhere]), add_partitions_codes)
            await self._late("commit after the timeout", end_request(self, committed=True), _code)
        else:
            self.history.end(transaction, Outcome.UNKNOWN, "it was not aborted")

    async def leave_open(self, batches: Batches, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Leaves a transaction with offsets open until the coordinator has aborted it, and writes nothing more."""
        transaction = await self._open(batches, group, offsets)
        if transaction is None:
            return
        if await self._was_fenced(list(batches)):
            self.history.end(transaction, Outcome.FAILED, "it was open for too long")
        else:
            self.history.end(transaction, Outcome.UNKNOWN, "it was not aborted")

    async def add_when_replaced(self, partition: TopicPartition) -> None:
        """Goes on when another producer has taken the id, or after it has expired."""
        await self._late("add when it was replaced", add_partitions_request(self, [partition]), add_partitions_codes)

    async def _open(
        self, batches: Batches, group: str = "", offsets: Mapping[TopicPartition, int] = MappingProxyType({})
    ) -> Transaction | None:
        """Begins a transaction with these records, and offsets. Returns None if that fails."""
        transaction = await self.begin()
        try:
            await self._fill(transaction, batches, group, offsets)
        except Refused as error:
            await self._quiet()
            self.history.end(transaction, Outcome.FAILED, str(error))
            return None
        return transaction

    async def _has_ended(self, transaction: Transaction) -> bool:
        """Whether EndTxn has been answered again in time: while the markers are written, the answer is another one."""
        request = end_request(self, committed=transaction.commits)
        request.producer_epoch = transaction.producer_epoch
        try:
            await self._ask(TRANSACTION, self.transactional_id, request, _code, self.end_version)
        except Refused:
            return False
        return True

    async def _was_fenced(self, partitions: Sequence[TopicPartition]) -> bool:
        """Asks for what the transaction has until the coordinator refuses. Returns whether it did in time.

        A coordinator that tries to abort may fail, and then nobody is fenced in transactions of version 2: the time
        counts since it last did not agree because it tried.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        while loop.time() < max(began, self._last_pending) + LONGEST_WAIT_S:
            await asyncio.sleep(ASK_EVERY_S)
            try:
                await self._ask(
                    TRANSACTION,
                    self.transactional_id,
                    add_partitions_request(self, partitions),
                    add_partitions_codes,
                )
            except Refused as error:
                return error.code in FENCED
        late = LateWrite(
            process=self.name, transactional_id=self.transactional_id, what=f"be open for {LONGEST_WAIT_S} s"
        )
        self.history.note(late)
        return False

    # --- late writes --------------------------------------------------------------------------------------------

    async def _late_record(
        self, what: str, partition: TopicPartition, text: str, sequence: int, *, epochs_before: int = 0
    ) -> LateWrite:
        late = self.history.begin(
            LateWrite(
                process=self.name, transactional_id=self.transactional_id, what=what, partition=partition, text=text
            )
        )
        await self._write(late, partition, text, sequence, epochs_before=epochs_before)
        return late

    async def _write(
        self, write: Operation, partition: TopicPartition, text: str, sequence: int, *, epochs_before: int = 0
    ) -> None:
        """Sends a record once."""
        leader = self.cluster.leader_of(partition)
        if leader is None:
            self.history.end(write, Outcome.FAILED, "no leader is known")
            return
        sent_ms = START_OF_TIME_MS + write.invoked_us // 1000
        batch = build_batch(
            [Record(offset=0, timestamp=sent_ms, key=None, value=f"{text} ".encode().ljust(RECORD_BYTES))],
            producer_id=self.state.producer_id,
            producer_epoch=max(self.state.epoch - epochs_before, 0),
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_batches(
            {partition: batch}, acks=-1, timeout_ms=TIMEOUT_MS, transactional_id=self.transactional_id
        )
        await self._outcome_of(write, self._send(leader.broker_id, request), _produced)

    def _send(self, broker_id: int, request: Message) -> Any:
        return self.cluster.ask_broker(broker_id, request, version=self.produce_version)

    async def _late_offset(self, group: str, partition: TopicPartition) -> None:
        request = txn_commit_request(self, group, {partition: 1 << 40})
        late = LateWrite(process=self.name, transactional_id=self.transactional_id, what="commit an offset late")
        asking = self.cluster.ask_coordinator(GROUP, group, request)
        await self._outcome_of(self.history.begin(late), asking, commit_codes)

    async def _late(self, what: str, request: Message, codes_of: Any) -> None:
        await self._late_request(what, TRANSACTION, self.transactional_id, request, None, codes_of)

    async def _late_request(
        self, what: str, kind: int, key: str, request: Message, version: int | None, codes_of: Any
    ) -> None:
        late = LateWrite(process=self.name, transactional_id=self.transactional_id, what=what)
        asking = self.cluster.ask_coordinator(kind, key, request, version=version)
        await self._outcome_of(self.history.begin(late), asking, codes_of)

    async def _outcome_of(self, late: Operation, asking: Any, codes_of: Any) -> None:
        try:
            answer = await asking
        except NotSent as error:
            self.history.end(late, Outcome.FAILED, str(error))
        except Unanswered as error:
            self.history.end(late, Outcome.UNKNOWN, str(error))
        else:
            codes = [ErrorCode.of(code) for code in codes_of(answer)]
            if all(code is ErrorCode.NONE for code in codes):
                self.history.end(late, Outcome.OK)
            else:
                is_certain = all(code in NO_EFFECT for code in codes)
                self.history.end(late, Outcome.FAILED if is_certain else Outcome.UNKNOWN, codes[0].name)


def _produced(answer: Any) -> list[int]:
    return [partition.error_code for topic in answer.responses for partition in topic.partition_responses]


def _code(answer: Any) -> list[int]:
    return [answer.error_code]
