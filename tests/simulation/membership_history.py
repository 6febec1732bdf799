"""What members of consumer groups were told, what they gave up, and what they ask for that must be refused."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from tests.simulation.history import Operation

TopicIdPartition = tuple[UUID, int]


@dataclass(slots=True, kw_only=True, eq=False)
class Told(Operation):
    """A member was told its epoch, and what it may consume."""

    group: str
    member_id: str
    epoch: int
    partitions: Collection[TopicIdPartition]

    def describe(self) -> str:
        """See Operation."""
        return f"is {self.member_id} of {self.group} in epoch {self.epoch} with {named(self.partitions)}"


@dataclass(slots=True, kw_only=True, eq=False)
class GaveUp(Operation):
    """A member consumes these partitions no longer."""

    group: str
    member_id: str
    partitions: Collection[TopicIdPartition]
    reason: str

    def describe(self) -> str:
        """See Operation."""
        return f"gives up {named(self.partitions)} of {self.group} as {self.member_id}: {self.reason}"


@dataclass(slots=True, kw_only=True, eq=False)
class StrayBeat(Operation):
    """A heartbeat that must be refused: of an unknown member, in an epoch to come, for an instance that is there."""

    group: str
    what: str

    def describe(self) -> str:
        """See Operation."""
        return f"{self.what} of {self.group}"


def named(partitions: Collection[TopicIdPartition]) -> str:
    """The partitions, by the first digits of their topics' ids."""
    return ", ".join(f"{str(topic_id)[:4]}-{number}" for topic_id, number in sorted(partitions)) or "nothing"
