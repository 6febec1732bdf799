"""What a producer may do, and what it is told when it may not: the rules of the transaction coordinator.

A change of the id that is on its way, such as a completion whose markers are being written, is waited for: clients
come again at CONCURRENT_TRANSACTIONS.

Each rule looks at one `Transaction` and either prepares a transit, or raises ProtocolError with the code for the
client, or returns None: it is so already, and the answer is NONE. Nothing here waits, writes, or knows a clock.

PRODUCER_FENCED is said here; clients whose request's version does not know it get INVALID_PRODUCER_EPOCH instead,
which is the handlers' business.

Source: Kafka's `TransactionCoordinator`; KIP-98, KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from collections.abc import Set

from odradek.broker.coordinator.transaction.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
)
from odradek.broker.coordinator.transaction.transaction import (
    LARGEST_EPOCH,
    NO_PRODUCER_EPOCH,
    ProducerIdAndEpoch,
    Transaction,
    Transit,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition


class ProducerIdNeeded(Exception):
    """The rule needs a producer id that nobody has: ask again with one."""


ENDED_SO = frozenset({(COMPLETE_COMMIT, True), (COMPLETE_ABORT, False)})
"""State, and whether EndTxn asks for a commit: a retry of what has been done."""


def initialize(
    transaction: Transaction,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    new_producer_id: int | None,
    now_ms: int,
) -> Transit | None:
    """InitProducerId. `expected`: the producer that goes on after an error (KIP-360). `new_producer_id`: one to use if
    need be.

    None: a transaction is open, and must be fenced and aborted first (CONCURRENT_TRANSACTIONS then). Raises
    CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, ProducerIdNeeded.
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
    """A new producer always may; one that goes on if it is the id's, or the id has none yet."""
    if expected is None or transaction.producer_epoch == NO_PRODUCER_EPOCH:
        return True
    return expected == (transaction.producer_id, transaction.producer_epoch)


def _is_retry(transaction: Transaction, expected: ProducerIdAndEpoch | None) -> bool:
    """Whether the producer went on before, and its answer was lost. No other has come since: that forgets the last."""
    if expected is None or transaction.last_producer_epoch == NO_PRODUCER_EPOCH:
        return False
    return expected == (transaction.last_producer_id, transaction.last_producer_epoch)


def add_partitions(
    transaction: Transaction | None, producer: ProducerIdAndEpoch, partitions: Set[TopicPartition], now_ms: int
) -> Transit | None:
    """AddPartitionsToTxn and AddOffsetsToTxn. None: they are all in it.

    Raises INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    found = _of_producer(transaction, producer)
    if found.pending is not None:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if found.state == ONGOING and partitions <= found.partitions:
        return None
    return found.prepare_add(partitions, now_ms)


def end(transaction: Transaction | None, producer: ProducerIdAndEpoch, committed: bool, now_ms: int) -> Transit | None:
    """EndTxn. None: it has ended so.

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
    """The partitions that the producer's open transaction has (KIP-890).

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
