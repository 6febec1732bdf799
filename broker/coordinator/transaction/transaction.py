"""Transaction: the coordinator's state for one transactional id, and its changes.

A change has two phases. `prepare_*` creates a `Transit`, which describes the new state, and sets `pending`: no other
change may begin meanwhile. Once the transit is in the log, `complete` applies it. If it could not be written, `give_up`
drops it. `rules.py` decides which changes and errors clients get.

Transactions are of version 2 if each has an epoch of its own: its end raises the epoch, and the client continues with
the next one (KIP-890). Where the epochs of a producer id end, it continues with `next_producer_id` and epoch 0 once the
transaction is complete. Its markers bear the raised epoch.

Up to version 1 a fence raises the epoch. Only that changes before the log contains it: the old producer is fenced from
that moment on. If the fence cannot be written, its epoch is kept, and the next fence uses the same epoch, since no
producer has it. In version 2 a fence ends the transaction as the client would, and raises nothing else.

Source: Kafka's `TransactionMetadata`, `TxnTransitMetadata`; KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from odradek.broker.coordinator.transaction.transaction_state import (
    COMPLETION,
    DEAD,
    EMPTY,
    IN_THE_LOG,
    MOVES,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    IllegalMove,
    TransactionState,
    check_move,
)
from odradek.protocol.topic_partition import TopicPartition

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIME = -1
LARGEST_EPOCH = 2**15 - 1
EPOCH_PER_TRANSACTION = 2
"""The first version of transactions whose end raises the epoch."""

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch, which is >= 0."""

    producer_id: int
    producer_epoch: int


class Transit(NamedTuple):
    """The new state of a transactional id. Times in ms since 1970, -1 for none. The `last_` fields are not logged: what
    a client that repeats a request still has. `previous_producer_id` is the id before the change. `client_version`: the
    version of transactions in the client's last request.
    """

    state: TransactionState
    producer_id: int
    last_producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    start_ms: int
    update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def next_producer(self) -> ProducerIdAndEpoch:
        """The producer with which the client continues after the end of a transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)


def is_exhausted(producer_epoch: int) -> bool:
    """Whether the id has no epoch left for clients. The largest epoch is reserved for fencing."""
    return producer_epoch >= LARGEST_EPOCH - 1


class Transaction:
    """See the module docstring. While markers are written, `partitions` holds those that still need one."""

    __slots__ = (
        "client_version",
        "failed_fence",
        "last_producer_epoch",
        "last_producer_id",
        "next_producer_id",
        "partitions",
        "pending",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "transactional_id",
        "update_ms",
    )

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int, update_ms: int) -> None:
        """Creates a transaction without an epoch; the first InitProducerId assigns one."""
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.last_producer_id = NO_PRODUCER_ID
        self.previous_producer_id = NO_PRODUCER_ID
        self.next_producer_id = NO_PRODUCER_ID
        self.client_version = 0
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        self.timeout_ms = timeout_ms
        self.state = EMPTY
        self.partitions: frozenset[TopicPartition] | set[TopicPartition] = NO_PARTITIONS
        self.start_ms = NO_TIME
        self.update_ms = update_ms
        self.pending: TransactionState | None = None
        self.failed_fence = False
        """A fence with this epoch is not in the log, so the next fence does not increment the epoch again."""

    def check(self) -> None:
        """Asserts what holds between two changes: the state is one of the log, or Dead; a pending change is legal; and
        partitions and times are those of the state.
        """
        state, partitions = self.state, self.partitions
        assert state == DEAD or state in IN_THE_LOG, f"{self} is never in the log"
        assert self.pending is None or (state, self.pending) in MOVES, f"{self} cannot become {self.pending}"
        assert not (state.is_idle and partitions), f"{self} has {len(partitions)} partitions and no transaction"
        assert state.is_idle or state == DEAD or self.start_ms != NO_TIME, f"{self} has no beginning"
        assert self.producer_id >= 0, f"{self} has no producer id"
        assert self.producer_epoch >= 0 or state in (EMPTY, DEAD), f"{self} has no epoch"
        assert self.next_producer_id == NO_PRODUCER_ID or state.is_prepared, f"{self} has a next producer id"
        assert not self.failed_fence or state == ONGOING, f"{self} is fenced"

    @property
    def is_exhausted(self) -> bool:
        """Whether the next producer needs a new producer id."""
        return is_exhausted(self.producer_epoch)

    # --- preparing changes --------------------------------------------------------------------------------------

    def prepare_epoch(self, producer_epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transit:
        """InitProducerId. A retry gets the current epoch again, and may itself be retried."""
        is_retry = producer_epoch == self.producer_epoch
        transit = self._transit(EMPTY, now_ms)._replace(
            last_producer_id=self.last_producer_id if is_retry else self.producer_id,
            producer_epoch=producer_epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIME,
        )
        return self._prepared(transit)

    def prepare_producer_id(self, producer_id: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transit:
        """InitProducerId if the epochs of the old producer id are exhausted: a new id with epoch 0."""
        transit = self._transit(EMPTY, now_ms)._replace(
            producer_id=producer_id,
            last_producer_id=self.producer_id,
            producer_epoch=0,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIME,
        )
        return self._prepared(transit)

    def prepare_add(self, partitions: Set[TopicPartition], now_ms: int, client_version: int = 0) -> Transit:
        """Begins a transaction or adds partitions to it."""
        transit = self._transit(ONGOING, now_ms)
        return self._prepared(
            transit._replace(
                partitions=transit.partitions | partitions,
                start_ms=self.start_ms if self.state == ONGOING else now_ms,
                client_version=client_version,
            )
        )

    def prepare_end(self, committed: bool, now_ms: int) -> Transit:
        """EndTxn up to version 1: commits or aborts."""
        transit = self._transit(PREPARE_COMMIT if committed else PREPARE_ABORT, now_ms)
        return self._prepared(transit._replace(client_version=0))

    def prepare_end_of_epoch(self, committed: bool, now_ms: int, next_producer_id: int = NO_PRODUCER_ID) -> Transit:
        """EndTxn of version 2, and a fence: commits or aborts, and raises the epoch. `next_producer_id` is given if the
        epochs of the id are exhausted. Without an open transaction, begins one and aborts it.
        """
        transit = self._transit(PREPARE_COMMIT if committed else PREPARE_ABORT, now_ms)
        return self._prepared(
            transit._replace(
                last_producer_id=self.producer_id,
                producer_epoch=min(self.producer_epoch + 1, LARGEST_EPOCH),
                last_producer_epoch=self.producer_epoch,
                start_ms=self.start_ms if self.state == ONGOING else now_ms,
                next_producer_id=next_producer_id,
                client_version=EPOCH_PER_TRANSACTION,
            )
        )

    def begin_fence(self) -> None:
        """Allows no other change until `give_up`: the fence waits for a producer id."""
        check_move(self.state, PREPARE_EPOCH_FENCE)
        self.pending = PREPARE_EPOCH_FENCE

    def prepare_fence(self, now_ms: int) -> Transit:
        """Aborts the open transaction with the next epoch, up to version 1. The old epoch is invalid from now on."""
        check_move(self.state, PREPARE_EPOCH_FENCE)
        check_move(PREPARE_EPOCH_FENCE, PREPARE_ABORT)
        if self.pending is not None:
            raise IllegalMove(f"{self} has a pending change to {self.pending.label}")
        if not self.failed_fence and self.producer_epoch < LARGEST_EPOCH:
            self.producer_epoch += 1
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        self.failed_fence = True  # until `complete`
        return self.prepare_end(False, now_ms)

    def prepare_completion(self, now_ms: int) -> Transit:
        """Completes the transaction. Prepared before the markers are written."""
        transit = self._transit(COMPLETION[self.state], now_ms)
        return self._prepared(
            transit._replace(
                producer_id=transit.next_producer.producer_id,
                producer_epoch=transit.next_producer.producer_epoch,
                partitions=NO_PARTITIONS,
                next_producer_id=NO_PRODUCER_ID,
            )
        )

    def prepare_death(self) -> Transit:
        """Deletes the expired id."""
        return self._prepared(self._transit(DEAD, self.update_ms)._replace(partitions=NO_PARTITIONS))

    def _transit(self, state: TransactionState, now_ms: int) -> Transit:
        """Returns a transit that changes only the state and the update time."""
        return Transit(
            state,
            self.producer_id,
            self.last_producer_id,
            self.producer_epoch,
            self.last_producer_epoch,
            self.timeout_ms,
            frozenset(self.partitions),
            self.start_ms,
            now_ms,
            self.producer_id,
            self.next_producer_id,
            self.client_version,
        )

    def _prepared(self, transit: Transit) -> Transit:
        check_move(self.state, transit.state)
        if self.pending is not None:
            raise IllegalMove(f"{self} has a pending change to {self.pending.label}, not to {transit.state.label}")
        if transit.producer_id < 0 or (transit.producer_epoch < 0 and transit.state != DEAD):
            raise IllegalMove(f"{self} cannot have producer {transit.producer_id}, epoch {transit.producer_epoch}")
        self.pending = transit.state
        return transit

    # --- applying changes ---------------------------------------------------------------------------------------

    def complete(self, transit: Transit) -> None:
        """Applies a transit that is in the log."""
        if self.pending != transit.state:
            raise IllegalMove(f"{self} has no pending change to {transit.state.label}")
        self.pending = None
        self.failed_fence = False
        self.take(transit)

    def take(self, transit: Transit) -> None:
        """Sets the state to that of the transit."""
        self.state = transit.state
        self.producer_id = transit.producer_id
        self.last_producer_id = transit.last_producer_id
        self.producer_epoch = transit.producer_epoch
        self.last_producer_epoch = transit.last_producer_epoch
        self.timeout_ms = transit.timeout_ms
        self.partitions = transit.partitions
        self.start_ms = transit.start_ms
        self.update_ms = transit.update_ms
        self.previous_producer_id = transit.previous_producer_id
        self.next_producer_id = transit.next_producer_id
        self.client_version = transit.client_version

    def give_up(self) -> None:
        """Drops the pending change, which could not be written."""
        self.pending = None

    def marker_written(self, topic_partition: TopicPartition) -> None:
        """Removes a partition that has its marker or no longer exists."""
        if not isinstance(self.partitions, set):
            self.partitions = set(self.partitions)
        self.partitions.discard(topic_partition)

    def __str__(self) -> str:
        return f"transactional id {self.transactional_id!r} ({self.state.label})"
