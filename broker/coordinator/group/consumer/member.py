"""A member of a consumer group as its records describe it. (KIP-848)

A member is immutable: a change makes a new one, which takes the place of the old one in the group when the change's
records are replayed. Times in ms.

Source: Kafka's ConsumerGroupMember.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.member_requests import Protocols

JOINING = 0
"""The epoch of a heartbeat that joins, and of a member that has just been added."""
LEAVING = -1
"""The epoch of a heartbeat that leaves."""
AWAY = -2
"""The epoch of a static member that left for a while, and of the heartbeat that says so."""
NO_TIMEOUT = -1

Partitions = Mapping[UUID, frozenset[int]]
"""A target, or what a client says that it owns: partitions by topic id. No topic of a target is without partitions."""
Owned = Mapping[UUID, Mapping[int, int]]
"""An assignment: by topic id and partition, the epoch in which the member was assigned it."""
NOTHING: Mapping[UUID, frozenset[int]] = {}
NOTHING_OWNED: Mapping[UUID, Mapping[int, int]] = {}


class ClassicMemberMetadata(NamedTuple):
    """What only a member has that speaks the classic protocol: `protocols` are (name, metadata) pairs."""

    session_timeout_ms: int
    protocols: Protocols

    @property
    def names(self) -> frozenset[str]:
        """The names of its protocols."""
        return frozenset(name for name, _ in self.protocols)


class ConsumerMember(NamedTuple):
    """`subscribed_regex` is "" if there is none. `assigned` is what it may consume, `revoking` what it must give up.

    `previous_epoch` is the epoch before its last change of assignment, even if that was the same.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = NO_TIMEOUT
    server_assignor: str | None = None
    subscribed_topics: frozenset[str] = frozenset()
    subscribed_regex: str = ""
    classic: ClassicMemberMetadata | None = None
    epoch: int = JOINING
    previous_epoch: int = LEAVING
    state: MemberState = MemberState.STABLE
    assigned: Owned = NOTHING_OWNED
    revoking: Owned = NOTHING_OWNED

    @property
    def group_instance_id(self) -> str | None:
        return self.instance_id

    @property
    def waits_for(self) -> str | None:
        """See `GroupMember`."""
        return _WAITS_FOR.get(self.state)

    @property
    def is_away(self) -> bool:
        """Whether it is a static member that left for a while. It still owns its partitions."""
        return self.epoch == AWAY

    def has_reached(self, target_epoch: int) -> bool:
        """Whether it has its part of the target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def moved(self, epoch: int, state: MemberState, assigned: Owned, revoking: Owned = NOTHING_OWNED) -> ConsumerMember:
        """Returns the member after a step of reconciliation."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)

    def with_progress_of(self, other: ConsumerMember) -> ConsumerMember:
        """Returns the member with the epochs, state and partitions of another."""
        return self._replace(
            epoch=other.epoch,
            previous_epoch=other.previous_epoch,
            state=other.state,
            assigned=other.assigned,
            revoking=other.revoking,
        )

    def gone_for_a_while(self) -> ConsumerMember:
        """Returns the static member after it left for a while. Its successor has its partitions since epoch 0."""
        assigned = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in self.assigned.items()}
        return self._replace(epoch=AWAY, assigned=assigned, revoking=NOTHING_OWNED)

    def successor(self, member_id: str) -> ConsumerMember:
        """Returns the static member that takes this one's place under a new id."""
        return self._replace(member_id=member_id, epoch=JOINING, previous_epoch=JOINING)

    def owns_all(self, partitions: Partitions) -> bool:
        """Whether all of the partitions are assigned to it."""
        return all(
            numbers <= self.assigned.get(topic_id, _NO_EPOCHS).keys() for topic_id, numbers in partitions.items()
        )


_NO_EPOCHS: Mapping[int, int] = {}
_WAITS_FOR = {
    MemberState.UNREVOKED_PARTITIONS: "its client to give up partitions",
    MemberState.UNRELEASED_PARTITIONS: "other members to give up partitions",
}
