"""What the batches of a log say about its producers and transactions, read anew from the first to the last one. A
second, simple implementation: it shares no code with the broker's.

Batches that retention or compaction has removed are missing here, so what comes of them may be unknown (`Rebuilt`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.log_contents import Batch

MOST_BATCHES = 5
"""So many batches of a producer are remembered."""


class ProducedBatch(NamedTuple):
    """A producer's batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int


@dataclass
class RebuiltProducer:
    """A producer as its batches show it; -1: not known."""

    epoch: int
    batches: list[ProducedBatch] = field(default_factory=list)
    coordinator_epoch: int = -1
    open_from: int = -1
    """The first offset of the open transaction."""
    last_offset: int = -1
    """Of its last batch or marker."""
    last_timestamp_ms: int = -1

    def enter(self, epoch: int) -> None:
        """A new epoch has no batches."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []

    def copy(self) -> RebuiltProducer:
        """As it is now."""
        return RebuiltProducer(
            self.epoch,
            list(self.batches),
            self.coordinator_epoch,
            self.open_from,
            self.last_offset,
            self.last_timestamp_ms,
        )


class RebuiltAbort(NamedTuple):
    """An aborted transaction that a marker at `last_offset` has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Rebuilt:
    """`producers` by id, and the `aborts` in the order of their markers. Pass all batches to `apply`."""

    def __init__(self) -> None:
        self.producers: dict[int, RebuiltProducer] = {}
        self.aborts: list[tuple[int, RebuiltAbort]] = []
        """With the base offset of the segment that has the marker."""

    def apply_all(self, batches: Iterable[Batch]) -> None:
        """Reads batches in the order of their offsets."""
        for batch in batches:
            self.apply(batch)

    def apply(self, batch: Batch) -> None:
        """Reads the next batch."""
        header = batch.header
        if header.producer_id < 0:
            return
        if header.is_control:
            self._end(batch)
            return
        producer = self.producers.setdefault(header.producer_id, RebuiltProducer(header.producer_epoch))
        producer.enter(header.producer_epoch)
        produced = ProducedBatch(
            header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
        )
        producer.batches = [*producer.batches, produced][-MOST_BATCHES:]
        producer.last_offset, producer.last_timestamp_ms = header.last_offset, header.max_timestamp
        if header.is_transactional and producer.open_from < 0:
            producer.open_from = header.base_offset

    def _end(self, batch: Batch) -> None:
        end = batch.end_of_transaction
        if end is None:
            return
        header = batch.header
        producer = self.producers.setdefault(header.producer_id, RebuiltProducer(header.producer_epoch))
        first = producer.open_from
        producer.enter(header.producer_epoch)
        producer.coordinator_epoch, producer.open_from = end.coordinator_epoch, -1
        producer.last_offset, producer.last_timestamp_ms = header.base_offset, end.timestamp_ms
        if end.is_abort and first >= 0:
            stable = min((each.open_from for each in self.producers.values() if each.open_from >= 0), default=-1)
            abort = RebuiltAbort(
                header.producer_id, first, header.base_offset, header.base_offset + 1 if stable < 0 else stable
            )
            self.aborts.append((batch.segment_base, abort))
