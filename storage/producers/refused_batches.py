"""For each producer without a batch in the partition, the smallest sequence that was refused (Kafka's
VerificationStateEntry, KIP-890).

An entry is needed only until the log has a batch of the producer: sequences are then checked against that batch.
"""

from typing import NamedTuple

from odradek.protocol.batch_header import BatchHeader


class RefusedBatch(NamedTuple):
    """`noted_ms` is wall clock time, for expiry."""

    producer_epoch: int
    base_sequence: int
    noted_ms: int


class RefusedBatches:
    """The refused batches, by producer id."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, RefusedBatch] = {}

    def __len__(self) -> int:
        return len(self._by_producer)

    def note(self, header: BatchHeader, now_ms: int) -> None:
        """Records that this batch was refused. A batch of an older epoch than the recorded one is ignored."""
        known = self._by_producer.get(header.producer_id)
        sequence = header.base_sequence
        if known is not None:
            if header.producer_epoch < known.producer_epoch:
                return
            if header.producer_epoch == known.producer_epoch:
                sequence = min(sequence, known.base_sequence)
        self._by_producer[header.producer_id] = RefusedBatch(header.producer_epoch, sequence, now_ms)

    def earliest_sequence(self, header: BatchHeader) -> int | None:
        """Returns the smallest sequence refused for the batch's producer and epoch, or None."""
        known = self._by_producer.get(header.producer_id)
        return known.base_sequence if known is not None and known.producer_epoch == header.producer_epoch else None

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Drops entries older than `expiration_ms`."""
        expired = [
            producer_id for producer_id, known in self._by_producer.items() if now_ms - known.noted_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._by_producer[producer_id]
