"""Verifies that a transactional batch belongs to an open transaction. The transaction coordinator is asked before the
first batch of a transaction enters a partition. Otherwise a late batch (after its transaction ended, or from a client
that never added the partition) would start a transaction that nothing ever ends. (KIP-890, part 1)

Clients of version 2 of transactions do not add their partitions: the coordinator is asked to add them. (Part 2)

(A) If the producer's transaction is already open in the partition, the batch is accepted: it belongs to that
    transaction until the marker arrives, and after the marker the coordinator is asked again.
(B) Otherwise the coordinator is asked. A coordinator on this broker verifies synchronously on this thread, so that
    nothing can happen between its answer and the append. A coordinator on another broker is asked with a
    `VerificationRequest` while the client's request waits. Its answer is void if meanwhile a marker of the producer has
    ended the transaction, or if this broker has lost its leadership of the partition, even if it is the leader again:
    then another leader may have written the marker. (Kafka's VerificationGuard)
(C) For a producer that is unknown here, the smallest refused sequence is recorded. Otherwise a batch after it would be
    accepted, as any sequence of an unknown producer is, and the refused batch could never be retried. (Kafka's
    VerificationStateEntry) A client of version 2 begins every transaction with sequence 0.
(D) Adding is a record of the coordinator's log, so this broker's coordinator is asked with a `VerificationRequest` too.
    It answers within the call if the log is not replicated. While the end of the producer's last transaction is
    pending, the coordinator is asked again for a short time. A marker of version 2 makes the answer void only if its
    epoch is higher than the producer's: otherwise it belongs to an earlier transaction.

Source: Kafka's ReplicaManager.handleProduceAppend and AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from enum import Enum
from typing import TYPE_CHECKING, Final

from odradek.broker.replica.leader.appends import PartitionAppendResult
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import BatchHeader, has_transactional_batch, read_batch_header
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.producers.producer_state import EPOCH_PER_TRANSACTION
from odradek.timer import Clock

if TYPE_CHECKING:
    from odradek.broker.replica.partition.partition import Partition
    from odradek.storage.log.log import Log

IsOpenTransaction = Callable[[str, int, int, TopicPartition], ErrorCode]
"""Maps (transactional id, producer id, producer epoch, partition) to NONE, or to the reason why the transaction is not
open.
"""


AddPartitions = Callable[[str, int, int, Set[TopicPartition], Callable[[ErrorCode], object]], object]
"""add(transactional id, producer id, producer epoch, partitions, answer) adds partitions to the transaction, and calls
`answer` once, possibly at once: with NONE when this is replicated, or the error.
"""


class ClientSupport(Enum):
    """What the version of a client's request says of the client: OLD ones do not know TRANSACTION_ABORTABLE; of those
    with ADDS the partitions are added to the transaction as they are written.
    """

    OLD = 0
    KNOWS_ABORTABLE = 1
    ADDS = 2


ADDS: Final = ClientSupport.ADDS


class LocalAnswer:
    """What this broker's coordinator answers: `code`, None until it does. Then it calls `then`, if that is set."""

    __slots__ = ("code", "then")

    def __init__(self) -> None:
        self.code: ErrorCode | None = None
        self.then: Callable[[], object] | None = None

    def settle(self, code: ErrorCode) -> None:
        self.code = code
        if self.then is not None:
            self.then()


class VerificationRequest:
    """What a coordinator is asked about one producer in some partitions, and its `answers`. `coordinator`: the other
    broker to ask; None: this one, to add. `led` has, for each partition, what this broker leads: the partition and the
    leader epoch. `adds`: the partitions are added to the transaction. `asked_here`: set if this broker's coordinator
    was asked.
    """

    __slots__ = (
        "adds",
        "answers",
        "asked_here",
        "coordinator",
        "led",
        "producer_epoch",
        "producer_id",
        "transactional_id",
    )

    def __init__(
        self,
        coordinator: int | None,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        led: dict[TopicPartition, tuple[Partition, int]],
        adds: bool = False,
    ) -> None:
        self.coordinator = coordinator
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.led = led
        self.adds = adds
        self.asked_here: LocalAnswer | None = None
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

BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
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
    """Nothing is verified while `is_enabled` returns False (transaction.partition.verification.enable), and nothing is
    asked before there are coordinators.
    """

    def __init__(self, partitions: HostedPartitions, clock: Clock, *, is_enabled: Callable[[], bool]) -> None:
        self._partitions = partitions
        self._clock = clock
        self._is_enabled = is_enabled
        self.is_open_transaction: IsOpenTransaction | None = None
        self._add: AddPartitions | None = None
        self.elsewhere: Elsewhere = lambda _transactional_id: None
        self.ask: AskCoordinator | None = None
        self._unsettled: dict[tuple[TopicPartition, int], list[VerificationRequest]] = {}
        """Those that are not settled yet, by partition and producer id."""
        self.failures = 0
        """The number of batches refused since the start (Kafka's VerificationFailureRate)."""

    def ask_coordinators(
        self,
        is_open_transaction: IsOpenTransaction,
        elsewhere: Elsewhere,
        ask: AskCoordinator,
        add: AddPartitions,
    ) -> None:
        """Asks these from now on. This broker's coordinator (`is_open_transaction`, `add`) writes through the replica
        manager, and so can be made only after it.
        """
        self.is_open_transaction = is_open_transaction
        self.elsewhere, self.ask, self._add = elsewhere, ask, add

    def needed(
        self,
        transactional_id: str,
        entries: Mapping[TopicPartition, bytes],
        support: ClientSupport = ClientSupport.OLD,
    ) -> VerificationRequest | None:
        """Returns what a coordinator must be asked before the batches are appended; None if nothing. Raises as
        `refused` does. The caller asks, calls `answered`, and `settle` in the end.
        """
        coordinator = self.elsewhere(transactional_id)
        if not self._is_asked(coordinator, support):
            return None
        batches = _transactional_batches(entries)
        header = next(iter(batches.values()), None)
        if header is None or header.producer_id < 0:
            return None
        return self._needed(coordinator, transactional_id, header.producer_id, header.producer_epoch, batches, support)

    def needed_for_commit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic_partition: TopicPartition,
        support: ClientSupport = ClientSupport.OLD,
    ) -> VerificationRequest | None:
        """As `needed`, before a coordinator verifies a client's transaction with `verify`."""
        coordinator = self.elsewhere(transactional_id)
        if not self._is_asked(coordinator, support):
            return None
        return self._needed(coordinator, transactional_id, producer_id, producer_epoch, (topic_partition,), support)

    def _is_asked(self, coordinator: int | None, support: ClientSupport) -> bool:
        """Whether a request goes to the coordinator, which is on another broker unless it is None."""
        if self.ask is None:
            return False
        return support is ADDS or (coordinator is not None and self._is_enabled())

    def _needed(
        self,
        coordinator: int | None,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        keys: Iterable[TopicPartition],
        support: ClientSupport,
    ) -> VerificationRequest | None:
        led: dict[TopicPartition, tuple[Partition, int]] = {}
        for key in keys:
            partition = self._led_without_transaction(key, producer_id, producer_epoch)
            if partition is not None:
                led[key] = (partition, partition.leader_epoch)
        if not led:
            return None
        adds = support is ADDS
        to_verify = VerificationRequest(coordinator, transactional_id, producer_id, producer_epoch, led, adds)
        self.expect(to_verify)
        return to_verify

    def expect(self, to_verify: VerificationRequest) -> None:
        """The coordinator is going to be asked: markers from now on make its answer void (B)."""
        self.settle(to_verify)
        for key in to_verify.led:
            self._unsettled.setdefault((key, to_verify.producer_id), []).append(to_verify)

    def ask_here(self, to_verify: VerificationRequest) -> LocalAnswer | None:
        """Lets this broker's coordinator add the partitions, and returns its answer, which may follow. Returns None if
        another broker must be asked. (D)
        """
        to_verify.asked_here = None
        if self._add is None or to_verify.coordinator is not None:
            return None
        answer = to_verify.asked_here = LocalAnswer()
        self._add(
            to_verify.transactional_id,
            to_verify.producer_id,
            to_verify.producer_epoch,
            frozenset(to_verify.led),
            answer.settle,
        )
        return answer

    def is_answered_here(self, to_verify: VerificationRequest) -> bool:
        """Asks this broker's coordinator, and notes what it answers within the call. Returns False if the answer
        follows, is BUSY, or must come from another broker.
        """
        answer = self.ask_here(to_verify)
        if answer is None or answer.code is None or answer.code is BUSY:
            return False
        self.answered(to_verify, dict.fromkeys(to_verify.led, answer.code))
        return True

    def answered(self, to_verify: VerificationRequest, answers: Mapping[TopicPartition, ErrorCode]) -> None:
        """Notes the coordinator's answers."""
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

    def marker_written(
        self, topic_partition: TopicPartition, producer_id: int, producer_epoch: int, transaction_version: int
    ) -> None:
        """A marker has ended the producer's transaction: answers about it are void (B, D)."""
        place = (topic_partition, producer_id)
        later = []
        for to_verify in self._unsettled.pop(place, ()):
            if transaction_version >= EPOCH_PER_TRANSACTION and producer_epoch <= to_verify.producer_epoch:
                later.append(to_verify)
            elif topic_partition in to_verify.answers:
                to_verify.answers[topic_partition] = ErrorCode.INVALID_TXN_STATE
        if later:
            self._unsettled[place] = later

    def _led_without_transaction(self, key: TopicPartition, producer_id: int, producer_epoch: int) -> Partition | None:
        """Returns the partition if a batch of the producer would begin a transaction in it. Also None if this broker
        does not lead it, or the epoch is too old: the append reports that.
        """
        partition = self._partitions.get(key)
        if partition is None or not partition.is_leader:
            return None
        begins = partition.log.producers.state.would_begin_transaction(producer_id, producer_epoch)
        return partition if begins else None

    def refused(
        self,
        transactional_id: str,
        entries: Mapping[TopicPartition, bytes],
        to_verify: VerificationRequest | None = None,
        support: ClientSupport = ClientSupport.OLD,
    ) -> dict[TopicPartition, PartitionAppendResult]:
        """Returns the errors of those batches of a Produce request that may not be appended: INVALID_TXN_STATE or
        TRANSACTION_ABORTABLE (see `verify`), NOT_ENOUGH_REPLICAS (retriable), INVALID_PRODUCER_ID_MAPPING,
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, and if partitions are added CONCURRENT_TRANSACTIONS
        (retriable). `to_verify`: the answered one, if a coordinator had to be asked. Without it, or if its answer is
        void, this broker's coordinator answers: NOT_COORDINATOR, if it is not the one, is retriable.

        Raises INVALID_PRODUCER_ID_MAPPING if the batches come from several producers.
        """
        if self.is_open_transaction is None or not (support is ADDS or self._is_enabled()):
            return {}
        batches = _transactional_batches(entries)
        refusals = {
            key: self._refusal(transactional_id, key, header, to_verify, support) for key, header in batches.items()
        }
        return {key: refusal for key, refusal in refusals.items() if refusal is not None}

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic_partition: TopicPartition,
        to_verify: VerificationRequest | None = None,
        support: ClientSupport = ClientSupport.OLD,
    ) -> ErrorCode:
        """For batches that a coordinator writes within a client's transaction (TxnOffsetCommit): returns NONE, or the
        transaction coordinator's error. Clients that do not know TRANSACTION_ABORTABLE get INVALID_TXN_STATE.
        """
        adds = support is ADDS
        if self.is_open_transaction is None or not (adds or self._is_enabled()):
            return ErrorCode.NONE
        partition = self._led_without_transaction(topic_partition, producer_id, producer_epoch)
        if partition is None:
            return ErrorCode.NONE
        answer = None if to_verify is None else to_verify.answer_for(partition)
        if answer is None and adds:
            answer = ErrorCode.NOT_COORDINATOR  # the client tries again, and the partition is added
        elif answer is None:
            answer = self.is_open_transaction(transactional_id, producer_id, producer_epoch, topic_partition)
        self.failures += answer is not ErrorCode.NONE
        if answer is ErrorCode.TRANSACTION_ABORTABLE and support is ClientSupport.OLD:
            return ErrorCode.INVALID_TXN_STATE
        return answer

    def _refusal(
        self,
        transactional_id: str,
        key: TopicPartition,
        header: BatchHeader,
        to_verify: VerificationRequest | None,
        support: ClientSupport,
    ) -> PartitionAppendResult | None:
        partition = self._partitions.get(key)
        if header.producer_id < 0 or partition is None or not partition.is_leader:
            return None
        error = self.verify(transactional_id, header.producer_id, header.producer_epoch, key, to_verify, support)
        state = partition.log.producers.state
        if error is not ErrorCode.NONE:
            state.refused.note(header, self._clock.wall_ms())
        elif state.knows_newer_epoch(header.producer_id, header.producer_epoch):
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        return _out_of_order(partition.log, header, support) if error is ErrorCode.NONE else _refusal(error, support)


def _transactional_batches(entries: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, BatchHeader]:
    batches = {key: read_batch_header(records) for key, records in entries.items() if has_transactional_batch(records)}
    if len({(header.producer_id, header.producer_epoch) for header in batches.values()}) > 1:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the batches come from more than one producer")
    return batches


def _refusal(error: ErrorCode, support: ClientSupport) -> PartitionAppendResult:
    code = PRODUCERS_CODE.get(error, error)
    if error is BUSY and support is ADDS:
        code = error
    message = None
    if error is ErrorCode.INVALID_TXN_STATE:
        message = "the partition was not added to the transaction"
    elif code is ErrorCode.NOT_ENOUGH_REPLICAS:
        message = f"could not verify that the partition was added to the transaction: {error.name}"
    return PartitionAppendResult(code, error_message=message)


def _out_of_order(log: Log, header: BatchHeader, support: ClientSupport) -> PartitionAppendResult | None:
    """Refuses a batch that follows a refused one (C)."""
    state = log.producers.state
    earliest = 0 if support is ADDS else state.refused.earliest_sequence(header)
    if earliest is None or header.base_sequence <= earliest or header.producer_id in state.producers:
        return None
    return PartitionAppendResult(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        log_start_offset=log.state.log_start_offset,
        error_message=f"the batch starts with sequence {header.base_sequence}, but {earliest} has not been appended",
    )
