"""A member of a classic group: its identity, the protocols that it supports, its parked requests and its session.

A member supports several protocols and sends its metadata for each. In a consumer group a protocol is an assignor, and
the metadata is the member's subscription.

A member that sends nothing within its session timeout is removed from the group:

| member                                      | timeout             | what keeps it in the group                     |
|---------------------------------------------|---------------------|------------------------------------------------|
| member of a generation                      | its session timeout | Heartbeat, OffsetCommit, JoinGroup, SyncGroup  |
| member with a parked JoinGroup or SyncGroup | none                | other members delay the response               |
| new member with its first JoinGroup parked  | five minutes        | the next generation begins                     |
| client that was assigned a member id        | its session timeout | JoinGroup with that id                         |

Times are milliseconds. Source: Kafka's MemberMetadata, GroupCoordinator (completeAndScheduleNextExpiration,
addPendingMemberExpiration, onExpireHeartbeat).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.member_requests import JoinAnswer, Protocols, SyncAnswer
from odradek.protocol.compiler import read
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.purgatory import DelayedOperationPurgatory
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long the first JoinGroup of a new member may be parked. (Kafka's NewMemberJoinTimeoutMs)"""
CONSUMER = "consumer"
"""The protocol type of consumer groups. The broker can decode the metadata of their members."""
_VERSION_BYTES = 2


class Member:
    """A member with a `group_instance_id` is static (KIP-345): it remains a member while it is disconnected.

    `is_new`: its first JoinGroup has not been answered yet. Until then the new-member join timeout applies instead of
    the session timeout. `heartbeat` is the parked operation that expires its session.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "heartbeat",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: JoinAnswer | None = None
        self.awaiting_sync: SyncAnswer | None = None
        self.is_new = False
        self.heartbeat: DelayedHeartbeat | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def waits_for_the_group(self) -> bool:
        """Whether the member has a parked request that other members delay. Its session does not expire meanwhile."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    @property
    def waits_for(self) -> str | None:
        """The request that is parked, if one is."""
        if self.awaiting_join is not None:
            return "JoinGroup"
        return "SyncGroup" if self.awaiting_sync is not None else None

    def metadata(self, protocol: str) -> bytes:
        """Returns the member's metadata for the protocol. Raises KeyError if the member does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(protocol)

    def matches(self, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether `protocols` equals the member's protocols, including their order."""
        return self.protocols == tuple(protocols)

    def vote(self, candidates: Collection[str]) -> str:
        """Returns the candidate that the member prefers. Raises KeyError if it supports none."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise KeyError(f"{self.member_id} supports none of {sorted(candidates)}")

    def __repr__(self) -> str:
        return f"Member({self.member_id!r}, instance={self.group_instance_id!r})"


class GroupOfMembers(Protocol):
    """What sessions know of a group: `ClassicGroup`."""

    group_id: str
    state: GroupState
    pending: dict[str, DelayedHeartbeat]

    def member(self, member_id: str) -> Member | None: ...


G = TypeVar("G", bound=GroupOfMembers)


class Sessions(Generic[G]):
    """Calls `on_missed(group, member)` or `on_pending_missed(group, member_id)` when a session expires."""

    __slots__ = ("_on_missed", "_on_pending_missed", "_purgatory")

    def __init__(
        self,
        purgatory: DelayedOperationPurgatory,
        on_missed: Callable[[G, Member], object],
        on_pending_missed: Callable[[G, str], object],
    ) -> None:
        self._purgatory = purgatory
        self._on_missed = on_missed
        self._on_pending_missed = on_pending_missed

    def extend(self, group: G, member: Member, timeout_ms: int | None = None) -> None:
        """Restarts the member's session. `timeout_ms` overrides its session timeout."""
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        heartbeat = member.heartbeat
        if heartbeat is not None and not heartbeat.is_completed:
            heartbeat.extend(timeout_ms)
            return
        missed = partial(self._missed, group, member)
        member.heartbeat = self._park(group.group_id, member.member_id, timeout_ms, missed)

    def end(self, member: Member) -> None:
        """Ends the member's session without expiring it."""
        if member.heartbeat is not None:
            self._complete(member.heartbeat)
            member.heartbeat = None

    def expect(self, group: G, member_id: str, timeout_ms: int) -> None:
        """Waits `timeout_ms` for a JoinGroup with the member id that was assigned to a client."""
        missed = partial(self._pending_missed, group, member_id)
        group.pending[member_id] = self._park(group.group_id, member_id, timeout_ms, missed)

    def expect_no_more(self, group: G, member_id: str) -> bool:
        """Stops waiting for a JoinGroup with this member id. Returns False if there was nothing to wait for."""
        heartbeat = group.pending.pop(member_id, None)
        if heartbeat is None:
            return False
        self._complete(heartbeat)
        return True

    def expect_nobody(self, group: G) -> None:
        """Stops waiting for all clients that were assigned a member id."""
        for member_id in list(group.pending):
            self.expect_no_more(group, member_id)

    def _park(self, group_id: str, member_id: str, timeout_ms: int, missed: Callable[[], None]) -> DelayedHeartbeat:
        heartbeat = DelayedHeartbeat(timeout_ms, self._purgatory.timer, missed)
        self._purgatory.try_complete_else_watch(heartbeat, ((group_id, member_id),))
        return heartbeat

    def _complete(self, heartbeat: DelayedHeartbeat) -> None:
        heartbeat.satisfy()
        for key in heartbeat.watch_keys:
            self._purgatory.check_and_complete(key)

    def _missed(self, group: G, member: Member) -> None:
        heartbeat, member.heartbeat = member.heartbeat, None
        if group.state is GroupState.DEAD or group.member(member.member_id) is not member:
            return
        if member.waits_for_the_group:
            return
        if heartbeat is not None and not heartbeat.is_over:  # extended after the timer expired
            self.extend(group, member, heartbeat.left_ms)
            return
        self._on_missed(group, member)

    def _pending_missed(self, group: G, member_id: str) -> None:
        if group.state is not GroupState.DEAD and group.pending.pop(member_id, None) is not None:
            self._on_pending_missed(group, member_id)


class Support(Counter[str]):
    """The number of members that support each protocol."""

    def add(self, protocols: Protocols) -> None:
        """A member supports these protocols."""
        self.update({name for name, _ in protocols})

    def withdraw(self, protocols: Protocols) -> None:
        """A member that supports these protocols leaves, or changes them."""
        for name in {name for name, _ in protocols}:
            if self[name] > 1:
                self[name] -= 1
            else:
                del self[name]


def can_found(protocol_type: str, protocols: Protocols) -> bool:
    """Whether a client with these protocols can be the first member of a group."""
    return bool(protocol_type and protocols)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str]:
    """Returns the topics that any of the members of a consumer group is subscribed to. Works for later versions too:
    all of them begin with the fields of version 0. Raises MalformedMessage.
    """
    topics: set[str] = set()
    for metadata in subscriptions:
        if len(metadata) < _VERSION_BYTES:
            raise MalformedMessage("the subscription has no version")
        topics.update(read(ConsumerProtocolSubscription, 0, metadata, _VERSION_BYTES)[0].topics)
    return frozenset(topics)
