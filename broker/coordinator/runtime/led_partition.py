"""A partition of an internal topic that this broker leads, with its coordinator's shard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from odradek.broker.coordinator.runtime.shard import Decision, NewShard
from odradek.broker.replica.leader.appends import PartitionAppendResult
from odradek.protocol.topic_partition import TopicPartition


class LedPartition:
    """A partition of the internal topic that this broker leads, and its shard. `leadership`: see `Partition`.

    `unreplicated` is the last append that was replayed before it was replicated, if that may still be so.
    `act(led, decision)` carries out a decision of the shard that `new_shard` creates.
    """

    __slots__ = ("_is_current", "is_loading", "leader_epoch", "leadership", "shard", "topic_partition", "unreplicated")

    def __init__(
        self,
        topic_partition: TopicPartition,
        leader_epoch: int,
        leadership: int,
        new_shard: NewShard,
        act: Callable[[LedPartition, Decision], None],
    ) -> None:
        self.topic_partition = topic_partition
        self.leader_epoch = leader_epoch
        self.leadership = leadership
        self.is_loading = True
        self.unreplicated: PartitionAppendResult | None = None
        self._is_current = True
        self.shard = new_shard(topic_partition.partition, leader_epoch, partial(act, self))

    def is_current(self) -> bool:
        """False, permanently, once the shard has been unloaded."""
        return self._is_current

    def give_up(self) -> None:
        self._is_current = False
