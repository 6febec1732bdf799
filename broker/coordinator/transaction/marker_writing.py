"""Writes the COMMIT or ABORT marker to each partition of a transaction once its end is decided.

A prepared transaction becomes a `Completion`. Its partitions are grouped by leader, and each leader gets one `Marker`
for all of its partitions. A partition whose marker is written is removed from the transaction. When no partition is
left, `on_written` is called once. `OUTCOMES` maps each error code to an outcome:

  (a) written: the partition is done.
  (b) gone: markers cannot be written to the partition. It is done too, as is a partition that no longer exists.
  (c) fenced: another coordinator or another producer has a newer epoch. This coordinator drops the transaction, as
      Kafka's does; the current coordinator completes it.
  (d) anything else: the marker is retried after a delay, with the leader at that time.

Source: Kafka's `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol

import structlog

from odradek.broker.coordinator.transaction.shard import TransactionShard
from odradek.broker.coordinator.transaction.transaction import Transaction, Transit
from odradek.broker.coordinator.transaction.transaction_state import PREPARE_COMMIT
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

FIRST_RETRY_MS = 100
LONGEST_RETRY_MS = 1000

log = structlog.get_logger("coordinator.transaction")


class Outcome(Enum):
    """The outcome of writing a marker; see the module docstring."""

    WRITTEN = "written"
    GONE = "gone"
    FENCED = "fenced"
    AGAIN = "again"


OUTCOMES = {
    ErrorCode.NONE: Outcome.WRITTEN,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Outcome.GONE,
    ErrorCode.UNSUPPORTED_VERSION: Outcome.GONE,
    ErrorCode.INVALID_PRODUCER_EPOCH: Outcome.FENCED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Outcome.FENCED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Outcome.AGAIN,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Outcome.AGAIN,
    ErrorCode.NOT_ENOUGH_REPLICAS: Outcome.AGAIN,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Outcome.AGAIN,
    ErrorCode.REQUEST_TIMED_OUT: Outcome.AGAIN,
    ErrorCode.KAFKA_STORAGE_ERROR: Outcome.AGAIN,
    ErrorCode.NETWORK_EXCEPTION: Outcome.AGAIN,
}
"""Other codes should not occur. They are logged as errors and retried."""


class Marker(NamedTuple):
    """A marker to write to each of `partitions`. `transaction_version`: that of the client which ended the transaction;
    a marker of version 2 bears the epoch after that of the transaction.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int = 0


OnWritten = Callable[[TopicPartition, ErrorCode], object]


class MarkerWriter(Protocol):
    """Writes markers to one broker: to this broker's own logs, or to another broker over the network."""

    def write(self, marker: Marker, on_written: OnWritten) -> None:
        """Writes a marker. Calls `on_written` once for each partition, possibly before it returns."""


class Cancellable(Protocol):
    """A scheduled call."""

    def cancel(self) -> object:
        """Cancels the call."""


Later = Callable[[int, Callable[[], None]], Cancellable]
"""later(delay_ms, call): calls `call` after the delay."""


class Completion:
    """A prepared transaction whose markers are being written. `transit` is applied when all are written."""

    __slots__ = ("delay_ms", "retries", "shard", "transaction", "transit", "waiting")

    def __init__(self, shard: TransactionShard, transaction: Transaction, transit: Transit) -> None:
        self.shard = shard
        self.transaction = transaction
        self.transit = transit
        self.retries: set[TopicPartition] = set()
        """Partitions to retry when `waiting` fires."""
        self.waiting: Cancellable | None = None
        self.delay_ms = FIRST_RETRY_MS

    def next_delay_ms(self) -> int:
        """Returns the delay before the next retry, which doubles each time up to LONGEST_RETRY_MS."""
        delay_ms = self.delay_ms
        self.delay_ms = min(2 * delay_ms, LONGEST_RETRY_MS)
        return delay_ms


class MarkerWriting:
    """`leader_of` returns the leader of a partition, -1 if it has none, or None if the partition does not exist.
    `writer_to` returns the `MarkerWriter` for a broker, or None if the broker cannot be reached.
    """

    def __init__(
        self,
        *,
        leader_of: Callable[[TopicPartition], int | None],
        writer_to: Callable[[int], MarkerWriter | None],
        later: Later,
        on_written: Callable[[Completion], object],
    ) -> None:
        self._leader_of = leader_of
        self._writer_to = writer_to
        self._later = later
        self._on_written = on_written
        self._pending: dict[str, Completion] = {}

    @property
    def pending(self) -> int:
        """The number of transactions whose markers are being written."""
        return len(self._pending)

    @property
    def of_unknown_destination(self) -> int:
        """The number of markers that wait for a leader of their partition, or for a writer to the leader."""
        return sum(
            not self._way_to(topic_partition)
            for completion in list(self._pending.values())
            for topic_partition in list(completion.retries)
        )

    def write(self, completion: Completion) -> None:
        """Writes the markers of all of the transaction's partitions."""
        self._pending[completion.transaction.transactional_id] = completion
        self._send(completion, completion.transaction.partitions)
        self._look(completion)

    def forget(self, shard: TransactionShard) -> None:
        """Drops the completions of an unloaded shard."""
        for completion in [each for each in self._pending.values() if each.shard is shard]:
            self._drop(completion)

    def _drop(self, completion: Completion) -> None:
        del self._pending[completion.transaction.transactional_id]
        if completion.waiting is not None:
            completion.waiting.cancel()

    def _is_pending(self, completion: Completion) -> bool:
        return self._pending.get(completion.transaction.transactional_id) is completion

    def _way_to(self, topic_partition: TopicPartition) -> MarkerWriter | None:
        leader = self._leader_of(topic_partition)
        return None if leader is None else self._writer_to(leader)

    def _send(self, completion: Completion, partitions: Iterable[TopicPartition]) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic_partition in sorted(partitions):
            leader = self._leader_of(topic_partition)
            if leader is None:
                log.info(
                    "transaction partition no longer exists",
                    transactional_id=completion.transaction.transactional_id,
                    partition=str(topic_partition),
                )
                completion.transaction.marker_written(topic_partition)
            else:
                by_leader.setdefault(leader, []).append(topic_partition)
        for leader, found in by_leader.items():
            self._send_to(completion, leader, tuple(found))

    def _send_to(self, completion: Completion, leader: int, partitions: tuple[TopicPartition, ...]) -> None:
        if not self._is_pending(completion):
            return
        writer = self._writer_to(leader)
        if writer is None:
            self._try_again(completion, partitions)
            return
        transaction = completion.transaction
        marker = Marker(
            transaction.producer_id,
            transaction.producer_epoch,
            completion.shard.coordinator_epoch,
            transaction.state == PREPARE_COMMIT,
            partitions,
            transaction.client_version,
        )
        writer.write(marker, partial(self._answered, completion))

    def _answered(self, completion: Completion, topic_partition: TopicPartition, code: ErrorCode) -> None:
        if not self._is_pending(completion):
            return
        outcome = OUTCOMES.get(code, Outcome.AGAIN)
        if code not in (ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION):  # the writer has logged a lost connection
            self._log_unwritten(completion, topic_partition, code, outcome)
        if outcome is Outcome.FENCED:
            self._drop(completion)
        elif outcome is Outcome.AGAIN:
            self._try_again(completion, (topic_partition,))
        else:
            completion.transaction.marker_written(topic_partition)
            self._look(completion)

    def _log_unwritten(
        self, completion: Completion, topic_partition: TopicPartition, code: ErrorCode, outcome: Outcome
    ) -> None:
        line = log.error if outcome is Outcome.FENCED or code not in OUTCOMES else log.warning
        line(
            "transaction marker not written",
            transactional_id=completion.transaction.transactional_id,
            producer_id=completion.transaction.producer_id,
            producer_epoch=completion.transaction.producer_epoch,
            partition=str(topic_partition),
            error=code.name,
            outcome=outcome.value,
        )

    def _try_again(self, completion: Completion, partitions: Iterable[TopicPartition]) -> None:
        completion.retries.update(partitions)
        if completion.waiting is None:
            completion.waiting = self._later(completion.next_delay_ms(), partial(self._retry, completion))

    def _retry(self, completion: Completion) -> None:
        completion.waiting = None
        if self._is_pending(completion):
            partitions, completion.retries = completion.retries, set()
            self._send(completion, partitions)
            self._look(completion)

    def _look(self, completion: Completion) -> None:
        """Calls `on_written` if no partition is left."""
        if not completion.transaction.partitions and self._is_pending(completion):
            self._drop(completion)
            self._on_written(completion)
