"""What every kind of group promises: what the shard, the offsets, the administration and the console know of a group.

A kind is a room beside this file: `classic/` is one. Its states, its members and its records are its own.

Source: Kafka's Group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.schema import NEWEST
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat

NO_MEMBER = ""
NO_GENERATION = -1
NO_TIMESTAMP = -1

FIRST_WITH_EPOCHS = 9
"""The first version of OffsetCommit and OffsetFetch whose clients know member epochs and GROUP_ID_NOT_FOUND. (KIP-848)
"""
FIRST_TRANSACTIONAL_WITH_EPOCHS = 6
"""The first version of TxnOffsetCommit whose clients know them. (KIP-1319)"""

PartitionCheck = Callable[[UUID, int], None]
"""check(topic_id, partition) raises the client's error if the offset of the partition may not be committed."""


class Committer(NamedTuple):
    """The group, generation and member that a commit request names, and the request's version."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER
    group_instance_id: str | None = None
    api_version: int = NEWEST


class OffsetExpiry(NamedTuple):
    """Which offsets of a group may expire: those of all topics but `kept_topics`. The retention time counts from
    `since_ms`, or from the commit of each offset if that is None.
    """

    since_ms: int | None = None
    kept_topics: frozenset[str] = frozenset()


class GroupMember(Protocol):
    """A member as administrators see it."""

    @property
    def member_id(self) -> str: ...

    @property
    def group_instance_id(self) -> str | None: ...

    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...

    @property
    def waits_for(self) -> str | None:
        """What it waits for: the name of its parked request, or other members. None if it does not wait."""


class Session(NamedTuple):
    """The session of a member. `heartbeat` is the parked operation that expires it, None if no session runs."""

    timeout_ms: int
    heartbeat: DelayedHeartbeat | None


class Group(Protocol):
    """`group_type` and `state_name` are the names in a ListGroups response. `generation_id` counts the assignments.

    `current_state_timestamp_ms` is since 1970, and -1 if it is unknown.
    """

    group_id: str
    group_type: str
    protocol_type: str | None
    protocol_name: str | None
    current_state_timestamp_ms: int

    @property
    def generation_id(self) -> int: ...

    @property
    def state_name(self) -> str: ...

    def check(self) -> None:
        """Asserts what must hold between two requests."""

    # Members

    @property
    def size(self) -> int:
        """The number of members."""

    @property
    def members(self) -> Collection[GroupMember]: ...

    def member(self, member_id: str) -> GroupMember | None: ...

    def is_leader(self, member_id: str) -> bool: ...

    def session_of(self, member_id: str) -> Session | None:
        """Returns the session of a member; None if there is no such member."""

    def sessions(self) -> Iterable[DelayedHeartbeat]:
        """Yields the running sessions of members, and of clients that are expected to become members."""

    # Offsets

    def accept_commit(self, who: Committer, *, in_transaction: bool = False) -> PartitionCheck | None:
        """Raises the client's error if it may not commit. Returns the check of each partition; None if all are
        accepted. In a group whose members' commits extend their sessions, one outside a transaction does.
        """

    def accept_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises the client's error if it may not fetch offsets as this member."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the topic's offsets must be kept, because a member is subscribed to it or may be."""

    def offset_expiry(self) -> OffsetExpiry | None:
        """Returns which offsets may expire; None if none may."""

    def check_offsets_deletable(self) -> None:
        """Raises the client's error if no offset of the group may be deleted on request, whatever its topic."""

    # Its end, and moves of its partition

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, so that it may be deleted on request."""

    @property
    def is_unused(self) -> bool:
        """Whether the group is empty and expects no members, so that it is forgotten with its last offset."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """Returns the records that delete the group, without its offsets. Nothing if it was never written."""

    def die(self, reason: str) -> None:
        """The group has been removed from its shard: it was empty, or one of another kind has its members now."""

    def loaded(self) -> None:
        """The group has been read from the log: starts the sessions of its members."""

    def unload(self) -> None:
        """The partition moves away or the broker stops: answers parked requests and ends all sessions."""
