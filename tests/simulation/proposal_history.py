"""What somebody asks of the controller, or of a leader, who may not: operations of the history."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.history import Operation, Request


@dataclass(slots=True, kw_only=True, eq=False)
class Proposal(Operation):
    """In-sync replicas of a partition, in these epochs of the leader, the partition and the broker's registration."""

    partition: TopicPartition
    in_sync: tuple[int, ...]
    broker_id: int
    broker_epoch: int
    leader_epoch: int
    partition_epoch: int

    def describe(self) -> str:
        """See Operation."""
        who = f"broker {self.broker_id} of registration {self.broker_epoch}"
        epochs = f"leader epoch {self.leader_epoch} and partition epoch {self.partition_epoch}"
        return f"propose {self.in_sync} for {self.partition} as {who} in {epochs}"


class StrayRequest(Request):
    """A request that must be refused, whatever is so when it arrives."""
