"""The smallest sequences that producers were refused before any batch of theirs entered the partition (Kafka's
VerificationStateEntry, KIP-890).

They are needed only until a batch of the producer is in the log: from then on its sequences are checked against that.
"""

from typing import NamedTuple

from odradek.protocol.batch_header import BatchHeader


class RefusedBatch(NamedTuple):
    """`noted_ms` is the wall clock's, for expiry."""

    producer_epoch: int
    base_sequence: int
    noted_ms: int


class RefusedBatches:
    """By producer id."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, RefusedBatch] = {}

    def __len__(self) -> int:
        return len(self._by_producer)

    def note(self, header: BatchHeader, now_ms: int) -> None:
        """This batch was refused. An older epoch than the one noted says nothing."""
        known = self._by_producer.get(header.producer_id)
        sequence = header.base_sequence
        if known is not None:
            if header.producer_epoch < known.producer_epoch:
                return
            if header.producer_epoch == known.producer_epoch:
                sequence = min(sequence, known.base_sequence)
        self._by_producer[header.producer_id] = RefusedBatch(header.producer_epoch, sequence, now_ms)

    def earliest_sequence(self, header: BatchHeader) -> int | None:
        """The smallest sequence refused of the batch's producer in its epoch; None if there is none."""
        known = self._by_producer.get(header.producer_id)
        return known.base_sequence if known is not None and known.producer_epoch == header.producer_epoch else None

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets what was noted that long ago."""
        expired = [
            producer_id for producer_id, known in self._by_producer.items() if now_ms - known.noted_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._by_producer[producer_id]
