"""Verifies that a transactional batch belongs to an open transaction. The transaction coordinator is asked before the
first batch of a transaction enters a partition. Otherwise a late batch (after its transaction ended, or from a client
that never added the partition) would start a transaction that nothing ever ends. (KIP-890, part 1)

(A) If the producer's transaction is already open in the partition, the batch is accepted: it belongs to that
    transaction until the marker arrives, and after the marker the coordinator is asked again.
(B) Otherwise the coordinator is asked. A coordinator on this broker answers synchronously on this thread, so that
    nothing can happen between its answer and the append. A coordinator on another broker is asked with a
    `VerificationRequest` while the client's request waits. Its answer is void if meanwhile a marker of the producer has
    ended the transaction, or if this broker has lost its leadership of the partition, even if it is the leader again:
    then another leader may have written the marker. (Kafka's VerificationGuard)
(C) For a producer that is unknown here, the smallest refused sequence is recorded. Otherwise a batch after it would be
    accepted, as any sequence of an unknown producer is, and the refused batch could never be retried. (Kafka's
    VerificationStateEntry)

Source: Kafka's ReplicaManager.handleProduceAppend and AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from odradek.broker.replica.leader.appends import PartitionAppendResult
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import BatchHeader, has_transactional_batch, read_batch_header
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import Clock

if TYPE_CHECKING:
    from odradek.broker.replica.partition.partition import Partition
    from odradek.storage.log.log import Log

IsOpenTransaction = Callable[[str, int, int, TopicPartition], ErrorCode]
"""Maps (transactional id, producer id, producer epoch, partition) to NONE, or to the reason why the transaction is not
open.
"""


class VerificationRequest:
    """What the `coordinator`, another broker, is asked about one producer in some partitions, and its `answers`. `led`
    has, for each partition, what this broker leads: the partition and the leader epoch.
    """

    __slots__ = ("answers", "coordinator", "led", "producer_epoch", "producer_id", "transactional_id")

    def __init__(
        self,
        coordinator: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        led: dict[TopicPartition, tuple[Partition, int]],
    ) -> None:
        self.coordinator = coordinator
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.led = led
        self.answers: dict[TopicPartition, ErrorCode] = {}

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(self.led)

    def answer_for(self, partition: Partition) -> ErrorCode | None:
        """Returns the answer about a partition that this broker leads; None if there is none, or it is void (B)."""
        key = partition.topic_partition
        if self.led.get(key) != (partition, partition.leader_epoch):
            return None
        return self.answers.get(key)


AskCoordinator = Callable[[VerificationRequest], Awaitable[Mapping[TopicPartition, ErrorCode]]]
"""Asks the coordinator on another broker. Returns NONE or an error for each partition; raises nothing."""
Elsewhere = Callable[[str], int | None]
"""Returns the other broker that coordinates a transactional id; None if this one does, or none now."""

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
    """Nothing is refused while `is_enabled` returns False (transaction.partition.verification.enable), and before there
    are coordinators to ask.
    """

    def __init__(self, partitions: HostedPartitions, clock: Clock, *, is_enabled: Callable[[], bool]) -> None:
        self._partitions = partitions
        self._clock = clock
        self._is_enabled = is_enabled
        self.is_open_transaction: IsOpenTransaction | None = None
        self.elsewhere: Elsewhere = lambda _transactional_id: None
        self.ask: AskCoordinator | None = None
        self._unsettled: dict[tuple[TopicPartition, int], list[VerificationRequest]] = {}
        """Those that are not settled yet, by partition and producer id."""
        self.failures = 0
        """The number of batches refused since the start (Kafka's VerificationFailureRate)."""

    def ask_coordinators(
        self, is_open_transaction: IsOpenTransaction, elsewhere: Elsewhere, ask: AskCoordinator
    ) -> None:
        """Asks these from now on. This broker's coordinator (`is_open_transaction`) writes through the replica manager,
        and so can be made only after it.
        """
        self.is_open_transaction = is_open_transaction
        self.elsewhere, self.ask = elsewhere, ask

    def needed(self, transactional_id: str, entries: Mapping[TopicPartition, bytes]) -> VerificationRequest | None:
        """Returns what another broker must be asked before the batches are appended; None if nothing. Raises as
        `refused` does. The caller lets `answer` ask, and calls `settle` in the end.
        """
        coordinator = self._other_coordinator(transactional_id)
        if coordinator is None:
            return None
        batches = _transactional_batches(entries)
        header = next(iter(batches.values()), None)
        if header is None or header.producer_id < 0:
            return None
        return self._needed(coordinator, transactional_id, header.producer_id, header.producer_epoch, batches)

    def needed_for_commit(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic_partition: TopicPartition
    ) -> VerificationRequest | None:
        """As `needed`, before a coordinator verifies a client's transaction with `verify`."""
        coordinator = self._other_coordinator(transactional_id)
        if coordinator is None:
            return None
        return self._needed(coordinator, transactional_id, producer_id, producer_epoch, (topic_partition,))

    def _other_coordinator(self, transactional_id: str) -> int | None:
        """Returns the broker to ask, None if there is none."""
        if not self._is_enabled() or self.ask is None:
            return None
        return self.elsewhere(transactional_id)

    def _needed(
        self,
        coordinator: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        keys: Iterable[TopicPartition],
    ) -> VerificationRequest | None:
        led: dict[TopicPartition, tuple[Partition, int]] = {}
        for key in keys:
            partition = self._led_without_transaction(key, producer_id)
            if partition is not None:
                led[key] = (partition, partition.leader_epoch)
        if not led:
            return None
        to_verify = VerificationRequest(coordinator, transactional_id, producer_id, producer_epoch, led)
        for key in led:
            self._unsettled.setdefault((key, producer_id), []).append(to_verify)
        return to_verify

    def answered(self, to_verify: VerificationRequest, answers: Mapping[TopicPartition, ErrorCode]) -> None:
        """Notes the other broker's answers."""
        for key in to_verify.led:
            if to_verify in self._unsettled.get((key, to_verify.producer_id), ()):
                to_verify.answers[key] = answers.get(key, ErrorCode.NETWORK_EXCEPTION)
            else:
                to_verify.answers[key] = ErrorCode.INVALID_TXN_STATE  # a marker has ended the transaction

    def settle(self, to_verify: VerificationRequest) -> None:
        """Forgets the request: its answers were used, or are not needed."""
        for key in to_verify.led:
            place = (key, to_verify.producer_id)
            waiting = self._unsettled.get(place, [])
            if to_verify in waiting:
                waiting.remove(to_verify)
            if not waiting:
                self._unsettled.pop(place, None)

    def marker_written(self, topic_partition: TopicPartition, producer_id: int) -> None:
        """A marker has ended the producer's transaction: answers about it are void (B)."""
        for to_verify in self._unsettled.pop((topic_partition, producer_id), ()):
            if topic_partition in to_verify.answers:
                to_verify.answers[topic_partition] = ErrorCode.INVALID_TXN_STATE

    def _led_without_transaction(self, key: TopicPartition, producer_id: int) -> Partition | None:
        """Returns the partition if the producer has no transaction open in it. Also None if this broker does not lead
        it: the append reports that.
        """
        partition = self._partitions.get(key)
        if partition is None or not partition.is_leader:
            return None
        return None if partition.log.producers.state.has_ongoing_transaction(producer_id) else partition

    def refused(
        self,
        transactional_id: str,
        entries: Mapping[TopicPartition, bytes],
        to_verify: VerificationRequest | None = None,
        *,
        knows_abortable: bool = False,
    ) -> dict[TopicPartition, PartitionAppendResult]:
        """Returns the errors of those batches of a Produce request that may not be appended: INVALID_TXN_STATE or
        TRANSACTION_ABORTABLE (see `verify`), NOT_ENOUGH_REPLICAS (retriable), INVALID_PRODUCER_ID_MAPPING,
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER. `to_verify`: the answered one, if another broker had to be
        asked. Without it, or if its answer is void, this broker's coordinator answers: NOT_COORDINATOR, if it is not
        the one, is retriable.

        Raises INVALID_PRODUCER_ID_MAPPING if the batches come from several producers.
        """
        if not self._is_enabled() or self.is_open_transaction is None:
            return {}
        batches = _transactional_batches(entries)
        refusals = {
            key: self._refusal(transactional_id, key, header, to_verify, knows_abortable)
            for key, header in batches.items()
        }
        return {key: refusal for key, refusal in refusals.items() if refusal is not None}

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic_partition: TopicPartition,
        to_verify: VerificationRequest | None = None,
        *,
        knows_abortable: bool = False,
    ) -> ErrorCode:
        """For batches that a coordinator writes within a client's transaction (TxnOffsetCommit): returns NONE, or the
        transaction coordinator's error. Clients that do not know TRANSACTION_ABORTABLE get INVALID_TXN_STATE.
        """
        if not self._is_enabled() or self.is_open_transaction is None:
            return ErrorCode.NONE
        partition = self._led_without_transaction(topic_partition, producer_id)
        if partition is None:
            return ErrorCode.NONE
        answer = None if to_verify is None else to_verify.answer_for(partition)
        if answer is None:
            answer = self.is_open_transaction(transactional_id, producer_id, producer_epoch, topic_partition)
        self.failures += answer is not ErrorCode.NONE
        if answer is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
            return ErrorCode.INVALID_TXN_STATE
        return answer

    def _refusal(
        self,
        transactional_id: str,
        key: TopicPartition,
        header: BatchHeader,
        to_verify: VerificationRequest | None,
        knows_abortable: bool,
    ) -> PartitionAppendResult | None:
        if header.producer_id < 0:
            return None
        error = self.verify(
            transactional_id,
            header.producer_id,
            header.producer_epoch,
            key,
            to_verify,
            knows_abortable=knows_abortable,
        )
        partition = self._partitions.get(key)
        if error is not ErrorCode.NONE:
            if partition is not None:
                partition.log.producers.state.refused.note(header, self._clock.wall_ms())
            return _refusal(error)
        if partition is not None:
            return _out_of_order(partition.log, header)
        return None


def _transactional_batches(entries: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, BatchHeader]:
    batches = {key: read_batch_header(records) for key, records in entries.items() if has_transactional_batch(records)}
    if len({(header.producer_id, header.producer_epoch) for header in batches.values()}) > 1:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the batches come from more than one producer")
    return batches


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
    state = log.producers.state
    earliest = state.refused.earliest_sequence(header)
    if earliest is None or header.base_sequence <= earliest or header.producer_id in state.producers:
        return None
    return PartitionAppendResult(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        log_start_offset=log.state.log_start_offset,
        error_message=f"the batch starts with sequence {header.base_sequence}, but {earliest} was refused before",
    )
