"""Counts offsets committed, expired and deleted since the broker started. (Kafka's group-coordinator-metrics)"""

from __future__ import annotations


class OffsetMetrics:
    """Counts of offsets, not of requests."""

    __slots__ = ("commits", "deletions", "expirations")

    def __init__(self) -> None:
        self.commits = 0
        self.deletions = 0
        self.expirations = 0
