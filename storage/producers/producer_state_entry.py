"""The state that a partition keeps for one producer (Kafka's ProducerStateEntry, KIP-98)."""

from __future__ import annotations

from typing import NamedTuple

from odradek.protocol.batch_header import MAX_INT32, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader

BATCHES_TO_RETAIN = 5
NO_OFFSET = -1


class BatchMetadata(NamedTuple):
    """A recent batch: its last sequence and offset, the difference between its last and first offset, and its largest
    timestamp (ms).
    """

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequences wrap to 0 after 2147483647, so a batch's first sequence may be larger than its last."""
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + MAX_INT32 + 1

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerStateEntry:
    """`batches` are the last five of the current epoch, oldest first. -1 means that a value is not set."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        current_transaction_first_offset: int = NO_OFFSET,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_transaction_first_offset = current_transaction_first_offset
        self.batches: list[BatchMetadata] = []

    def copy(self) -> ProducerStateEntry:
        copy = ProducerStateEntry(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.current_transaction_first_offset,
        )
        copy.batches = list(self.batches)
        return copy

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Returns the recent batch with the same epoch and the same first and last sequence, or None."""
        if header.producer_epoch != self.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def enter_epoch(self, producer_epoch: int) -> None:
        """Sequences restart with a new epoch, so batches of the old epoch no longer count as duplicates."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch

    def add_batch(self, producer_epoch: int, batch: BatchMetadata) -> None:
        self.enter_epoch(producer_epoch)
        if len(self.batches) == BATCHES_TO_RETAIN:
            del self.batches[0]
        self.batches.append(batch)
        self.last_timestamp = batch.timestamp

    def __repr__(self) -> str:
        return (
            f"ProducerStateEntry(producer_id={self.producer_id}, epoch={self.producer_epoch}, batches={self.batches}, "
            f"transaction={self.current_transaction_first_offset})"
        )
