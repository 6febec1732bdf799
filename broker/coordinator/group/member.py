"""A member of a classic group: who it is, what it supports, and what it waits for.

Times are milliseconds. Source: Kafka's MemberMetadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from odradek.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat

JoinAnswer = Callable[[JoinGroupResponse], object]
SyncAnswer = Callable[[SyncGroupResponse], object]
Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata), in the member's order of preference."""


class Member:
    """`group_instance_id` makes a static member (KIP-345), which keeps its place while it is away.

    `is_new`: it has joined and not heard of a generation yet; until then its session does not count, but the time that
    a new member may wait. `heartbeat` is the operation that ends its session.
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
        """Whether silence is no fault of the member's: it waits for an answer that others hold up."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str) -> bytes:
        """What it said under that protocol. Raises KeyError where it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(protocol)

    def matches(self, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether it said exactly this before, order included."""
        return self.protocols == tuple(protocols)

    def vote(self, candidates: Collection[str]) -> str:
        """Its first choice among them. Raises KeyError where it supports none."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise KeyError(f"{self.member_id} supports none of {sorted(candidates)}")

    def __repr__(self) -> str:
        return f"Member({self.member_id!r}, instance={self.group_instance_id!r})"
