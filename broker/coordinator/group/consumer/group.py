"""ConsumerGroup: the state of a group whose assignments the broker makes. (KIP-848)

Three numbers lead a group from a change to its end:

    epoch           grows when what the group consumes, or who consumes it, changes
    target_epoch    follows when a target assignment has been computed for the group's epoch
    a member's      follows when the member has what the target gives it

Only the replay of records changes the group: `put_member` and the other methods below keep all derived tables.

Source: Kafka's ModernGroup, ConsumerGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, ValuesView
from typing import NamedTuple, Protocol

import structlog

from odradek.broker.coordinator.group.consumer.commits import check_commit, check_fetch, is_anonymous
from odradek.broker.coordinator.group.consumer.member import NOTHING, ConsumerMember, Partitions
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.partition_owners import FREE, PartitionOwners
from odradek.broker.coordinator.group.consumer.records import tombstones_of_group
from odradek.broker.coordinator.group.consumer.state import ConsumerGroupState
from odradek.broker.coordinator.group.consumer.subscriptions import Subscriptions, decrease
from odradek.broker.coordinator.group.consumer.topic_hash import NO_TOPICS
from odradek.broker.coordinator.group.group import NO_TIMESTAMP, Committer, OffsetExpiry, PartitionCheck, Session
from odradek.broker.coordinator.group.member_requests import Protocols
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.schema import Message
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat
from odradek.purgatory.delayed_step import DelayedStep

CONSUMER = "consumer"
"""The type of these groups, and their protocol type."""
FIRST_EPOCH = 1
NO_TARGET = -1
UNKNOWN_TIME = 0
"""The timestamp of a target that delays the next one by no interval."""
LONGEST_LOGGED = 300
"""The number of characters logged of a text that comes from a client."""

log = structlog.get_logger("broker.coordinator.group")


class GroupTimers(Protocol):
    """Who keeps the sessions and the other timers of a group's members."""

    def resume(self, group: ConsumerGroup) -> None:
        """The group has been loaded: starts the sessions of all members, and their rebalance timeouts."""

    def give_up(self, group: ConsumerGroup) -> None:
        """The group has ended or moved away: cancels all timers."""

    def session_of(self, group: ConsumerGroup, member: ConsumerMember) -> Session: ...

    def step_of(self, group: ConsumerGroup, member_id: str) -> DelayedStep | None:
        """Returns the step that the member must take in time; None if there is none."""

    def sessions(self, group: ConsumerGroup) -> Iterable[DelayedHeartbeat]:
        """Yields the running sessions."""


class UnchangingHeartbeat(NamedTuple):
    """The last heartbeat of a member that changed nothing, with what its outcome rests on: `changes` of the group, and
    the settings.
    """

    request: object
    changes: int
    settings: object
    response: Message


class ConsumerGroup:
    """A new group has the first epoch, and a target of that epoch for nobody. Times in ms.

    `metadata_hash`: of the subscribed topics when the epoch grew last. `refresh_at_ms`: when it is computed again even
    if no subscription changes; 0 is at once. `is_resolving`: whether its regular expressions are being resolved.
    `resolved_version`: of the topics among which this coordinator resolved all of them last; `round_version`: among
    which it has begun to, and still has to for `left_regexes`.
    `changes`: the number of records replayed. `unchanging`: by member id.
    `has_partition_metadata`: whether the log has a record of an earlier release that must be deleted.
    """

    group_type = CONSUMER
    current_state_timestamp_ms = NO_TIMESTAMP

    def __init__(self, group_id: str, timers: GroupTimers) -> None:
        self.group_id = group_id
        self.protocol_type: str | None = CONSUMER
        self.protocol_name: str | None = None
        self.epoch = FIRST_EPOCH
        self.metadata_hash = NO_TOPICS
        self._hashed_version = 0
        """The `version` of the subscriptions of which the hash is."""
        self.target_epoch = FIRST_EPOCH
        self.target_timestamp_ms = UNKNOWN_TIME
        self.targets: dict[str, Partitions] = {}
        """By member id."""
        self.subscriptions = Subscriptions()
        self.owners = PartitionOwners()
        self.has_partition_metadata = False
        self.refresh_at_ms = 0
        self.is_resolving = False
        self.resolved_version: int | None = None
        self.round_version: int | None = None
        self.left_regexes: frozenset[str] = frozenset()
        self.changes = 0
        self.unchanging: dict[str, UnchangingHeartbeat] = {}
        self._is_dead = False
        self._timers = timers
        self._members: dict[str, ConsumerMember] = {}
        self._by_instance: dict[str, str] = {}
        self._progress: Counter[tuple[MemberState, int]] = Counter()
        """The number of members by state and epoch."""
        self._assignors: Counter[str] = Counter()
        """The number of members that want each assignor."""
        self._classic = 0
        self._classic_support: Counter[str] = Counter()
        """The number of classic members that support each protocol."""

    def check(self) -> None:
        """Asserts what holds between two requests: each derived table agrees with the members."""
        fresh = ConsumerGroup(self.group_id, self._timers)
        for regex, resolved in self.subscriptions.resolved.items():
            fresh.subscriptions.resolve(regex, resolved)
        for member in self.members:
            fresh.put_member(member)
        for table in ("owners", "_by_instance", "_progress", "_assignors", "_classic", "_classic_support"):
            ours, theirs = getattr(self, table), getattr(fresh, table)
            assert ours == theirs, f"{self.group_id}: {table} is {ours}, not {theirs}"
        names = self.subscriptions.names(), fresh.subscriptions.names()
        assert names[0] == names[1], f"{self.group_id}: {names[0]} are subscribed, not {names[1]}"
        assert self.targets.keys() <= self._members.keys(), f"{self.group_id}: a target without a member"

    # --- state --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if self._is_dead:
            return ConsumerGroupState.DEAD
        if not self._members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.RECONCILING if self.unreconciled else ConsumerGroupState.STABLE

    @property
    def state_name(self) -> str:
        return self.state.label

    @property
    def generation_id(self) -> int:
        return self.epoch

    @property
    def next_epoch(self) -> int:
        """The epoch that the next change leads to. In a damaged log the target's may be above the group's."""
        return max(self.epoch, self.target_epoch) + 1

    @property
    def unreconciled(self) -> int:
        """The number of members that do not have their part of the target yet."""
        return len(self._members) - self._progress[MemberState.STABLE, self.target_epoch]

    # --- members ------------------------------------------------------------------------------------------------

    @property
    def members(self) -> ValuesView[ConsumerMember]:
        return self._members.values()

    @property
    def members_by_id(self) -> Mapping[str, ConsumerMember]:
        return self._members

    @property
    def size(self) -> int:
        return len(self._members)

    @property
    def classic_members(self) -> int:
        """The number of members that speak the classic protocol."""
        return self._classic

    def member(self, member_id: str) -> ConsumerMember | None:
        return self._members.get(member_id)

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """Returns the member of the instance."""
        return self._members.get(self._by_instance.get(instance_id, ""))

    def checked_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Returns the member that a request names.

        Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if the instance has another member id.
        """
        if instance_id is None:
            member = self._members.get(member_id)
        else:
            member = self.static_member(instance_id)
            if member is not None and member.member_id != member_id:
                raise ProtocolError(ErrorCode.FENCED_INSTANCE_ID)
        if member is None:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def is_leader(self, member_id: str) -> bool:
        """The broker assigns: no member leads."""
        return False

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a classic client can join: all classic members must support one of its protocols."""
        return protocol_type == CONSUMER and any(self._classic_support[name] == self._classic for name, _ in protocols)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether others own any partition that the target gives the member."""
        return any(
            partition not in member.assigned.get(topic_id, ()) and self.owners.epoch(topic_id, partition) != FREE
            for topic_id, partitions in self.target_of(member.member_id).items()
            for partition in partitions
        )

    def preferred_assignor(
        self, known: Sequence[str], old: ConsumerMember | None = None, new: ConsumerMember | None = None
    ) -> str:
        """Returns the assignor that most members want, after the change of one member; the first known if none does.

        Between equals, and for names that are no longer known, the order of `known` decides.
        """
        wanted = {name: self._assignors.get(name, 0) for name in known}
        for member, change in (old, -1), (new, 1):
            if member is not None and member.server_assignor in wanted:
                wanted[member.server_assignor] += change
        return max(known, key=wanted.__getitem__)

    # --- what records change ------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        """The epoch has grown. The hash is that of the topics which are subscribed now."""
        self.epoch = epoch
        self.metadata_hash = metadata_hash
        self._hashed_version = self.subscriptions.version

    def has_resolved(self, left: frozenset[str] = frozenset()) -> None:
        """A run over the regular expressions has ended. It has left these to the next one."""
        self.left_regexes = left
        if not left:
            self.resolved_version = self.round_version

    @property
    def has_hash_of_its_topics(self) -> bool:
        """Whether no other topics are subscribed than when the epoch grew last.

        They may be: the topics of an expression go at once when its last member uses another one.
        """
        return self._hashed_version == self.subscriptions.version

    def put_member(self, member: ConsumerMember) -> None:
        """Adds the member, or replaces the one with its id."""
        old = self._members.get(member.member_id)
        self.subscriptions.move(old, member)
        if old is not None:
            self._forget(old)
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.member_id
        if member.server_assignor is not None:
            self._assignors[member.server_assignor] += 1
        self._progress[member.state, member.epoch] += 1
        if member.classic is not None:
            self._classic += 1
            self._classic_support.update(member.classic.names)
        self.owners.claim(member)

    def remove_member(self, member_id: str) -> None:
        """Removes the member and its target, if it is one."""
        self.targets.pop(member_id, None)
        self.unchanging.pop(member_id, None)
        member = self._members.pop(member_id, None)
        if member is not None:
            self.subscriptions.move(member, None)
            self._forget(member)

    def _forget(self, member: ConsumerMember) -> None:
        """Takes a former state of a member out of all tables but that of members and subscriptions."""
        instance_id = member.instance_id
        if instance_id is not None and self._by_instance.get(instance_id) == member.member_id:
            del self._by_instance[instance_id]
        if member.server_assignor is not None:
            decrease(self._assignors, member.server_assignor)
        decrease(self._progress, (member.state, member.epoch))
        if member.classic is not None:
            self._classic -= 1
            for name in member.classic.names:
                decrease(self._classic_support, name)
        self.owners.release(member)

    def set_target(self, member_id: str, target: Partitions | None) -> None:
        """Sets the target of a member, or (None) deletes it."""
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    # --- offsets ------------------------------------------------------------------------------------------------

    def accept_commit(self, who: Committer, *, in_transaction: bool = False) -> PartitionCheck | None:
        """Returns the check of each partition; None if all are accepted. Raises as `check_commit` does."""
        if who.generation_id < 0 and not self._members:
            return None
        if in_transaction and is_anonymous(who):
            return None
        return check_commit(self.member(who.member_id), who, who.api_version, in_transaction=in_transaction)

    def accept_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises as `check_fetch` does. A client that names no member may fetch."""
        if member_id is not None or member_epoch >= 0:
            check_fetch(self.member(member_id or ""), member_epoch)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions

    def offset_expiry(self) -> OffsetExpiry:
        """Each offset of a topic that is not subscribed expires, counted from its commit."""
        return OffsetExpiry(kept_topics=self.subscriptions.names())

    def check_offsets_deletable(self) -> None:
        """Offsets of topics that are not subscribed may be deleted in any state."""

    # --- its end, and moves of its partition --------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._members

    @property
    def is_unused(self) -> bool:
        return not self._members

    def tombstones(self) -> list[CoordinatorRecord]:
        return tombstones_of_group(self.group_id, list(self._members), list(self.subscriptions.resolved))

    def die(self, reason: str) -> None:
        self._end(reason)

    def loaded(self) -> None:
        self._timers.resume(self)

    def unload(self) -> None:
        self._end("the partition is unloaded")

    def _end(self, reason: str) -> None:
        former = self.state
        self._is_dead = True
        self.log_change(former, reason)
        self._timers.give_up(self)

    def log_change(self, former: ConsumerGroupState, reason: str) -> None:
        """Logs that the state is another one than before, if it is."""
        if self.state is not former:
            log.info(
                "group state changed",
                group=self.group_id[:LONGEST_LOGGED],
                old=former.label,
                new=self.state_name,
                reason=reason[:LONGEST_LOGGED],
                generation=self.epoch,
                members=self.size,
            )

    def session_of(self, member_id: str) -> Session | None:
        member = self._members.get(member_id)
        return None if member is None else self._timers.session_of(self, member)

    def step_of(self, member_id: str) -> DelayedStep | None:
        """Returns the step that the member must take in time; None if there is none."""
        return self._timers.step_of(self, member_id)

    def sessions(self) -> Iterable[DelayedHeartbeat]:
        return self._timers.sessions(self)

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.group_id!r}, {self.state_name}, {self.epoch}, members={self.size})"
