"""Transaction: what the coordinator knows of one transactional id, and how that changes.

A change has two halves. `prepare_*` makes a `Transit`, which says what shall be, and notes its state as `pending`:
while something is pending no other change may begin. Once the transit is in the log, `complete` takes it over; if it
could not be written, `give_up` forgets it. What clients are told, by which rules, is in `rules.py`.

The one thing that changes before the log has it is the epoch of a fence: the old producer is shut out from that moment
on. If the fence cannot be written its epoch stays, and the next fence uses the same one, since nobody was given it.

Source: Kafka's `TransactionMetadata`, `TxnTransitMetadata`; KIP-360.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from odradek.broker.coordinator.transaction.state import (
    COMPLETION,
    DEAD,
    EMPTY,
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

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class ProducerIdAndEpoch(NamedTuple):
    """A producer: epochs are 0 and greater."""

    producer_id: int
    producer_epoch: int


class Transit(NamedTuple):
    """What shall be. Times in ms since 1970, -1 for none. The `last_` fields are not in the log."""

    state: TransactionState
    producer_id: int
    last_producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    start_ms: int
    update_ms: int


def is_exhausted(producer_epoch: int) -> bool:
    """Clients never get the largest epoch: it is kept for fencing them."""
    return producer_epoch >= LARGEST_EPOCH - 1


class Transaction:
    """See the file's head. `partitions`, while markers are written: those that still need theirs."""

    __slots__ = (
        "failed_fence",
        "last_producer_epoch",
        "last_producer_id",
        "partitions",
        "pending",
        "producer_epoch",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "transactional_id",
        "update_ms",
    )

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int, update_ms: int) -> None:
        """One that has just been made: its first epoch comes with the first InitProducerId."""
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.last_producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        self.timeout_ms = timeout_ms
        self.state = EMPTY
        self.partitions: frozenset[TopicPartition] | set[TopicPartition] = NO_PARTITIONS
        self.start_ms = NO_TIME
        self.update_ms = update_ms
        self.pending: TransactionState | None = None
        self.failed_fence = False
        """A fence with this epoch could not be written: the next one does not raise it again."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the next producer needs another id."""
        return is_exhausted(self.producer_epoch)

    # --- what shall be ------------------------------------------------------------------------------------------

    def prepare_epoch(self, producer_epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transit:
        """InitProducerId. A retry is given the epoch that it has already, and may be followed by another."""
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
        """InitProducerId when the epochs of the old id are used up: a new one, with epoch 0."""
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

    def prepare_add(self, partitions: Set[TopicPartition], now_ms: int) -> Transit:
        """AddPartitionsToTxn, AddOffsetsToTxn: begins a transaction, or widens it."""
        transit = self._transit(ONGOING, now_ms)
        if self.state != ONGOING:
            transit = transit._replace(start_ms=now_ms)
        return self._prepared(transit._replace(partitions=transit.partitions | partitions))

    def prepare_end(self, committed: bool, now_ms: int) -> Transit:
        """EndTxn."""
        return self._prepared(self._transit(PREPARE_COMMIT if committed else PREPARE_ABORT, now_ms))

    def prepare_fence(self, now_ms: int) -> Transit:
        """Abort what is open, with the next epoch. The old epoch is void from here on."""
        check_move(self.state, PREPARE_EPOCH_FENCE)
        check_move(PREPARE_EPOCH_FENCE, PREPARE_ABORT)
        if self.pending is not None:
            raise IllegalMove(f"{self} is on its way to {self.pending.label}")
        if not self.failed_fence and self.producer_epoch < LARGEST_EPOCH:
            self.producer_epoch += 1
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        self.failed_fence = True  # until the fence is in the log
        return self._prepared(self._transit(PREPARE_ABORT, now_ms))

    def prepare_completion(self, now_ms: int) -> Transit:
        """All markers are written, or soon will be."""
        return self._prepared(self._transit(COMPLETION[self.state], now_ms)._replace(partitions=NO_PARTITIONS))

    def prepare_death(self) -> Transit:
        """The id expires."""
        return self._prepared(self._transit(DEAD, self.update_ms)._replace(partitions=NO_PARTITIONS))

    def _transit(self, state: TransactionState, now_ms: int) -> Transit:
        """A change of state that leaves the rest as it is."""
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
        )

    def _prepared(self, transit: Transit) -> Transit:
        check_move(self.state, transit.state)
        if self.pending is not None:
            raise IllegalMove(f"{self} is on its way to {self.pending.label}, not to {transit.state.label}")
        if transit.producer_id < 0 or (transit.producer_epoch < 0 and transit.state != DEAD):
            raise IllegalMove(f"{self} cannot get the producer id {transit.producer_id}, {transit.producer_epoch}")
        self.pending = transit.state
        return transit

    # --- what is ------------------------------------------------------------------------------------------------

    def complete(self, transit: Transit) -> None:
        """The transit is in the log."""
        if self.pending != transit.state:
            raise IllegalMove(f"{self} was not on its way to {transit.state.label}")
        self.pending = None
        self.failed_fence = False
        self.take(transit)

    def take(self, transit: Transit) -> None:
        """Is as the transit says, from now on."""
        self.state = transit.state
        self.producer_id = transit.producer_id
        self.last_producer_id = transit.last_producer_id
        self.producer_epoch = transit.producer_epoch
        self.last_producer_epoch = transit.last_producer_epoch
        self.timeout_ms = transit.timeout_ms
        self.partitions = transit.partitions
        self.start_ms = transit.start_ms
        self.update_ms = transit.update_ms

    def give_up(self) -> None:
        """What was pending could not be written."""
        self.pending = None

    def marker_written(self, topic_partition: TopicPartition) -> None:
        """The partition has its marker, or is gone."""
        if not isinstance(self.partitions, set):
            self.partitions = set(self.partitions)
        self.partitions.discard(topic_partition)

    def __str__(self) -> str:
        return f"transactional id {self.transactional_id!r} ({self.state.label})"
