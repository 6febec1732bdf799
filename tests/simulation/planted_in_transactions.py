"""Planted bugs in producers and transactions: see planted.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.broker.controller.producer_id_blocks import ProducerIdBlock, ProducerIdBlocks
from odradek.broker.coordinator.transaction import rules, timeouts
from odradek.broker.coordinator.transaction.coordinator import Answer, TransactionCoordinator
from odradek.broker.coordinator.transaction.marker_writing import OUTCOMES, Completion, MarkerWriting, Outcome
from odradek.broker.coordinator.transaction.records import read_transaction
from odradek.broker.coordinator.transaction.shard import TransactionShard
from odradek.broker.coordinator.transaction.transaction import ProducerIdAndEpoch, Transaction, Transit
from odradek.broker.coordinator.transaction.transaction_state import COMPLETION, ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from odradek.broker.handlers.offsets import OffsetHandlers
from odradek.broker.replica.leader.verification import TransactionVerification
from odradek.protocol.batch_header import BatchHeader
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.producers.producer_state import ProducerState
from tests.simulation.planted_in_sessions import Replace


def _any_coordinator(replace: Replace) -> None:
    check = ProducerState.check_marker
    replace(ProducerState, "check_marker", lambda self, header, epoch, *version: check(self, header, 1 << 30, *version))


def _unverified_records(replace: Replace) -> None:
    replace(TransactionVerification, "refused", lambda self, *arguments, **options: {})


def _unverified_offsets(replace: Replace) -> None:
    replace(OffsetHandlers, "_verify_transaction", lambda self, *arguments: None)


def _forget_decisions(replace: Replace) -> None:
    replace(TransactionCoordinator, "_go_on", lambda self, shard: None)


def _abort_what_was_committed(replace: Replace) -> None:
    go_on = TransactionCoordinator._go_on

    def abort(self: TransactionCoordinator, shard: TransactionShard) -> None:
        for transaction in shard.prepared():
            if transaction.state == PREPARE_COMMIT:
                transaction.state = PREPARE_ABORT
        go_on(self, shard)

    replace(TransactionCoordinator, "_go_on", abort)


def _do_not_fence(replace: Replace) -> None:
    def keep(transaction: Transaction, now_ms: int, *_: Any) -> Transit:
        return transaction.prepare_end(False, now_ms)

    replace(rules, "fence", keep)


def _never_late(replace: Replace) -> None:
    replace(timeouts, "_is_late", lambda transaction, now_ms: False)


def _blocks_in_memory(replace: Replace) -> None:
    allocate = ProducerIdBlocks.allocate
    last: dict[ProducerIdBlocks, ProducerIdBlock] = {}

    async def go_on(self: ProducerIdBlocks, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        before = last.get(self)
        if before is None:
            last[self] = await allocate(self, broker_id, broker_epoch)
        else:
            last[self] = ProducerIdBlock(before.first + before.size, before.size)
        return last[self]

    replace(ProducerIdBlocks, "allocate", go_on)


def _unreplicated_markers_count(replace: Replace) -> None:
    apply_marker = ProducerState.apply_marker

    def apply(self: ProducerState, header: BatchHeader, *marker: Any) -> Any:
        aborted = apply_marker(self, header, *marker)
        self.unreplicated.clear()
        return aborted

    replace(ProducerState, "apply_marker", apply)


def _unwritten_markers_count(replace: Replace) -> None:
    answered = MarkerWriting._answered

    def believe(self: MarkerWriting, completion: Completion, key: TopicPartition, code: ErrorCode) -> None:
        is_fenced = OUTCOMES.get(code) is Outcome.FENCED
        answered(self, completion, key, code if is_fenced else ErrorCode.NONE)

    replace(MarkerWriting, "_answered", believe)


def _add_in_memory(replace: Replace) -> None:
    change = TransactionCoordinator._change

    def change_in_memory(
        self: TransactionCoordinator,
        shard: TransactionShard,
        transaction: Transaction,
        transit: Transit,
        reason: str,
        done: Answer,
        **options: bool,
    ) -> None:
        if transaction.state == ONGOING == transit.state:
            self._take(shard, transaction, transit, reason)
            done(None)
        else:
            change(self, shard, transaction, transit, reason, done, **options)

    replace(TransactionCoordinator, "_change", change_in_memory)


def _anybody_ends(replace: Replace) -> None:
    end = rules.end

    def end_for_anybody(
        transaction: Transaction | None, producer: ProducerIdAndEpoch, *how: Any
    ) -> Transit | rules.Retried:
        if transaction is not None and transaction.state == ONGOING:
            producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        return end(transaction, producer, *how)

    replace(rules, "end", end_for_anybody)


def _skip_completions(replace: Replace) -> None:
    replay = TransactionShard.replay

    def skip(self: TransactionShard, record: Any, **place: int) -> None:
        transit = read_transaction(record)[1]
        if transit is None or transit.state not in COMPLETION.values():
            replay(self, record, **place)

    replace(TransactionShard, "replay", skip)


TRANSACTION_BUGS: Mapping[str, Callable[[Replace], None]] = {
    "markers of an earlier coordinator are accepted": _any_coordinator,
    "records are written without verification": _unverified_records,
    "offsets are committed without verification": _unverified_offsets,
    "a decision in the log is not carried out": _forget_decisions,
    "a commit in the log is carried out as an abort": _abort_what_was_committed,
    "a timeout does not fence the producer": _do_not_fence,
    "a transaction may be open for ever": _never_late,
    "blocks of producer ids are not stored": _blocks_in_memory,
    "a transaction is stable before its marker is replicated": _unreplicated_markers_count,
    "markers that could not be written count": _unwritten_markers_count,
    "partitions are added in memory alone": _add_in_memory,
    "a replaced producer may end the transaction": _anybody_ends,
    "completions are not loaded": _skip_completions,
}
"""How to plant each bug."""
