"""TransactionCoordinator: assigns producers to transactional ids, tracks their transactions, and ends them.

    InitProducerId      one producer per id: each gets a higher epoch, which fences the earlier ones
    AddPartitionsToTxn  a partition is in the transaction log before the first record is written to it
    EndTxn              the decision (PrepareCommit, PrepareAbort) is in the transaction log before the client is
                        answered; then a marker is written to every partition, then CompleteCommit or CompleteAbort

In version 2 of transactions partitions are added by the first batch that is written to them, and EndTxn returns the
producer of the next transaction. What clients of a version ask is served in that version. The finalized level of
transaction.version is only what clients are offered, and how the coordinator itself aborts.

`rules.py` decides what is allowed. This class carries it out: it appends the transit, and applies it once it is
replicated. Each `answer` callable is called exactly once, possibly before the method returns, with None or a
ProtocolError. Nothing here waits or depends on an event loop.

After a restart or a leader change, the coordinator that loads a prepared transaction completes it.

Source: Kafka's `TransactionCoordinator`; KIP-98, KIP-360, KIP-664, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from functools import partial
from typing import NamedTuple, cast

import structlog

from odradek.broker.background.tasks import Soon
from odradek.broker.coordinator.runtime.shard import Act, Decision, Runtime, StartRuntime
from odradek.broker.coordinator.transaction import rules
from odradek.broker.coordinator.transaction.marker_writing import Completion, Later, MarkerWriter, MarkerWriting
from odradek.broker.coordinator.transaction.records import transaction_record
from odradek.broker.coordinator.transaction.shard import TransactionShard
from odradek.broker.coordinator.transaction.state_change_log import StateChangeLog
from odradek.broker.coordinator.transaction.transaction import (
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_EPOCH,
    ProducerIdAndEpoch,
    Transaction,
    Transit,
)
from odradek.broker.coordinator.transaction.transaction_state import BY_LABEL
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import Clock

log = structlog.get_logger("coordinator.transaction")

Answer = Callable[[ProtocolError | None], object]
ProducerAnswer = Callable[[ProducerIdAndEpoch | ProtocolError], object]
NewProducerId = Callable[[Callable[[int | ProtocolError], None]], object]
"""new_producer_id(use): calls `use` once, with an unused producer id or an error."""

WITHOUT_LIMIT = -1
PRODUCE_CODES = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""Maps a coordinator's error to the error that Produce and TxnOffsetCommit return."""


class Listing(NamedTuple):
    """The transactions that match the filters, and the unknown state names among the filters."""

    transactions: list[Transaction]
    unknown_states: list[str]


class TransactionCoordinator:
    """`start_runtime(new_shard)` starts the runtime that loads and writes the shards. Times are wall time.
    `transaction_version` returns the finalized level of the feature.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        longest_timeout_ms: Callable[[], int],
        new_producer_id: NewProducerId,
        leader_of: Callable[[TopicPartition], int | None],
        writer_to: Callable[[int], MarkerWriter | None],
        own_logs: MarkerWriter,
        later: Later,
        soon: Soon,
        transaction_version: Callable[[], int],
        start_runtime: StartRuntime,
    ) -> None:
        self._clock = clock
        self._transaction_version = transaction_version
        self._longest_timeout_ms = longest_timeout_ms
        self._new_producer_id = new_producer_id
        self._later = later
        self._state_changes = StateChangeLog(soon)
        self.own_logs = own_logs
        """Writes markers to the partitions that this broker leads."""
        self.markers = MarkerWriting(leader_of=leader_of, writer_to=writer_to, later=later, on_written=self._complete)
        self.completions_to_retry = 0
        """The number of completions to retry because their append failed (Kafka: LogAppendRetryQueueSize)."""
        self.runtime: Runtime = start_runtime(self._new_shard)

    def _new_shard(self, partition: int, coordinator_epoch: int, act: Act) -> TransactionShard:
        """Creates an empty shard for the runtime to load."""
        return TransactionShard(partition, coordinator_epoch, act, on_loaded=self._go_on, on_unload=self.markers.forget)

    # --- InitProducerId -----------------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None, answer: ProducerAnswer
    ) -> None:
        """Answers with the producer that may use the id from now on. `expected` is set by a producer that resumes after
        an error (KIP-360).

        Errors: INVALID_REQUEST (no id), INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (an open
        transaction is being aborted; retry).
        """
        if not transactional_id:
            answer(ProtocolError(ErrorCode.INVALID_REQUEST, "The transactional id is empty"))
        elif not 0 < timeout_ms <= self._longest_timeout_ms():
            message = f"The transaction timeout {timeout_ms} ms is not allowed"
            answer(ProtocolError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, message))
        else:
            self._init(transactional_id, timeout_ms, expected, answer, None)

    def _init(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        answer: ProducerAnswer,
        new_id: int | None,
    ) -> None:
        try:
            shard = self._shard(transactional_id)
            transaction = shard.transactions.get(transactional_id)
            if transaction is None:
                transaction = self._new_transaction(shard, transactional_id, timeout_ms, new_id)
            transit = rules.initialize(transaction, timeout_ms, expected, new_id, self._now())
        except rules.ProducerIdNeeded:
            self._with_new_id(partial(self._init, transactional_id, timeout_ms, expected, answer), answer)
            return
        except ProtocolError as error:
            answer(error)
            return
        self._initialize(shard, transaction, transit, answer)

    def _with_new_id(self, use: Callable[[int], object], answer: ProducerAnswer) -> None:
        """Calls `use` with a new producer id, or answers with the error that prevented one."""

        def given(found: int | ProtocolError) -> None:
            if isinstance(found, ProtocolError):
                answer(found)
            else:
                use(found)

        self._new_producer_id(given)

    def _new_transaction(
        self, shard: TransactionShard, transactional_id: str, timeout_ms: int, new_id: int | None
    ) -> Transaction:
        if new_id is None:
            raise rules.ProducerIdNeeded
        transaction = Transaction(transactional_id, new_id, timeout_ms, self._now())
        shard.put(transaction)
        return transaction

    def _initialize(
        self, shard: TransactionShard, transaction: Transaction, transit: Transit | None, answer: ProducerAnswer
    ) -> None:
        if transit is None:

            def aborted(error: ProtocolError | None) -> None:
                answer(error or ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS))

            self.fence(shard, transaction, "InitProducerId of another producer", aborted)
            return
        given = ProducerIdAndEpoch(transit.producer_id, transit.producer_epoch)

        def initialized(error: ProtocolError | None) -> None:
            if error is not None and shard.is_current and transaction.producer_epoch == NO_PRODUCER_EPOCH:
                shard.remove(transaction.transactional_id)
            answer(error or given)

        self._change(shard, transaction, transit, "InitProducerId", initialized)

    # --- AddPartitionsToTxn, AddOffsetsToTxn ----------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Set[TopicPartition],
        answer: Answer,
        client_version: int = 0,
    ) -> None:
        """Adds partitions to the producer's transaction, and begins one if none is open. The partitions must exist.

        Errors: INVALID_REQUEST (no id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        try:
            shard, transaction = self._find(transactional_id)
            transit = rules.add_partitions(transaction, producer, partitions, self._now(), client_version)
        except ProtocolError as error:
            answer(error)
            return
        if transit is None:
            answer(None)
            return
        assert transaction is not None
        self._change(shard, transaction, transit, "AddPartitionsToTxn", answer)

    def add_for_client(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Set[TopicPartition],
        answer: Callable[[ErrorCode], object],
    ) -> None:
        """Adds the partitions to which a client of version 2 writes its first batches of a transaction. Answers with
        NONE or an error code for Produce.
        """
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)

        def added(error: ProtocolError | None) -> None:
            answer(ErrorCode.NONE if error is None else PRODUCE_CODES.get(error.code, error.code))

        self.add_partitions(transactional_id, producer, partitions, added, EPOCH_PER_TRANSACTION)

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic_partition: TopicPartition
    ) -> ErrorCode:
        """Returns NONE if the partition is in the producer's open transaction, so that it may write there (KIP-890).

        Otherwise returns TRANSACTION_ABORTABLE (the partition is not in the transaction), PRODUCER_FENCED,
        INVALID_PRODUCER_ID_MAPPING, INVALID_REQUEST (no id); or an error that is temporary: CONCURRENT_TRANSACTIONS,
        COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        try:
            transaction = self._find(transactional_id)[1]
            partitions = rules.verify(transaction, ProducerIdAndEpoch(producer_id, producer_epoch))
        except ProtocolError as error:
            return error.code
        return ErrorCode.NONE if topic_partition in partitions else ErrorCode.TRANSACTION_ABORTABLE

    def is_open_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic_partition: TopicPartition
    ) -> ErrorCode:
        """Returns what `verify` does, as an error code for Produce."""
        error = self.verify(transactional_id, producer_id, producer_epoch, topic_partition)
        return PRODUCE_CODES.get(error, error)

    # --- EndTxn ---------------------------------------------------------------------------------------------------

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        committed: bool,
        answer: ProducerAnswer,
        client_version: int = 0,
        new_id: int | None = None,
    ) -> None:
        """Commits or aborts. Answers, once the decision is replicated, with the producer that goes on; the markers
        follow. A retry gets the same answer.

        Errors: INVALID_REQUEST (no id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
        INVALID_TXN_STATE (no transaction is open, or it has ended the other way).
        """
        try:
            shard, transaction = self._find(transactional_id)
            outcome = rules.end(transaction, producer, committed, self._now(), client_version, new_id)
        except rules.ProducerIdNeeded:
            again = partial(self.end, transactional_id, producer, committed, answer, client_version)
            self._with_new_id(again, answer)
            return
        except ProtocolError as error:
            answer(error)
            return
        if isinstance(outcome, rules.Retried):
            answer(ProducerIdAndEpoch(outcome.producer_id, outcome.producer_epoch))
            return
        assert transaction is not None
        next_producer = outcome.next_producer
        self._prepare(shard, transaction, outcome, "EndTxn", lambda error: answer(error or next_producer))

    def fence(self, shard: TransactionShard, transaction: Transaction, reason: str, answer: Answer) -> None:
        """Aborts an open transaction and fences its producer. No change may be pending. Answers once the decision is
        replicated.
        """
        try:
            transit = rules.fence(transaction, self._now(), self._transaction_version())
        except rules.ProducerIdNeeded:
            self._fence_with_new_id(shard, transaction, reason, answer)
        else:
            self._prepare(shard, transaction, transit, reason, answer)

    def _fence_with_new_id(
        self, shard: TransactionShard, transaction: Transaction, reason: str, answer: Answer
    ) -> None:
        transaction.begin_fence()

        def use(found: int | ProtocolError) -> None:
            if not shard.is_current:
                answer(ProtocolError(ErrorCode.NOT_COORDINATOR))
                return
            transaction.give_up()
            if isinstance(found, ProtocolError):
                answer(found)
                return
            transit = rules.fence(transaction, self._now(), EPOCH_PER_TRANSACTION, found)
            self._prepare(shard, transaction, transit, reason, answer)

        self._new_producer_id(use)

    def _prepare(
        self, shard: TransactionShard, transaction: Transaction, transit: Transit, reason: str, answer: Answer
    ) -> None:
        def prepared(error: ProtocolError | None) -> None:
            answer(error)
            if error is None:
                self._write_markers(shard, transaction)

        self._change(shard, transaction, transit, reason, prepared)

    def _write_markers(self, shard: TransactionShard, transaction: Transaction) -> None:
        self.markers.write(Completion(shard, transaction, transaction.prepare_completion(self._now())))

    def _complete(self, completion: Completion) -> None:
        """Appends the completed state after all markers are written. A failed append is retried until it succeeds or
        the shard is unloaded; a new coordinator would write the markers again.
        """
        if not completion.shard.is_current:
            return

        def completed(error: ProtocolError | None) -> None:
            if error is not None and completion.shard.is_current:
                self.completions_to_retry += 1
                self._later(completion.next_delay_ms(), partial(self._complete_again, completion))

        shard, transaction, transit = completion.shard, completion.transaction, completion.transit
        self._change(shard, transaction, transit, "all markers are written", completed, stays_pending=True)

    def _complete_again(self, completion: Completion) -> None:
        self.completions_to_retry -= 1
        self._complete(completion)

    def _go_on(self, shard: TransactionShard) -> None:
        """Resumes the prepared transactions of a loaded shard."""
        for transaction in shard.prepared():
            log.info(
                "transaction resumed",
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                state=transaction.state.label,
            )
            self._write_markers(shard, transaction)

    # --- DescribeTransactions, ListTransactions ---------------------------------------------------------------------

    def describe(self, transactional_id: str) -> Transaction:
        """Returns the id's transaction, read-only. Raises INVALID_REQUEST (no id), TRANSACTIONAL_ID_NOT_FOUND."""
        transaction = self._find(transactional_id)[1]
        if transaction is None:
            raise ProtocolError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return transaction

    def listing(
        self, states: Collection[str] = (), producer_ids: Collection[int] = (), longer_than_ms: int = WITHOUT_LIMIT
    ) -> Listing:
        """Returns the transactions that match every filter. An empty filter matches all. `longer_than_ms` is the
        minimum time since the transaction began.

        Raises COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
        """
        if self.runtime.is_stopping:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self.runtime.loading:
            raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        wanted, owners = {BY_LABEL[name] for name in states if name in BY_LABEL}, frozenset(producer_ids)
        latest_start_ms = self._now() - longer_than_ms
        found = [
            transaction
            for shard in self.shards()
            for transaction in shard.transactions.values()
            if (not states or transaction.state in wanted)
            and (not owners or transaction.producer_id in owners)
            and (longer_than_ms < 0 or transaction.start_ms < latest_start_ms)
        ]
        return Listing(found, [name for name in states if name not in BY_LABEL])

    # --- Shards and changes -------------------------------------------------------------------------------------

    def shards(self) -> list[TransactionShard]:
        """Returns the loaded shards."""
        return cast("list[TransactionShard]", self.runtime.shards())

    def _shard(self, transactional_id: str) -> TransactionShard:
        return cast(TransactionShard, self.runtime.shard_for(transactional_id))

    def _find(self, transactional_id: str) -> tuple[TransactionShard, Transaction | None]:
        if not transactional_id:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "The transactional id is empty")
        shard = self._shard(transactional_id)
        return shard, shard.transactions.get(transactional_id)

    def _now(self) -> int:
        return self._clock.wall_ms()

    def _change(
        self,
        shard: TransactionShard,
        transaction: Transaction,
        transit: Transit,
        reason: str,
        done: Answer,
        *,
        stays_pending: bool = False,
    ) -> None:
        """Appends the transit and applies it once replicated. `stays_pending`: a failure leaves it pending."""

        def settled(error: ProtocolError | None) -> None:
            if not shard.is_current:
                error = ProtocolError(ErrorCode.NOT_COORDINATOR)
            elif error is None:
                self._take(shard, transaction, transit, reason)
            elif not stays_pending:
                transaction.give_up()
            done(error)

        record = transaction_record(transaction.transactional_id, transit, self._transaction_version())
        shard.act(Decision([record], settled, replay=False, timeout_ms=transit.timeout_ms))

    def _take(self, shard: TransactionShard, transaction: Transaction, transit: Transit, reason: str) -> None:
        self._state_changes.note(transaction.transactional_id, transaction.state, transit, reason)
        transaction.complete(transit)
        shard.put(transaction)
