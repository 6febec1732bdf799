"""Sessions: a member that sends nothing within its session timeout is removed from the group.

| member                                      | timeout             | what keeps it in the group                     |
|---------------------------------------------|---------------------|------------------------------------------------|
| member of a generation                      | its session timeout | Heartbeat, OffsetCommit, JoinGroup, SyncGroup  |
| member with a parked JoinGroup or SyncGroup | none                | other members delay the response               |
| new member with its first JoinGroup parked  | five minutes        | the next generation begins                     |
| client that was assigned a member id        | its session timeout | JoinGroup with that id                         |

Source: Kafka's GroupCoordinator (completeAndScheduleNextExpiration, addPendingMemberExpiration, onExpireHeartbeat).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.member import Member
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.purgatory import DelayedOperationPurgatory
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long the first JoinGroup of a new member may be parked. (Kafka's NewMemberJoinTimeoutMs)"""


class Sessions:
    """Calls `on_missed(group, member)` or `on_pending_missed(group, member_id)` when a session expires."""

    __slots__ = ("_on_missed", "_on_pending_missed", "_purgatory")

    def __init__(
        self,
        purgatory: DelayedOperationPurgatory,
        on_missed: Callable[[ClassicGroup, Member], object],
        on_pending_missed: Callable[[ClassicGroup, str], object],
    ) -> None:
        self._purgatory = purgatory
        self._on_missed = on_missed
        self._on_pending_missed = on_pending_missed

    def extend(self, group: ClassicGroup, member: Member, timeout_ms: int | None = None) -> None:
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

    def expect(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Waits `timeout_ms` for a JoinGroup with the member id that was assigned to a client."""
        missed = partial(self._pending_missed, group, member_id)
        group.pending[member_id] = self._park(group.group_id, member_id, timeout_ms, missed)

    def expect_no_more(self, group: ClassicGroup, member_id: str) -> bool:
        """Stops waiting for a JoinGroup with this member id. Returns False if there was nothing to wait for."""
        heartbeat = group.pending.pop(member_id, None)
        if heartbeat is None:
            return False
        self._complete(heartbeat)
        return True

    def _park(self, group_id: str, member_id: str, timeout_ms: int, missed: Callable[[], None]) -> DelayedHeartbeat:
        heartbeat = DelayedHeartbeat(timeout_ms, self._purgatory.timer, missed)
        self._purgatory.try_complete_else_watch(heartbeat, ((group_id, member_id),))
        return heartbeat

    def _complete(self, heartbeat: DelayedHeartbeat) -> None:
        heartbeat.satisfy()
        for key in heartbeat.watch_keys:
            self._purgatory.check_and_complete(key)

    def _missed(self, group: ClassicGroup, member: Member) -> None:
        heartbeat, member.heartbeat = member.heartbeat, None
        if group.state is GroupState.DEAD or group.member(member.member_id) is not member:
            return
        if member.waits_for_the_group:
            return
        if heartbeat is not None and not heartbeat.is_over:  # extended after the timer expired
            self.extend(group, member, heartbeat.left_ms)
            return
        self._on_missed(group, member)

    def _pending_missed(self, group: ClassicGroup, member_id: str) -> None:
        if group.state is not GroupState.DEAD and group.pending.pop(member_id, None) is not None:
            self._on_pending_missed(group, member_id)
