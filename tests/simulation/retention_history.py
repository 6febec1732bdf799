"""The deletion of records: on request, and by retention as it is seen in a broker. See history.py."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.history import Operation


@dataclass(slots=True, kw_only=True, eq=False)
class Deletion(Operation):
    """All records before an offset are to be deleted; -1: all below the high watermark. `low_watermark`: the smallest
    start of the replicas, as the leader answered."""

    partition: TopicPartition
    before: int
    low_watermark: int = -1

    def describe(self) -> str:
        """See Operation."""
        return f"delete the records of {self.partition} before {self.before}: the log starts at {self.low_watermark}"


@dataclass(slots=True, kw_only=True, eq=False)
class Skipped(Operation):
    """A consumer has found that its position is before the log's start, and goes on there."""

    partition: TopicPartition
    position: int
    start_offset: int

    def describe(self) -> str:
        """See Operation."""
        return f"skip {self.partition} from {self.position} to its start at {self.start_offset}"


@dataclass(slots=True, kw_only=True, eq=False)
class Retained(Operation):
    """A broker's retention has moved the start of a log. `reason`: why it should not have; nothing if it should."""

    partition: TopicPartition
    start_offset: int
    reason: str = ""

    def describe(self) -> str:
        """See Operation."""
        return f"deletes the segments of {self.partition} before {self.start_offset} {self.reason}".rstrip()
