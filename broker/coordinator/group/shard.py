"""GroupShard: the groups of one partition of `__consumer_offsets`, of every kind, and their offsets.

The shard alone creates groups: of records while it loads, for a member that joins, for a client that only commits.
While it loads, records only fill the two tables; `loaded` then starts the members' sessions. Afterwards only decisions
are replayed: all records of consumer groups, and of classic membership only tombstones, as a decision's `done` makes
all other changes of a classic group once the record is replicated.

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
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.replay import ConsumerReplay
from odradek.broker.coordinator.group.consumer.requests import BASE_SEQUENCE, ConsumerEnvironment, ConsumerRequests
from odradek.broker.coordinator.group.conversion import Conversions
from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.offsets.offsets import GroupOffsets
from odradek.broker.coordinator.group.offsets.records import OFFSET_COMMITS
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import Act, Decision
from odradek.protocol.errors import MalformedMessage, ProtocolError
from odradek.timer import Clock


class GroupEnvironment(NamedTuple):
    """What all shards share. `on_rebalanced()` is called for each completed rebalance."""

    settings: GroupSettings
    waits: GroupWaits
    clock: Clock
    random: Random
    on_rebalanced: Callable[[], object]
    consumer: ConsumerEnvironment


class GroupShard:
    """`act` carries out a decision on this shard. `joins` and `membership` handle the requests of classic members in
    classic groups, `consumers` all those of members of consumer groups.
    """

    def __init__(self, partition: int, act: Act, environment: GroupEnvironment) -> None:
        settings, waits, clock, random, on_rebalanced, consumer = environment
        self.partition = partition
        self.act = act
        self.groups: dict[str, Group] = {}
        self.offsets = GroupOffsets()
        self._clock = clock
        self._rebalances = Rebalances(waits, settings, act, on_rebalanced)
        self.joins = Joins(self.groups, self._first_classic, self._rebalances, settings, random)
        self.membership = Membership(self.groups, self._rebalances)
        self.consumers = ConsumerRequests(
            self.groups,
            act,
            consumer,
            clock,
            random,
            sessions=waits.heartbeat,
            steps=waits.rebalance,
            conversions=Conversions(
                self.groups, act, self._rebalances, consumer.topics, clock, most_bytes=2 * consumer.most_bytes
            ),
        )
        self._is_live = False
        consumers = ConsumerReplay(self._consumer_group, self._remove_consumer)
        self._replays: Mapping[int, Callable[..., None]] = {
            **dict.fromkeys(OFFSET_COMMITS, self.offsets.replay),
            GROUP_METADATA: self._replay_classic,
            **dict.fromkeys(consumers.types, consumers.replay),
        }
        """How the records are replayed, by their type."""

    # --- groups -------------------------------------------------------------------------------------------------

    def new_classic(self, group_id: str) -> ClassicGroup:
        """Creates a classic group without members. There is no group of this id."""
        group = self.groups[group_id] = ClassicGroup(group_id, self._clock, self._rebalances)
        return group

    def _first_classic(self, group_id: str) -> ClassicGroup:
        """Creates a classic group for its first member, in the place of one of another kind without members.

        Raises AppendFailed if the former cannot be deleted.
        """
        former = self.groups.get(group_id)
        if former is not None:
            errors: list[ProtocolError | None] = []
            decision = Decision(former.tombstones(), errors.append, base_sequence=BASE_SEQUENCE)
            self.act(decision)
            if decision.base_offset < 0 and errors and errors[0] is not None:
                raise errors[0]
        return self.new_classic(group_id)

    def _consumer_group(self, group_id: str, may_create: bool) -> ConsumerGroup | None:
        """See `ConsumerReplay`. A new one takes the place of a classic group."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not may_create:
            return None
        if group is not None and self._is_live:
            self._bury(group, "replaced by a consumer group")
        new = self.groups[group_id] = ConsumerGroup(group_id, self.consumers.timers)
        return new

    def _remove_consumer(self, group: ConsumerGroup) -> None:
        self._bury(group, "deleted")

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
            return
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return
        if not self._is_live:
            del self.groups[group_id]
        elif group.is_empty:
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
