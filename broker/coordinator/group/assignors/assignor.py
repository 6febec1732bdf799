"""What an assignor is given and returns.

Source: Kafka's ConsumerGroupPartitionAssignor, GroupSpec, MemberSubscription.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from odradek.broker.background.stepwise import Steps

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic id. No topic is without partitions."""
Target = dict[str, Partitions]
"""The partitions of each member, by member id."""


class MemberSpec(NamedTuple):
    """`topics`: the existing topics that it is subscribed to. `target`: its part of the last target."""

    instance_id: str | None
    topics: frozenset[UUID]
    target: Partitions


class AssignmentSpec(NamedTuple):
    """The members by id, and how many partitions each topic has that any of them is subscribed to."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]

    def is_homogeneous(self) -> bool:
        """Whether all members are subscribed to the same topics."""
        topics = {member.topics for member in self.members.values()}
        return len(topics) <= 1


Assignor = Callable[[AssignmentSpec], Steps[Target]]
"""Assigns each partition to one of the members that are subscribed to its topic. The result has every member."""
