"""What is seen in the logs of brokers at the moment when it happens. See history.py."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.history import Operation, Wrong


@dataclass(slots=True, kw_only=True, eq=False)
class SeenInLog(Wrong):
    """Something is wrong with a replica's log. `when`: after a start, a truncation, a cleaning."""

    partition: TopicPartition
    when: str
    reason: str

    def describe(self) -> str:
        """See Operation."""
        return f"has {self.partition}, after {self.when}, with {self.reason}"


class Underived(SeenInLog):
    """Something that is derived from the batches is not what they give."""


class Miscleaned(SeenInLog):
    """A cleaning has removed or changed what it must keep."""


@dataclass(slots=True, kw_only=True, eq=False)
class OfflineThoughSound(Wrong):
    """A replica is offline while another log directory than its own has failed."""

    partition: TopicPartition
    reason: str

    def describe(self) -> str:
        """See Operation."""
        return f"has {self.partition} offline, whose log directory is sound: {self.reason}"


@dataclass(slots=True, kw_only=True, eq=False)
class Undecodable(Operation):
    """A consumer got a batch that cannot be decoded."""

    partition: TopicPartition
    base_offset: int
    reason: str

    def describe(self) -> str:
        """See Operation."""
        return f"read a batch at {self.base_offset} of {self.partition} that cannot be decoded: {self.reason}"
