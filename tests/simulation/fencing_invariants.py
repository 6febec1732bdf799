"""The invariants of those who were replaced: what they do afterwards is refused.

    fenced          The answer to InitProducerId ends what was done under the transactional id before. What another
                    producer sends in a transaction from then on, or the end of its transaction that it asks for, is
                    refused. No two answers give the same producer id and epoch, and a later epoch of an id is larger.
    generations     When a member has got its share of a generation, no commit in an earlier one is accepted that is
                    sent after that.

Kafka promises the second one only once the generation is in the coordinator's log: a coordinator that is lost before
may have given its number away, and the next one gives it again. The answer to SyncGroup comes after it is there; but a
new coordinator answers from all that its log has, as Kafka's does, and may be lost before that is replicated. Then the
group goes back: the answer that was given last counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.final_state import FinalState
from tests.simulation.history import Commit, History, Initialised, Outcome, Send, Synced, Transaction
from tests.simulation.violation import Violation


def earlier_producers_are_fenced(history: History, final: FinalState) -> Iterator[Violation]:
    """fenced"""
    by_id: dict[str, list[Initialised]] = defaultdict(list)
    for answer in history.of(Initialised):
        if answer.outcome is Outcome.OK:
            by_id[answer.transactional_id].append(answer)
    for answers in by_id.values():
        yield from _epochs_grow(answers)
    yield from _earlier_ones_are_refused(history, by_id)


def _epochs_grow(answers: list[Initialised]) -> Iterator[Violation]:
    for number, later in enumerate(answers):
        for earlier in answers[:number]:
            if later.producer_id != earlier.producer_id:
                continue
            is_after = earlier.ended_us <= later.invoked_us
            if later.producer_epoch == earlier.producer_epoch or (
                is_after and later.producer_epoch < earlier.producer_epoch
            ):
                epochs = f"epoch {later.producer_epoch} after {earlier.producer_epoch}"
                text = f"{later.transactional_id} was given {epochs} of producer {later.producer_id}"
                yield Violation("fenced", text, (earlier, later))
                return


def _earlier_ones_are_refused(history: History, by_id: dict[str, list[Initialised]]) -> Iterator[Violation]:
    for operation in history.operations:
        if operation.outcome is not Outcome.OK:
            continue
        transaction = operation.transaction if isinstance(operation, Send) else operation
        if not isinstance(transaction, Transaction):
            continue
        asked_us = operation.end_asked_us if isinstance(operation, Transaction) else operation.invoked_us
        successor = _successor(transaction, by_id[transaction.transactional_id], asked_us)
        if successor is not None:
            text = f"{transaction.process} was accepted under {transaction.transactional_id} after"
            yield Violation("fenced", f"{text} {successor.process} had begun", (successor, operation))


def _successor(transaction: Transaction, answers: list[Initialised], asked_us: int) -> Initialised | None:
    """Returns the first producer that was given the id after the one of this transaction, and before `asked_us`."""
    own = [each for each in answers if each.process == transaction.process and each.ended_us <= transaction.invoked_us]
    if not own:
        return None
    return next(
        (
            each
            for each in answers
            if each.process != transaction.process
            and each.invoked_us >= own[-1].ended_us
            and 0 <= each.ended_us < asked_us
        ),
        None,
    )


def earlier_generations_are_refused(history: History, final: FinalState) -> Iterator[Violation]:
    """generations"""
    newest: dict[str, Synced] = {}
    for operation in history.operations:
        if isinstance(operation, Synced):
            newest[operation.group] = operation
        elif isinstance(operation, Commit) and operation.outcome is Outcome.OK and operation.generation >= 0:
            known = newest.get(operation.group)
            if known is not None and known.generation > operation.generation:
                text = f"{operation.process} committed in generation {operation.generation} of {operation.group}"
                yield Violation("generations", f"{text} after {known.generation} had begun", (known, operation))
