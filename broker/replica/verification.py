"""Verifies that a transactional batch belongs to an open transaction. The transaction coordinator is asked before the
first batch of a transaction enters a partition. Otherwise a late batch (after its transaction ended, or from a client
that never added the partition) would start a transaction that nothing ever ends. (KIP-890, part 1)

(A) If the producer's transaction is already open in the partition, the batch is accepted: it belongs to that
    transaction until the marker arrives, and after the marker the coordinator is asked again.
(B) Otherwise the coordinator is asked. It answers synchronously on this thread, so that nothing can happen between its
    answer and the append; Kafka needs a verification guard for this.
(C) For a producer that is unknown here, the smallest refused sequence is recorded. Otherwise a batch after it would be
    accepted, as any sequence of an unknown producer is, and the refused batch could never be retried. (Kafka's
    VerificationStateEntry)

Source: Kafka's ReplicaManager.handleProduceAppend and AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.broker.replica.append_result import PartitionAppendResult
from odradek.broker.replica.hosted_partitions import HostedPartitions
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import BatchHeader, has_transactional_batch, read_batch_header
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import Clock

if TYPE_CHECKING:
    from odradek.storage.log import Log

IsOpenTransaction = Callable[[str, int, int, TopicPartition], ErrorCode]
"""Maps (transactional id, producer id, producer epoch, partition) to NONE, or to the reason why the transaction is not
open.
"""

PRODUCERS_CODE = {
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""Error codes that are replaced in produce responses: a producer retries after NOT_ENOUGH_REPLICAS, whatever its
version.
"""


class TransactionVerification:
    """`is_enabled` turns verification on (transaction.partition.verification.enable). While `is_open_transaction` is
    None, there is no coordinator to ask, and nothing is refused.
    """

    def __init__(self, partitions: HostedPartitions, clock: Clock) -> None:
        self._partitions = partitions
        self._clock = clock
        self.is_enabled = True
        self.is_open_transaction: IsOpenTransaction | None = None
        self.failures = 0
        """The number of batches refused since the start (Kafka's VerificationFailureRate)."""

    def refused(
        self, transactional_id: str, entries: Mapping[TopicPartition, bytes]
    ) -> dict[TopicPartition, PartitionAppendResult]:
        """Returns the errors of those batches of a Produce request that may not be appended: INVALID_TXN_STATE,
        NOT_ENOUGH_REPLICAS (retriable), INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH,
        OUT_OF_ORDER_SEQUENCE_NUMBER.

        Raises INVALID_PRODUCER_ID_MAPPING if the batches come from several producers.
        """
        if not self.is_enabled or self.is_open_transaction is None:
            return {}
        batches = {
            key: read_batch_header(records) for key, records in entries.items() if has_transactional_batch(records)
        }
        if len({(header.producer_id, header.producer_epoch) for header in batches.values()}) > 1:
            raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the batches come from more than one producer")
        refusals = {key: self._refusal(transactional_id, key, header) for key, header in batches.items()}
        return {key: refusal for key, refusal in refusals.items() if refusal is not None}

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic_partition: TopicPartition
    ) -> ErrorCode:
        """For batches that a coordinator writes within a client's transaction (TxnOffsetCommit): returns NONE, or the
        transaction coordinator's error.
        """
        partition = self._partitions.get(topic_partition)
        if not self.is_enabled or self.is_open_transaction is None or partition is None:
            return ErrorCode.NONE  # a missing partition is reported by the append
        if partition.log.producer_state.has_ongoing_transaction(producer_id):
            return ErrorCode.NONE
        error = self.is_open_transaction(transactional_id, producer_id, producer_epoch, topic_partition)
        self.failures += error is not ErrorCode.NONE
        return error

    def _refusal(self, transactional_id: str, key: TopicPartition, header: BatchHeader) -> PartitionAppendResult | None:
        if header.producer_id < 0:
            return None
        error = self.verify(transactional_id, header.producer_id, header.producer_epoch, key)
        partition = self._partitions.get(key)
        if error is not ErrorCode.NONE:
            if partition is not None:
                partition.log.producer_state.refused.note(header, self._clock.wall_ms())
            return _refusal(error)
        if partition is not None:
            return _out_of_order(partition.log, header)
        return None


def _refusal(error: ErrorCode) -> PartitionAppendResult:
    code = PRODUCERS_CODE.get(error, error)
    message = None
    if error is ErrorCode.INVALID_TXN_STATE:
        message = "the partition was not added to the transaction"
    elif code is ErrorCode.NOT_ENOUGH_REPLICAS:
        message = f"could not verify that the partition was added to the transaction: {error.name}"
    return PartitionAppendResult(code, error_message=message)


def _out_of_order(log: Log, header: BatchHeader) -> PartitionAppendResult | None:
    """Refuses a batch that follows a refused one (C)."""
    state = log.producer_state
    earliest = state.refused.earliest_sequence(header)
    if earliest is None or header.base_sequence <= earliest or header.producer_id in state.producers:
        return None
    return PartitionAppendResult(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        log_start_offset=log.log_start_offset,
        error_message=f"the batch starts with sequence {header.base_sequence}, but {earliest} was refused before",
    )
