"""The invariants of producers and transactions "by the book".

verified      What a producer writes outside its transaction is refused: to a partition that it has not added, after
              the end, after the coordinator has aborted the transaction (KIP-890, part 1).
unique        No two producers have the same producer id.
producer epochs  In the coordinator's log, states follow each other as they may. An epoch of a producer id never falls.
              A new producer has a higher one; so has a producer whose transaction the coordinator aborts, and each
              transaction of version 2.
decided       What the coordinator decides of a transaction is what its producer has asked for. If nobody has asked,
              it aborts.
last stable   No replica has a transaction that is open below its last stable offset.
replay        What coordinators have in memory is what their logs add up to: coordinator_logs.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from odradek.broker.coordinator.transaction.transaction import EPOCH_PER_TRANSACTION
from odradek.broker.coordinator.transaction.transaction_state import TransactionState
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.final_state import FinalState
from tests.simulation.history import History, Initialised, Outcome, Transaction
from tests.simulation.transaction_history import Differs, Identified, LateWrite, Logged, Unstable
from tests.simulation.violation import Violation

_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_PREPARE = {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
_COMPLETE = {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
_PREPARE_ABORT = TransactionState.PREPARE_ABORT
_AFTER = {
    _EMPTY: {_EMPTY, _ONGOING},
    _ONGOING: {_ONGOING, *_PREPARE},
    TransactionState.PREPARE_COMMIT: {TransactionState.COMPLETE_COMMIT},
    TransactionState.PREPARE_ABORT: {TransactionState.COMPLETE_ABORT},
    TransactionState.COMPLETE_COMMIT: {_EMPTY, _ONGOING},
    TransactionState.COMPLETE_ABORT: {_EMPTY, _ONGOING},
}
"""Which states may follow. What an append that failed has left in the log is followed by what the state before it
allows, or by itself."""


def late_writes_are_refused(history: History, final: FinalState) -> Iterator[Violation]:
    """verified"""
    texts = {record.text for log in final.logs.values() for record in log.records}
    for late in history.of(LateWrite):
        if late.outcome is Outcome.OK and late.text:
            yield Violation("verified", f"{late.text} was accepted in {late.partition}: {late.what}", (late,))
        elif late.outcome is Outcome.OK:
            yield Violation("verified", f"{late.process} was allowed to {late.what}", (late,))
        elif late.text and late.text in texts:
            yield Violation("verified", f"{late.text} is in the log of {late.partition}", (late,))


def producer_ids_are_unique(history: History, final: FinalState) -> Iterator[Violation]:
    """unique"""
    owners: dict[int, Identified | Initialised] = {}
    for answer in history.operations:
        if not isinstance(answer, Identified | Initialised) or answer.outcome is not Outcome.OK:
            continue
        owner = owners.setdefault(answer.producer_id, answer)
        if owner is answer:
            continue
        if not (
            isinstance(owner, Initialised)
            and isinstance(answer, Initialised)
            and owner.transactional_id == answer.transactional_id
        ):
            yield Violation("unique", f"producer id {answer.producer_id} was given twice", (owner, answer))


def epochs_grow_in_the_log(history: History, final: FinalState) -> Iterator[Violation]:
    """producer epochs"""
    before: dict[str, list[Logged]] = defaultdict(list)
    gaps: dict[TopicPartition, int] = {}
    """The first offset after what the log no longer had: of any id."""
    for logged in history.of(Logged):
        earlier = before[logged.transactional_id]
        if logged.skips:
            gaps[logged.partition] = logged.offset
        if logged.state is None:
            earlier.clear()
            continue
        if earlier:
            is_known = earlier[-1].offset >= gaps.get(logged.partition, 0)
            wrong = _wrong_step(earlier, logged) if is_known else _wrong_epoch(earlier[-1], logged)
            if wrong:
                yield Violation("producer epochs", f"{logged.describe()}, {wrong}", (earlier[-1], logged))
            if not is_known:
                earlier.clear()
        if earlier and earlier[-1].state is logged.state:
            earlier.pop()
        earlier.append(logged)
        del earlier[:-3]


def _wrong_step(earlier: list[Logged], logged: Logged) -> str:
    last = earlier[-1]
    allowed = {after for each in earlier if each.state is not None for after in _AFTER[each.state]}
    if logged.client_version >= EPOCH_PER_TRANSACTION:
        allowed.add(_PREPARE_ABORT)  # of nothing, as far as the coordinator knows
        raises = logged.state in _PREPARE and last.state not in _PREPARE and logged.producer_id == last.producer_id
        if raises and logged.producer_epoch <= last.producer_epoch:
            return f"and has not raised the epoch {last.producer_epoch}"
    if logged.state not in allowed and logged.state is not last.state:
        return f"after {[each.state.label for each in earlier if each.state is not None]}"
    if logged.producer_id != last.producer_id:
        return "" if logged.state is _EMPTY else f"and had producer id {last.producer_id}"
    begins_anew = logged.state is _EMPTY and last.state in _COMPLETE
    if begins_anew and logged.producer_epoch == last.producer_epoch:
        return "and had that epoch before"
    return _wrong_epoch(last, logged)


def _wrong_epoch(last: Logged, logged: Logged) -> str:
    falls = logged.producer_id == last.producer_id and logged.producer_epoch < last.producer_epoch
    return f"and had epoch {last.producer_epoch}" if falls else ""


def decisions_are_those_of_producers(history: History, final: FinalState) -> Iterator[Violation]:
    """decided"""
    asked: dict[tuple[int, int], list[Transaction]] = defaultdict(list)
    for transaction in history.of(Transaction):
        epoch = transaction.producer_epoch if transaction.decided_epoch < 0 else transaction.decided_epoch
        asked[transaction.producer_id, epoch].append(transaction)
    ongoing: dict[str, Logged] = {}
    for logged in history.of(Logged):
        if logged.state is _ONGOING:
            ongoing[logged.transactional_id] = logged
        if logged.state not in _PREPARE:
            continue
        commits = logged.state is TransactionState.PREPARE_COMMIT
        if any(
            each.commits is commits and 0 <= each.end_asked_us <= logged.invoked_us
            for each in asked[logged.producer_id, logged.producer_epoch]
        ):
            continue
        began = ongoing.get(logged.transactional_id)
        if commits:
            yield Violation("decided", f"{logged.describe()}, and its producer has not asked for that", (logged,))
        elif began is not None and began.producer_epoch >= logged.producer_epoch:
            text = f"{logged.describe()}, and its producer was not fenced"
            yield Violation("decided", text, (began, logged))


def nothing_is_open_below_the_last_stable_offset(history: History, final: FinalState) -> Iterator[Violation]:
    """last stable"""
    for unstable in history.of(Unstable):
        yield Violation("last stable", f"{unstable.process} {unstable.describe()}", (unstable,))


def memory_is_what_the_log_says(history: History, final: FinalState) -> Iterator[Violation]:
    """replay"""
    for differs in history.of(Differs):
        yield Violation("replay", f"{differs.process} {differs.describe()}", (differs,))
