"""The rules of the transaction coordinator: what a producer may do, and the error that it gets otherwise.

While a change of the id is pending, such as a completion whose markers are being written, requests are refused with
CONCURRENT_TRANSACTIONS, and clients retry.

Each rule reads one `Transaction`. It prepares a transit, raises ProtocolError with the code for the client, or returns
None if nothing changes. Nothing here waits, writes, or reads a clock. The client's version of transactions is that of
its request: clients of several versions may use one transactional id.

The rules raise PRODUCER_FENCED. The handlers replace it by INVALID_PRODUCER_EPOCH in request versions without it.

Source: Kafka's `TransactionCoordinator`; KIP-98, KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from odradek.broker.coordinator.transaction.transaction import (
    EPOCH_PER_TRANSACTION,
    LARGEST_EPOCH,
    NO_PRODUCER_EPOCH,
    ProducerIdAndEpoch,
    Transaction,
    Transit,
)
from odradek.broker.coordinator.transaction.transaction_state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    COMPLETION,
    EMPTY,
    ONGOING,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition


@mypyc_attr(native_class=False)
class ProducerIdNeeded(Exception):
    """The rule needs a new producer id. Call it again with one."""


ENDED_SO = frozenset({(COMPLETE_COMMIT, True), (COMPLETE_ABORT, False)})
"""The pairs (state, whether EndTxn commits) for which EndTxn is a retry and has no effect."""


class Retried(NamedTuple):
    """EndTxn repeats a request that has had its effect. The client continues with this producer."""

    producer_id: int
    producer_epoch: int


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
    transaction: Transaction | None,
    producer: ProducerIdAndEpoch,
    partitions: Set[TopicPartition],
    now_ms: int,
    client_version: int = 0,
) -> Transit | None:
    """AddPartitionsToTxn and AddOffsetsToTxn. Returns None if the transaction already contains all partitions.

    A producer may use the id with which it continues while the end of its last transaction is pending, so that is
    checked first. Raises CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
    """
    if transaction is not None and transaction.pending is not None:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    found = _of_producer(transaction, producer)
    if found.state == ONGOING and partitions <= found.partitions:
        return None
    return found.prepare_add(partitions, now_ms, client_version)


def end(
    transaction: Transaction | None,
    producer: ProducerIdAndEpoch,
    committed: bool,
    now_ms: int,
    client_version: int = 0,
    new_producer_id: int | None = None,
) -> Transit | Retried:
    """EndTxn. `new_producer_id` is used if the epochs of the current id are exhausted.

    Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE, ProducerIdNeeded.
    """
    if client_version >= EPOCH_PER_TRANSACTION:
        return _end_of_epoch(transaction, producer, committed, now_ms, new_producer_id)
    found = _of_producer(transaction, producer)
    if found.pending is not None:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if found.state == ONGOING:
        return found.prepare_end(committed, now_ms)
    if (found.state, committed) not in ENDED_SO:
        raise ProtocolError(ErrorCode.INVALID_TXN_STATE)
    return Retried(found.producer_id, found.producer_epoch)


def _end_of_epoch(
    transaction: Transaction | None,
    producer: ProducerIdAndEpoch,
    committed: bool,
    now_ms: int,
    new_producer_id: int | None,
) -> Transit | Retried:
    """EndTxn of version 2. A transaction without partitions can be aborted: the client cannot know whether its batches
    have arrived. Only what has ended in version 2 can be asked for again: the end in an earlier version bears the epoch
    of another producer, which has fenced this one.
    """
    if transaction is None:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.pending is not None:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    has_moved_on = _has_moved_on(transaction, producer)
    if transaction.producer_id != producer.producer_id and not has_moved_on:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    state, epoch = transaction.state, transaction.producer_epoch
    ends = epoch == producer.producer_epoch and not state.is_prepared
    has_ended = state not in (EMPTY, ONGOING) and transaction.client_version >= EPOCH_PER_TRANSACTION
    repeats = has_ended and (has_moved_on or epoch == producer.producer_epoch + 1)
    if not ends and not repeats:
        raise _fenced(transaction, producer)
    if ends and (state == ONGOING or not committed):
        return _ended_epoch(transaction, committed, now_ms, new_producer_id)
    if repeats and (state, committed) in ENDED_SO:
        return Retried(transaction.producer_id, epoch)
    if state.is_prepared and (COMPLETION[state], committed) in ENDED_SO:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    raise ProtocolError(ErrorCode.INVALID_TXN_STATE)


def _ended_epoch(transaction: Transaction, committed: bool, now_ms: int, new_producer_id: int | None) -> Transit:
    if not transaction.is_exhausted:
        return transaction.prepare_end_of_epoch(committed, now_ms)
    if new_producer_id is None:
        raise ProducerIdNeeded
    return transaction.prepare_end_of_epoch(committed, now_ms, new_producer_id)


def _has_moved_on(transaction: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """Whether the producer had the last epoch of the previous producer id, and goes on with the current one."""
    return (
        transaction.previous_producer_id == producer.producer_id
        and producer.producer_epoch == LARGEST_EPOCH - 1
        and transaction.producer_epoch == 0
    )


def fence(transaction: Transaction, now_ms: int, version: int, new_producer_id: int | None = None) -> Transit:
    """Aborts the open transaction and fences its producer, in the cluster's version of transactions. No change may be
    pending. `new_producer_id`: see `end`. Raises ProducerIdNeeded.
    """
    if version < EPOCH_PER_TRANSACTION:
        return transaction.prepare_fence(now_ms)
    return _ended_epoch(transaction, False, now_ms, new_producer_id)


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
