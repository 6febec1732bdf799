"""A classic group: its members, its protocol, its state, and what it promises as every kind of group does.

Nothing here parks requests or writes records; `join.py`, `membership.py` and `rebalance.py` do. Members are kept in the
order in which they joined. Where several qualify (as new leader, or with equal votes), the first one is chosen.

Who may commit offsets:

(a) A Dead group accepts no commits.
(b) A group without members accepts any commit without a generation: admin clients, consumers with manual assignment.
(c) A commit that names a generation, a member or an instance must come from that member in that generation.
(d) A group with members refuses a commit that names none of the three. In a transaction it accepts such a commit
    unchecked, because old clients cannot name them there.
(e) While members wait for their assignments, only commits in transactions are accepted.

Which offsets expire:

(f) Empty group with a protocol type: all offsets, counted from when the group became Empty. If the group's record is
    too old to contain that time, each is counted from its commit.
(g) Stable consumer group: offsets of topics without a subscribed member, from their commit. If the subscriptions cannot
    be decoded, no offset expires.
(h) Group that only stores offsets (no protocol type): each from its commit.
(i) Any other group (rebalancing, or of another protocol type and with members): no offset expires.

Times are milliseconds. `current_state_timestamp_ms` is since 1970, and -1 if an old record did not contain it.
Source: Kafka's GroupMetadata, ClassicGroup; GroupCoordinator.validateOffsetCommit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, ValuesView
from typing import Protocol

import structlog

from odradek.broker.coordinator.group.classic.member import (
    CONSUMER,
    Member,
    Sessions,
    Support,
    can_found,
    subscribed_topics,
)
from odradek.broker.coordinator.group.classic.state import CAN_REBALANCE, TRANSITIONS, GroupState, IllegalTransition
from odradek.broker.coordinator.group.group import NO_MEMBER, NO_TIMESTAMP, Committer, OffsetExpiry, Session
from odradek.broker.coordinator.group.member_requests import JoinAnswer, Protocols
from odradek.broker.coordinator.runtime.record import CoordinatorRecord, encode_key
from odradek.protocol.errors import ErrorCode, MalformedMessage, ProtocolError
from odradek.protocol.messages.group_records import GroupMetadataKey
from odradek.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat
from odradek.timer import Clock

CLASSIC = "classic"
"""The group type. (KIP-848)"""
OF_MEMBERS = (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)
"""A group has these states only with members."""
GROUP_METADATA = 2
"""The key version of the record of a group."""
LONGEST_LOGGED = 300
"""The number of characters logged of a text that comes from a client."""

log = structlog.get_logger("broker.coordinator.group")


class Actions(Protocol):
    """What a group leaves to those who park requests: `Rebalances`."""

    @property
    def sessions(self) -> Sessions[ClassicGroup]: ...

    def resume(self, group: ClassicGroup) -> None:
        """See `Group.loaded`."""

    def give_up(self, group: ClassicGroup, reason: str, code: ErrorCode) -> None:
        """See `Group.die` and `Group.unload`: parked requests are answered with the error."""


class FormerMember(Protocol):
    """A member of a consumer group, see `conversion.py`. Its epoch was its generation."""

    @property
    def epoch(self) -> int: ...


class ClassicGroup:
    """`pending` holds assigned member ids whose clients have not joined yet. `pending_sync` holds members of this
    generation whose SyncGroup has not arrived. `new_member_added` extends the first rebalance.
    """

    group_type = CLASSIC

    __slots__ = (
        "_actions",
        "_by_instance",
        "_clock",
        "_members",
        "_support",
        "awaiting",
        "current_state_timestamp_ms",
        "former",
        "former_generation",
        "generation_id",
        "group_id",
        "leader_id",
        "new_member_added",
        "pending",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "state",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, clock: Clock, actions: Actions) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.subscribed_topics: frozenset[str] | None = None
        """The topics that the members of a consumer group are subscribed to; None if unknown."""
        self.former: dict[str, FormerMember] = {}
        """By member id: the members of a consumer group that has become this group, until it has an assignment."""
        self.former_generation = 0
        """The generation in which the epochs of the former members are as good."""
        self.pending: dict[str, DelayedHeartbeat] = {}
        self.pending_sync: set[str] = set()
        self.new_member_added = False
        self.current_state_timestamp_ms = clock.wall_ms()
        self._clock = clock
        self._actions = actions
        self._members: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}
        self._support = Support()
        self.awaiting = 0
        """The number of members with a parked JoinGroup."""

    def check(self) -> None:
        """Asserts what holds between two requests: counts and indexes agree with the members, and the state with their
        number.
        """
        members = self._members
        assert all(key == member.member_id for key, member in members.items()), f"{self.group_id}: a member's key"
        instances = {
            each.group_instance_id: each.member_id for each in self.members if each.group_instance_id is not None
        }
        assert instances == self._by_instance, f"{self.group_id}: instances are {self._by_instance}, not {instances}"
        joined = sum(member.awaiting_join is not None for member in self.members)
        assert joined == self.awaiting, (
            f"{self.group_id}: {joined} members wait for their JoinGroup, not {self.awaiting}"
        )
        supported = Counter(name for member in self.members for name in {name for name, _ in member.protocols})
        assert supported == self._support, f"{self.group_id}: members support {supported}, not {self._support}"
        assert self.pending_sync <= members.keys(), f"{self.group_id}: who left is expected to sync"
        assert not members or self.leader_id in members, f"{self.group_id}: {self.leader_id} leads and is no member"
        assert members or self.state not in OF_MEMBERS, f"{self.group_id} is {self.state.label} without members"

    # --- state --------------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return self.state.label

    def transition_to(self, state: GroupState, reason: str) -> None:
        """Changes the state and logs it. Raises IllegalTransition if the table has no such transition."""
        if (self.state, state) not in TRANSITIONS:
            raise IllegalTransition(self.group_id, self.state, state)
        log.info(
            "group state changed",
            group=self.group_id[:LONGEST_LOGGED],
            old=self.state.label,
            new=state.label,
            reason=reason[:LONGEST_LOGGED],
            generation=self.generation_id,
            members=len(self._members),
        )
        self.state = state
        self.current_state_timestamp_ms = self._clock.wall_ms()

    @property
    def can_rebalance(self) -> bool:
        return self.state in CAN_REBALANCE

    def begin_generation(self, reason: str) -> None:
        """Begins the next generation with the current members and the protocol that they voted for."""
        self.generation_id += 1
        self.pending_sync.clear()
        if self._members:
            self.protocol_name = self.select_protocol()
            self.transition_to(GroupState.COMPLETING_REBALANCE, reason)
        else:
            self.protocol_name = None
            self.transition_to(GroupState.EMPTY, reason)
        self.subscribed_topics = self._topics_of_members()

    # --- members ------------------------------------------------------------------------------------------------

    @property
    def members(self) -> ValuesView[Member]:
        return self._members.values()

    @property
    def size(self) -> int:
        return len(self._members)

    def member(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def static_member_id(self, group_instance_id: str) -> str | None:
        """Returns the current member id of the instance, or None."""
        return self._by_instance.get(group_instance_id)

    def checked_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """Returns the member that a request names.

        Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if the instance has another member id now. (KIP-345)
        """
        if group_instance_id is not None:
            current = self._by_instance.get(group_instance_id)
            if current is None:
                raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise ProtocolError(ErrorCode.FENCED_INSTANCE_ID)
        member = self._members.get(member_id)
        if member is None:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_generation(self, member: Member, generation_id: int) -> None:
        """Raises ILLEGAL_GENERATION if the member is in another generation."""
        if generation_id not in (self.generation_id, self.epoch_of(member)):
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)

    def epoch_of(self, member: Member) -> int:
        """Returns the generation, or the epoch of a former member of a consumer group that has no generation yet."""
        former = self.former.get(member.member_id)
        if former is None or self.generation_id != self.former_generation:
            return self.generation_id
        return former.epoch

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def add(self, member: Member) -> None:
        """Adds a member. The caller has checked that its protocols are supported and its instance is not a member."""
        if member.group_instance_id is not None:
            self._by_instance[member.group_instance_id] = member.member_id
        if not self._members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._members[member.member_id] = member
        self._support.add(member.protocols)

    def remove(self, member_id: str) -> Member | None:
        """Removes and returns the member, or returns None. The caller must answer its parked requests first."""
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        assert member.awaiting_join is None, "the member's parked JoinGroup must be answered first"
        self._support.withdraw(member.protocols)
        self.former.pop(member_id, None)
        if member.group_instance_id is not None:
            self._by_instance.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self._members), None)
        return member

    def replace_static_member(self, member: Member, new_member_id: str) -> None:
        """Changes the member's id. The member moves to the end of the order; everything else is kept."""
        assert member.group_instance_id is not None
        old_member_id = member.member_id
        del self._members[old_member_id]
        member.member_id = new_member_id
        self._members[new_member_id] = member
        self._by_instance[member.group_instance_id] = new_member_id
        former = self.former.pop(old_member_id, None)
        if former is not None:
            self.former[new_member_id] = former
        if self.is_leader(old_member_id):
            self.leader_id = new_member_id
        if old_member_id in self.pending_sync:
            self.pending_sync.remove(old_member_id)
            self.pending_sync.add(new_member_id)

    def update_member(
        self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self._support.withdraw(member.protocols)
        member.protocols = protocols
        self._support.add(protocols)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def elect_joined_leader(self) -> bool:
        """Elects a leader among the members that have joined. Returns False if none has joined."""
        leader = self._members.get(self.leader_id or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        joined = next((member for member in self.members if member.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def await_join(self, member: Member, answer: JoinAnswer) -> None:
        """Parks the member's JoinGroup. The caller must answer an already parked one first."""
        assert member.awaiting_join is None
        member.awaiting_join = answer
        self.awaiting += 1

    def answer_join(self, member: Member, response: JoinGroupResponse) -> bool:
        """Answers the member's parked JoinGroup. Returns False if there is none."""
        answer, member.awaiting_join = member.awaiting_join, None
        if answer is None:
            return False
        self.awaiting -= 1
        answer(response)
        return True

    def answer_sync(self, member: Member, response: SyncGroupResponse) -> bool:
        """Answers the member's parked SyncGroup. Returns False if there is none."""
        answer, member.awaiting_sync = member.awaiting_sync, None
        if answer is None:
            return False
        answer(response)
        return True

    # --- protocol and subscriptions -----------------------------------------------------------------------------

    @property
    def has_all_joined(self) -> bool:
        return not self.pending and self.awaiting == len(self._members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member."""
        return max((member.rebalance_timeout_ms for member in self.members), default=0)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a client with these protocols can join: at least one must be supported by all members."""
        if self.state is GroupState.EMPTY:
            return can_found(protocol_type, protocols)
        everyone = len(self._members)
        return protocol_type == self.protocol_type and any(self._support[name] == everyone for name, _ in protocols)

    def select_protocol(self) -> str:
        """Returns the protocol with the most votes. Each member votes for its first choice among those all support."""
        everyone = len(self._members)
        candidates = {name for name, supporters in self._support.items() if supporters == everyone}
        votes = Counter(member.vote(candidates) for member in self.members)
        return votes.most_common(1)[0][0]

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER

    def restore(self, generation_id: int, protocol: tuple[str, str | None], leader_id: str | None) -> None:
        """Sets the state read from a record, after the members have been added. `protocol` is (type, name)."""
        self.generation_id = generation_id
        self.protocol_type = protocol[0] or None
        self.protocol_name = protocol[1]
        self.leader_id = leader_id
        self.state = GroupState.STABLE if self._members else GroupState.EMPTY
        self.subscribed_topics = self._topics_of_members()

    def _topics_of_members(self) -> frozenset[str] | None:
        if not self.is_consumer_group:
            return None
        if not self._members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            return subscribed_topics(member.metadata(self.protocol_name) for member in self.members)
        except (MalformedMessage, KeyError) as error:
            log.warning("subscription not decoded", group=self.group_id, reason=str(error))
            return None

    # --- offsets ------------------------------------------------------------------------------------------------

    def accept_commit(self, who: Committer, *, in_transaction: bool = False) -> None:
        """Raises COORDINATOR_NOT_AVAILABLE (a), UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION (c, d),
        REBALANCE_IN_PROGRESS (e).
        """
        state = self.state
        if state is GroupState.DEAD:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if state is GroupState.EMPTY and who.generation_id < 0:
            return
        member = None
        if who.generation_id >= 0 or who.member_id != NO_MEMBER or who.group_instance_id is not None:
            member = self.checked_member(who.member_id, who.group_instance_id)
            self.check_generation(member, who.generation_id)
        elif not in_transaction:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        if in_transaction:
            return
        if state is GroupState.COMPLETING_REBALANCE:
            raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)
        if member is not None:
            self._actions.sessions.extend(self, member)

    def accept_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anybody may fetch: members of classic groups do not name themselves."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether any member is subscribed to the topic. True if the subscriptions are unknown."""
        if self.is_empty:
            return False
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def offset_expiry(self) -> OffsetExpiry | None:
        if self.protocol_type is None:  # (h)
            return OffsetExpiry()
        if self.is_empty:  # (f)
            since_ms = self.current_state_timestamp_ms
            return OffsetExpiry(None if since_ms == NO_TIMESTAMP else since_ms)
        if self.state is GroupState.STABLE and self.is_consumer_group and self.subscribed_topics is not None:  # (g)
            return OffsetExpiry(kept_topics=self.subscribed_topics)
        return None  # (i)

    def check_offsets_deletable(self) -> None:
        """Raises GROUP_ID_NOT_FOUND for a Dead group, NON_EMPTY_GROUP for members with another protocol type."""
        if self.state is GroupState.DEAD:
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)
        if not self.is_empty and not self.is_consumer_group:
            raise ProtocolError(ErrorCode.NON_EMPTY_GROUP)

    # --- its end, and moves of its partition --------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        return self.is_empty and not self.pending

    @property
    def record_key(self) -> bytes:
        return encode_key(GroupMetadataKey(group=self.group_id), GROUP_METADATA)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(self.record_key, None)] if self.generation_id > 0 else []

    def die(self, reason: str) -> None:
        """Members must join the group again, in which they are members of another kind now."""
        self._actions.give_up(self, reason, ErrorCode.REBALANCE_IN_PROGRESS)

    def loaded(self) -> None:
        self._actions.resume(self)

    def unload(self) -> None:
        self._actions.give_up(self, "the partition is unloaded", ErrorCode.NOT_COORDINATOR)

    def session_of(self, member_id: str) -> Session | None:
        member = self._members.get(member_id)
        return None if member is None else Session(member.session_timeout_ms, member.heartbeat)

    def sessions(self) -> Iterator[DelayedHeartbeat]:
        yield from self.pending.values()
        for member in self.members:
            if member.heartbeat is not None:
                yield member.heartbeat

    def __repr__(self) -> str:
        return f"ClassicGroup({self.group_id!r}, {self.state.label}, {self.generation_id}, members={self.size})"
