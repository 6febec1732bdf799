"""The states of a transactional id and all legal transitions.

| state | what it means |
|---|---|
| Empty | A producer has an id and epoch; no transaction is open. |
| Ongoing | A transaction is open; each partition is recorded here before anything is written to it. |
| PrepareCommit, PrepareAbort | The decision is in the log; markers are being written. |
| CompleteCommit, CompleteAbort | Every partition has its marker. |
| PrepareEpochFence | From Ongoing to PrepareAbort with a higher epoch: the producer is fenced. Never in the log. |
| Dead | The id has expired and is deleted. Never in the log: a tombstone is written instead. |

The numbers are those in the log; the names are those in responses to clients. Source: Kafka's `TransactionState`
(`TransactionMetadata.scala`); KIP-98, KIP-360, KIP-664, KIP-890.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """A state, by its number in `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name in DescribeTransactions and ListTransactions responses."""
        return LABELS[self]

    @property
    def is_prepared(self) -> bool:
        """Whether markers must be written."""
        return self in PREPARED

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open: a new one may begin, and the id may expire."""
        return self in IDLE


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD
PREPARE_EPOCH_FENCE = TransactionState.PREPARE_EPOCH_FENCE

LABELS = {state: "".join(map(str.capitalize, state.name.split("_"))) for state in TransactionState}
BY_LABEL = {label: state for state, label in LABELS.items()}
PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
IDLE = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
IN_THE_LOG = frozenset(TransactionState) - {DEAD, PREPARE_EPOCH_FENCE}
"""The states that a record may contain."""

_BEGIN = "AddPartitionsToTxn, AddOffsetsToTxn; Produce, TxnOffsetCommit"
_INITIALIZE = "InitProducerId"
_EXPIRE = "not used for transactional.id.expiration.ms"
_COMPLETE = "all markers are written"
_FENCE = "InitProducerId of another producer, or transaction.timeout.ms has expired"
_ABORT_NOTHING = "EndTxn: abort, of a client with an epoch for each transaction"

MOVES: dict[tuple[TransactionState, TransactionState], str] = {
    (EMPTY, EMPTY): _INITIALIZE,
    (EMPTY, ONGOING): _BEGIN,
    (EMPTY, PREPARE_ABORT): _ABORT_NOTHING,
    (EMPTY, DEAD): _EXPIRE,
    (ONGOING, ONGOING): _BEGIN,
    (ONGOING, PREPARE_COMMIT): "EndTxn: commit",
    (ONGOING, PREPARE_ABORT): f"EndTxn: abort; if transaction.version is 2, also {_FENCE}",
    (ONGOING, PREPARE_EPOCH_FENCE): f"{_FENCE}, unless transaction.version is 2 and a next epoch is left",
    (PREPARE_EPOCH_FENCE, PREPARE_ABORT): "immediately, with the next epoch",
    (PREPARE_COMMIT, COMPLETE_COMMIT): _COMPLETE,
    (PREPARE_ABORT, COMPLETE_ABORT): _COMPLETE,
    (COMPLETE_COMMIT, EMPTY): _INITIALIZE,
    (COMPLETE_COMMIT, ONGOING): _BEGIN,
    (COMPLETE_COMMIT, PREPARE_ABORT): _ABORT_NOTHING,
    (COMPLETE_COMMIT, DEAD): _EXPIRE,
    (COMPLETE_ABORT, EMPTY): _INITIALIZE,
    (COMPLETE_ABORT, ONGOING): _BEGIN,
    (COMPLETE_ABORT, PREPARE_ABORT): _ABORT_NOTHING,
    (COMPLETE_ABORT, DEAD): _EXPIRE,
}
"""The cause of each legal transition, by (from, to)."""
COMPLETION = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}


class IllegalMove(RuntimeError):
    """A transition that is not in the table: a bug in the broker, never a client's error."""


def check_move(old: TransactionState, new: TransactionState) -> None:
    """Raises IllegalMove if the table has no such transition."""
    if (old, new) not in MOVES:
        raise IllegalMove(f"no transaction goes from {old.label} to {new.label}")
