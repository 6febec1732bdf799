"""GroupShard: the groups of one partition of `__consumer_offsets`, their membership and their offsets.

While the shard loads, records only fill the two tables; `loaded` then starts the members' sessions. Afterwards only
decisions are replayed, and of membership records only tombstones: a decision's `done` makes all other membership
changes once the record is replicated.

Source: Kafka's GroupCoordinatorShard, GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.group_state import GroupState
from odradek.broker.coordinator.group.join import Joins
from odradek.broker.coordinator.group.membership import Membership
from odradek.broker.coordinator.group.offsets import GroupOffsets
from odradek.broker.coordinator.group.rebalance import GroupWaits, Rebalances
from odradek.broker.coordinator.group.records import GROUP_METADATA, group_tombstone, read_group, read_group_id
from odradek.broker.coordinator.group.settings import GroupSettings
from odradek.broker.coordinator.record import CoordinatorRecord
from odradek.broker.coordinator.shard import Act, Decision
from odradek.protocol.errors import ErrorCode, MalformedMessage, ProtocolError
from odradek.timer import Clock

OFFSET_COMMITS = (0, 1)
"""The key versions of offset commits."""


class GroupEnvironment(NamedTuple):
    """What all shards share. `on_rebalanced()` is called for each completed rebalance."""

    settings: GroupSettings
    waits: GroupWaits
    clock: Clock
    random: Random
    on_rebalanced: Callable[[], object]


class GroupShard:
    """`act` carries out a decision on this shard."""

    def __init__(self, partition: int, act: Act, environment: GroupEnvironment) -> None:
        settings, waits, clock, random, on_rebalanced = environment
        self.partition = partition
        self.act = act
        self.groups: dict[str, Group] = {}
        rebalances = Rebalances(waits, settings, act, on_rebalanced)
        self.joins = Joins(self.groups, rebalances, settings, clock, random)
        self.membership = Membership(self.groups, rebalances, settings)
        self.offsets = GroupOffsets()
        self._clock = clock
        self._is_live = False

    # --- groups -------------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        return self.groups.get(group_id)

    def group_or_new(self, group_id: str) -> Group:
        """Returns the group. If it does not exist, creates it as Empty: a group that only commits offsets."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self._clock)
        return group

    def heard_of(self, group: Group, member_id: str) -> None:
        """Extends the member's session for a request other than Heartbeat."""
        member = group.member(member_id)
        if member is not None:
            self.membership.sessions.extend(group, member)

    def delete(self, group_id: str, done: Callable[[ErrorCode], object]) -> None:
        """Deletes the group and its offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self.groups.get(group_id)
        if group is None:
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state is not GroupState.EMPTY:
            raise ProtocolError(ErrorCode.NON_EMPTY_GROUP)
        records = [*self.offsets.tombstones(group_id), *self.tombstone_of(group)]

        def settled(error: ProtocolError | None) -> None:
            if error is None:
                self.forget_if_unused(group)
            done(ErrorCode.NONE if error is None else error.code)

        self.act(Decision(records, settled))

    def tombstone_of(self, group: Group) -> list[CoordinatorRecord]:
        """Returns the tombstone of the group's membership, or nothing if no membership was ever written."""
        return [group_tombstone(group.group_id)] if group.generation_id > 0 else []

    def forget_if_unused(self, group: Group) -> bool:
        """Removes the group if it is Empty, has no offsets and no pending members. Returns whether it did."""
        if self.groups.get(group.group_id) is not group or group.state is not GroupState.EMPTY:
            return False
        if group.pending or self.offsets.has_offsets(group.group_id):
            return False
        self._bury(group, "no members and no offsets are left")
        return True

    def _bury(self, group: Group, reason: str) -> None:
        del self.groups[group.group_id]
        for member_id in list(group.pending):
            self.membership.sessions.expect_no_more(group, member_id)
        group.transition_to(GroupState.DEAD, reason)

    # --- the runtime's calls ------------------------------------------------------------------------------------

    def replay(
        self, record: CoordinatorRecord, *, offset: int, timestamp_ms: int, producer_id: int, producer_epoch: int
    ) -> None:
        """Applies a record. Raises MalformedMessage if it does not decode or its type is unknown."""
        kind = record.kind
        if kind in OFFSET_COMMITS:
            self.offsets.replay(
                record,
                offset=offset,
                timestamp_ms=timestamp_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
        elif kind == GROUP_METADATA:
            self._replay_group(read_group_id(record), record.value)
        else:
            raise MalformedMessage(f"key version {kind} is unknown in __consumer_offsets")

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        if value is not None:
            self.groups[group_id] = read_group(group_id, value, self._clock)
        elif not self._is_live:
            self.groups.pop(group_id, None)
        else:
            group = self.groups.get(group_id)
            if group is not None and group.state is GroupState.EMPTY:
                self._bury(group, "deleted")

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.offsets.replay_end_transaction(producer_id, producer_epoch, committed)

    def loaded(self) -> None:
        self._is_live = True
        for group_id in self.offsets.group_ids():
            self.group_or_new(group_id)
        for group in self.groups.values():
            self.membership.resume(group)

    def unload(self) -> None:
        for group in self.groups.values():
            self.membership.rebalances.give_up(group)
        self.groups.clear()
