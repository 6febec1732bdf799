"""What operators change while a cluster runs: settings, and the log directories of replicas. See history.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.history import Operation


class Setting(NamedTuple):
    """A setting of a topic, of a broker, or of all brokers (neither is named)."""

    name: str
    topic: str = ""
    broker_id: int = 0

    def __str__(self) -> str:
        of = self.topic or (f"broker {self.broker_id}" if self.broker_id else "all brokers")
        return f"{self.name} of {of}"


@dataclass(slots=True, kw_only=True, eq=False)
class SettingChange(Operation):
    """A setting gets a value."""

    setting: Setting
    value: str

    def describe(self) -> str:
        """See Operation."""
        return f"set {self.setting} to {self.value}"


@dataclass(slots=True, kw_only=True, eq=False)
class Move(Operation):
    """A replica is to move to another log directory of its broker. OK: the move has begun, or it was there."""

    partition: TopicPartition
    broker_id: int
    directory: str

    def describe(self) -> str:
        """See Operation."""
        return f"move {self.partition} on broker {self.broker_id} to {self.directory}"


@dataclass(slots=True, kw_only=True, eq=False)
class DiskFilled(Operation):
    """A broker's disk was full, and has room again. Moves may have been given up meanwhile."""

    broker_id: int

    def describe(self) -> str:
        """See Operation."""
        return f"the disk of broker {self.broker_id} was full"
