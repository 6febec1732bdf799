"""Planted bugs in transactions of version 2: see planted.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.broker.coordinator.transaction import rules, shard
from odradek.broker.coordinator.transaction.records import read_transaction
from odradek.broker.coordinator.transaction.rules import Retried
from odradek.broker.coordinator.transaction.transaction import ProducerIdAndEpoch, Transaction, Transit
from odradek.protocol.batch_header import BatchHeader
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage.producers import producer_state
from odradek.storage.producers.producer_state import ProducerState
from odradek.storage.producers.producer_state_entry import ProducerStateEntry
from tests.simulation.planted_in_sessions import Replace


def _keep_the_epoch(replace: Replace) -> None:
    def keep(transaction: Transaction, committed: bool, now_ms: int, new_producer_id: int | None) -> Transit:
        return transaction.prepare_end(committed, now_ms)._replace(client_version=2)

    replace(rules, "_ended_epoch", keep)


def _any_epoch(replace: Replace) -> None:
    replace(ProducerState, "_check_epoch", staticmethod(lambda header, known_epoch: None))
    replace(ProducerState, "knows_newer_epoch", lambda self, producer_id, producer_epoch: False)


def _end_once(replace: Replace) -> None:
    end = rules._end_of_epoch

    def end_once(*arguments: Any) -> Transit | Retried:
        found = end(*arguments)
        if isinstance(found, Retried):
            raise ProtocolError(ErrorCode.INVALID_TXN_STATE)
        return found

    replace(rules, "_end_of_epoch", end_once)


def _commit_nothing(replace: Replace) -> None:
    end = rules._end_of_epoch

    def end_nothing(
        transaction: Transaction | None, producer: ProducerIdAndEpoch, committed: bool, *how: Any
    ) -> Transit | Retried:
        is_nothing = (
            transaction is not None
            and transaction.state.is_idle
            and producer == (transaction.producer_id, transaction.producer_epoch)
        )
        return end(transaction, producer, committed and not is_nothing, *how)

    replace(rules, "_end_of_epoch", end_nothing)


def _begin_in_the_midst(replace: Replace) -> None:
    check = producer_state._check_sequence

    def check_in_the_epoch(header: BatchHeader, entry: ProducerStateEntry) -> None:
        if header.producer_epoch == entry.producer_epoch:
            check(header, entry)

    replace(producer_state, "_check_sequence", check_in_the_epoch)


def _forget_the_version(replace: Replace) -> None:
    def read(record: Any) -> tuple[str, Transit | None]:
        transactional_id, transit = read_transaction(record)
        return transactional_id, None if transit is None else transit._replace(client_version=0)

    replace(shard, "read_transaction", read)


NEWER_TRANSACTION_BUGS: Mapping[str, Callable[[Replace], None]] = {
    "the end of a transaction keeps its epoch": _keep_the_epoch,
    "records are accepted in any epoch": _any_epoch,
    "the end of a transaction is not given again": _end_once,
    "an epoch may begin in the midst": _begin_in_the_midst,
    "nothing can be committed": _commit_nothing,
    "the version of a transaction is not loaded": _forget_the_version,
}
"""How to plant each bug."""
