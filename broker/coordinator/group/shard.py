"""GroupShard: the groups of one partition of `__consumer_offsets`, of every kind, and their offsets.

The shard alone creates groups: of records while it loads, for a member that joins, for a client that only commits.
While it loads, records only fill the two tables; `loaded` then starts the members' sessions. Afterwards only decisions
are replayed, and of membership records only tombstones: a decision's `done` makes all other membership changes once the
record is replicated.

Source: Kafka's GroupCoordinatorShard, GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from odradek.broker.coordinator.group.classic.group import GROUP_METADATA, ClassicGroup
from odradek.broker.coordinator.group.classic.join import Joins
from odradek.broker.coordinator.group.classic.membership import Membership
from odradek.broker.coordinator.group.classic.rebalance import GroupWaits, Rebalances
from odradek.broker.coordinator.group.classic.records import read_group_id, restore_group
from odradek.broker.coordinator.group.classic.settings import GroupSettings
from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.offsets.offsets import GroupOffsets
from odradek.broker.coordinator.group.offsets.records import OFFSET_COMMITS
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import Act
from odradek.protocol.errors import MalformedMessage
from odradek.timer import Clock


class GroupEnvironment(NamedTuple):
    """What all shards share. `on_rebalanced()` is called for each completed rebalance."""

    settings: GroupSettings
    waits: GroupWaits
    clock: Clock
    random: Random
    on_rebalanced: Callable[[], object]


class GroupShard:
    """`act` carries out a decision on this shard. `joins` and `membership` handle the requests of classic members."""

    def __init__(self, partition: int, act: Act, environment: GroupEnvironment) -> None:
        settings, waits, clock, random, on_rebalanced = environment
        self.partition = partition
        self.act = act
        self.groups: dict[str, Group] = {}
        self.offsets = GroupOffsets()
        self._clock = clock
        self._rebalances = Rebalances(waits, settings, act, on_rebalanced)
        self.joins = Joins(self.groups, self.new_classic, self._rebalances, settings, random)
        self.membership = Membership(self.groups, self._rebalances)
        self._is_live = False
        self._replays: Mapping[int, Callable[..., None]] = {
            **dict.fromkeys(OFFSET_COMMITS, self.offsets.replay),
            GROUP_METADATA: self._replay_classic,
        }
        """How the records are replayed, by their type."""

    # --- groups -------------------------------------------------------------------------------------------------

    def new_classic(self, group_id: str) -> ClassicGroup:
        """Creates a classic group without members. There is no group of this id."""
        group = self.groups[group_id] = ClassicGroup(group_id, self._clock, self._rebalances)
        return group

    def group_or_new(self, group_id: str) -> Group:
        """Returns the group. If it does not exist, creates it: a group that only commits offsets."""
        group = self.groups.get(group_id)
        return self.new_classic(group_id) if group is None else group

    def forget_if_unused(self, group: Group) -> bool:
        """Removes the group if it has neither members nor offsets and expects no members. Returns whether it did."""
        if self.groups.get(group.group_id) is not group or not group.is_unused:
            return False
        if self.offsets.has_offsets(group.group_id):
            return False
        self._bury(group, "no members and no offsets are left")
        return True

    def _bury(self, group: Group, reason: str) -> None:
        del self.groups[group.group_id]
        group.die(reason)

    # --- the runtime's calls ------------------------------------------------------------------------------------

    def replay(
        self, record: CoordinatorRecord, *, offset: int, timestamp_ms: int, producer_id: int, producer_epoch: int
    ) -> None:
        """Applies a record. Raises MalformedMessage if it does not decode or its type is unknown."""
        replay = self._replays.get(record.kind)
        if replay is None:
            raise MalformedMessage(f"key version {record.kind} is unknown in __consumer_offsets")
        replay(record, offset=offset, timestamp_ms=timestamp_ms, producer_id=producer_id, producer_epoch=producer_epoch)

    def _replay_classic(self, record: CoordinatorRecord, **_: int) -> None:
        group_id = read_group_id(record)
        if record.value is not None:
            new = ClassicGroup(group_id, self._clock, self._rebalances)
            self.groups[group_id] = restore_group(new, record.value)
        elif not self._is_live:
            self.groups.pop(group_id, None)
        else:
            group = self.groups.get(group_id)
            if group is not None and group.is_empty:
                self._bury(group, "deleted")

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.offsets.replay_end_transaction(producer_id, producer_epoch, committed)

    def loaded(self) -> None:
        self._is_live = True
        for group_id in self.offsets.group_ids():
            self.group_or_new(group_id)
        for group in self.groups.values():
            group.loaded()

    def unload(self) -> None:
        for group in self.groups.values():
            group.unload()
        self.groups.clear()
