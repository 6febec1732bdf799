"""The rules of the transaction coordinator: what a producer may do, and the error that it gets otherwise.

While a change of the id is pending, such as a completion whose markers are being written, requests are refused with
CONCURRENT_TRANSACTIONS, and clients retry.

Each rule reads one `Transaction`. It prepares a transit, raises ProtocolError with the code for the client, or returns
None if nothing changes. Nothing here waits, writes, or reads a clock.

The rules raise PRODUCER_FENCED. The handlers replace it by INVALID_PRODUCER_EPOCH in request versions without it.

Source: Kafka's `TransactionCoordinator`; KIP-98, KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from collections.abc import Set

from odradek.broker.coordinator.transaction.transaction import (
    LARGEST_EPOCH,
    NO_PRODUCER_EPOCH,
    ProducerIdAndEpoch,
    Transaction,
    Transit,
)
from odradek.broker.coordinator.transaction.transaction_state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition


class ProducerIdNeeded(Exception):
    """The rule needs a new producer id. Call it again with one."""


ENDED_SO = frozenset({(COMPLETE_COMMIT, True), (COMPLETE_ABORT, False)})
"""The pairs (state, whether EndTxn commits) for which EndTxn is a retry and has no effect."""


def initialize(
    transaction: Transaction,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    new_producer_id: int | None,
    now_ms: int,
) -> Transit | None:
    """InitProducerId. `expected` is set by a producer that resumes after an error (KIP-360). `new_producer_id` is used
    if the epochs of the current id are exhausted.

    Returns None if a transaction is open: the caller fences and aborts it first, and answers CONCURRENT_TRANSACTIONS.
    Raises CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, ProducerIdNeeded.
    """
    if transaction.pending is not None:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_retry = _is_retry(transaction, expected)
    if not is_retry and not _may_go_on(transaction, expected):
        raise _fenced(transaction, expected)
    if transaction.state == ONGOING:
        if is_retry:
            raise _fenced(transaction, expected)
        return None
    if is_retry:
        last_epoch = transaction.last_producer_epoch
        return transaction.prepare_epoch(transaction.producer_epoch, last_epoch, timeout_ms, now_ms)
    last_epoch = NO_PRODUCER_EPOCH if expected is None else transaction.producer_epoch
    if not transaction.is_exhausted:
        return transaction.prepare_epoch(transaction.producer_epoch + 1, last_epoch, timeout_ms, now_ms)
    if new_producer_id is None:
        raise ProducerIdNeeded
    return transaction.prepare_producer_id(new_producer_id, last_epoch, timeout_ms, now_ms)


def _may_go_on(transaction: Transaction, expected: ProducerIdAndEpoch | None) -> bool:
    """Whether the producer may use the id: a new one always may, a resuming one if it is the current producer or the id
    has no epoch yet.
    """
    if expected is None or transaction.producer_epoch == NO_PRODUCER_EPOCH:
        return True
    return expected == (transaction.producer_id, transaction.producer_epoch)


def _is_retry(transaction: Transaction, expected: ProducerIdAndEpoch | None) -> bool:
    """Whether the producer repeats a request whose response was lost. The InitProducerId of another producer clears the
    last epoch, so none has come in between.
    """
    if expected is None or transaction.last_producer_epoch == NO_PRODUCER_EPOCH:
        return False
    return expected == (transaction.last_producer_id, transaction.last_producer_epoch)


def add_partitions(
    transaction: Transaction | None, producer: ProducerIdAndEpoch, partitions: Set[TopicPartition], now_ms: int
) -> Transit | None:
    """AddPartitionsToTxn and AddOffsetsToTxn. Returns None if the transaction already contains all partitions.

    Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    found = _of_producer(transaction, producer)
    if found.pending is not None:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if found.state == ONGOING and partitions <= found.partitions:
        return None
    return found.prepare_add(partitions, now_ms)


def end(transaction: Transaction | None, producer: ProducerIdAndEpoch, committed: bool, now_ms: int) -> Transit | None:
    """EndTxn. Returns None if the transaction has already ended that way.

    Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    found = _of_producer(transaction, producer)
    if found.pending is not None:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if found.state == ONGOING:
        return found.prepare_end(committed, now_ms)
    if (found.state, committed) not in ENDED_SO:
        raise ProtocolError(ErrorCode.INVALID_TXN_STATE)
    return None


def verify(transaction: Transaction | None, producer: ProducerIdAndEpoch) -> Set[TopicPartition]:
    """Returns the partitions of the producer's open transaction (KIP-890).

    Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    found = _of_producer(transaction, producer)
    if found.state.is_prepared:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return found.partitions


def _of_producer(transaction: Transaction | None, producer: ProducerIdAndEpoch) -> Transaction:
    if transaction is None or transaction.producer_id != producer.producer_id:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer.producer_epoch or producer.producer_epoch == LARGEST_EPOCH:
        raise _fenced(transaction, producer)
    return transaction


def _fenced(transaction: Transaction, producer: ProducerIdAndEpoch | None) -> ProtocolError:
    assert producer is not None
    text = (
        f"{transaction} belongs to producer {transaction.producer_id} with epoch {transaction.producer_epoch}, not to "
        f"{producer.producer_id} with epoch {producer.producer_epoch}"
    )
    return ProtocolError(ErrorCode.PRODUCER_FENCED, text)
