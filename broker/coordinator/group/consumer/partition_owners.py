"""PartitionOwners: in which epoch each partition of a group's topics is owned.

A partition is owned if it is assigned to a member or the member has not given it up yet. Its epoch is that member's; a
static member that is away still owns its partitions.

Records of a damaged log may give a partition to two members. It then belongs to the one of the higher epoch, and is
free when that one releases it.

Source: Kafka's ConsumerGroup (currentPartitionEpoch, addPartitionEpochs, removePartitionEpochs).
"""

from __future__ import annotations

from uuid import UUID

from odradek.broker.coordinator.group.consumer.member import ConsumerMember

FREE = -1


class PartitionOwners:
    """`epoch(topic_id, partition)` is FREE if nobody owns the partition."""

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: dict[UUID, dict[int, int]] = {}

    def epoch(self, topic_id: UUID, partition: int) -> int:
        epochs = self._epochs.get(topic_id)
        return FREE if epochs is None else epochs.get(partition, FREE)

    def claim(self, member: ConsumerMember) -> None:
        """The member owns its partitions in its epoch."""
        epoch = member.epoch
        for owned in member.assigned, member.revoking:
            for topic_id, partitions in owned.items():
                epochs = self._epochs.setdefault(topic_id, {})
                for partition in partitions:
                    held = epochs.get(partition)
                    if held is None or held < epoch:
                        epochs[partition] = epoch

    def release(self, member: ConsumerMember) -> None:
        """The member no longer owns its partitions in its epoch."""
        epoch = member.epoch
        for owned in member.assigned, member.revoking:
            for topic_id, partitions in owned.items():
                epochs = self._epochs.get(topic_id)
                if epochs is None:
                    continue
                for partition in partitions:
                    if epochs.get(partition) == epoch:
                        del epochs[partition]
                if not epochs:
                    del self._epochs[topic_id]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionOwners) and other._epochs == self._epochs

    __hash__ = None  # type: ignore[assignment]
