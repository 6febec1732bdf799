"""Which seeds have small segments: half of them. There, logs roll, are recovered, cleaned and deleted hundreds of times
in a run, those of the internal topics, too.

What is drawn here comes from a source of its own, as in security.py.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

SHARE = 0.5
SIZES = (4096, 8192)
INTERVALS = (100, 500)
INDEX_SIZES = (96, 512)
"""In bytes. The smaller ones are full before a segment is."""
DELETE_RETENTION_MS = 25_000
"""Longer than a replica is away: one that comes back must find the tombstones and the markers of what it has. Faults
that overlap may keep it away for almost 20 seconds, and for one fetch timeout more."""
FETCH_TIMEOUT_MS = 5_000
"""For so long a follower waits for a leader that lost power while a fetch was waiting there: it never answers."""
LARGEST_BATCH_FACTOR = 4
"""Producers that make up for lost time send so many times more records in a batch: it must fit in a segment."""


class Segments(NamedTuple):
    """The sizes of all logs' segments and indexes, in bytes. Groups write little, so theirs are smaller."""

    size: int
    index_interval: int
    index_size: int

    def settings(self) -> dict[str, str]:
        """The settings of all brokers."""
        return {
            "log.segment.bytes": str(self.size),
            "offsets.topic.segment.bytes": str(self.size // 2),
            "transaction.state.log.segment.bytes": str(self.size),
            "log.index.interval.bytes": str(self.index_interval),
            "log.index.size.max.bytes": str(self.index_size),
            "log.cleaner.backoff.ms": "500",
            "log.cleaner.min.cleanable.ratio": "0.05",
            "log.cleaner.delete.retention.ms": str(DELETE_RETENTION_MS),
            "log.segment.delete.delay.ms": "500",
            "replica.socket.timeout.ms": str(FETCH_TIMEOUT_MS),
        }


def segments_of(seed: int) -> Segments | None:
    """How small the segments of a seed are; None: they are not."""
    source = Random(f"{seed} small segments")
    if source.random() >= SHARE:
        return None
    return Segments(source.randint(*SIZES), source.randint(*INTERVALS), source.randint(*INDEX_SIZES))
