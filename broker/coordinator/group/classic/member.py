"""A member of a classic group: its identity, the protocols that it supports, and its parked requests.

Times are milliseconds. Source: Kafka's MemberMetadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from odradek.broker.coordinator.group.classic.protocols import Protocols
from odradek.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat

JoinAnswer = Callable[[JoinGroupResponse], object]
SyncAnswer = Callable[[SyncGroupResponse], object]


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
