"""A minimal partition: a log of bytes in segments."""

from collections.abc import Callable
from typing import NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import ANSWER_NOW
from tests.purgatory.harness import PurgatoryHarness


class Target(NamedTuple):
    """A fetch's request for a partition: the offset (of a byte, here), the maximum size, the epoch."""

    topic_partition: TopicPartition
    offset: int
    max_bytes: int = 1 << 20
    leader_epoch: int = 0
    last_fetched_epoch_end: int | None = None


class PartitionModel:
    """A partition that notifies the purgatory's harness of its changes."""

    def __init__(self, harness: PurgatoryHarness, size: int = 0) -> None:
        self.harness = harness
        self.topic_partition = TopicPartition("topic", 0)
        self.log_end_offset = size
        self.segment_base_offset = 0
        self.leader_epoch = 0
        self.error = ErrorCode.NONE

    def append(self, size: int) -> None:
        self.log_end_offset += size
        self._changed()

    def roll(self) -> None:
        self.segment_base_offset = self.log_end_offset

    def fail(self, error: ErrorCode) -> None:
        self.error = error
        self._changed()

    def progress(self, target: Target) -> int:
        if self.error != ErrorCode.NONE or target.leader_epoch != self.leader_epoch:
            return ANSWER_NOW
        if target.last_fetched_epoch_end is not None and target.last_fetched_epoch_end < target.offset:
            return ANSWER_NOW
        if target.offset > self.log_end_offset:
            return ANSWER_NOW
        if target.offset < self.log_end_offset and target.offset < self.segment_base_offset:
            return ANSWER_NOW
        return min(self.log_end_offset - target.offset, target.max_bytes)

    def reader(self, target: Target, into: list[int]) -> Callable[[], None]:
        """An on_response callback that reads the available bytes."""
        return lambda: into.append(min(max(self.log_end_offset - target.offset, 0), target.max_bytes))

    def _changed(self) -> None:
        self.harness.completions.add(self.harness.purgatory, self.topic_partition)
