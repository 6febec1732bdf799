"""Sessions: of every member something must be heard within its session time-out, or it is out of the group.

| who                                      | how long              | what counts                               |
|------------------------------------------|-----------------------|-------------------------------------------|
| a member of a generation                 | its session time-out  | Heartbeat, OffsetCommit, an answered wait |
| one whose JoinGroup or SyncGroup waits   | no limit              | others hold it up                         |
| a new member whose first JoinGroup waits | five minutes          | the generation that begins                |
| one that was given an id                 | its session time-out  | the JoinGroup with that id                |

Source: Kafka's GroupCoordinator (completeAndScheduleNextExpiration, addPendingMemberExpiration, onExpireHeartbeat).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.member import Member
from odradek.broker.coordinator.group.state import GroupState
from odradek.purgatory import DelayedOperationPurgatory
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long the JoinGroup of one who is not a member yet may wait. (Kafka's NewMemberJoinTimeoutMs)"""


class Sessions:
    """`on_missed(group, member)` and `on_pending_missed(group, member_id)` are told when time is over."""

    __slots__ = ("_on_missed", "_on_pending_missed", "_purgatory")

    def __init__(
        self,
        purgatory: DelayedOperationPurgatory,
        on_missed: Callable[[Group, Member], object],
        on_pending_missed: Callable[[Group, str], object],
    ) -> None:
        self._purgatory = purgatory
        self._on_missed = on_missed
        self._on_pending_missed = on_pending_missed

    def extend(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """Something was heard of the member: its session lasts from now on, `timeout_ms` if that is not its own."""
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        heartbeat = member.heartbeat
        if heartbeat is not None and not heartbeat.is_completed:
            heartbeat.extend(timeout_ms)
            return
        member.heartbeat = self._park(group, member.member_id, timeout_ms, partial(self._missed, group, member))

    def end(self, member: Member) -> None:
        """Nothing is expected of the member any more."""
        if member.heartbeat is not None:
            self._complete(member.heartbeat)
            member.heartbeat = None

    def expect(self, group: Group, member_id: str, timeout_ms: int) -> None:
        """The one that was given this id is to join with it."""
        missed = partial(self._pending_missed, group, member_id)
        group.pending[member_id] = self._park(group, member_id, timeout_ms, missed)

    def expect_no_more(self, group: Group, member_id: str) -> bool:
        """False if it was not expected."""
        heartbeat = group.pending.pop(member_id, None)
        if heartbeat is None:
            return False
        self._complete(heartbeat)
        return True

    def _park(self, group: Group, member_id: str, timeout_ms: int, missed: Callable[[], None]) -> DelayedHeartbeat:
        heartbeat = DelayedHeartbeat(timeout_ms, self._purgatory.timer, missed)
        self._purgatory.try_complete_else_watch(heartbeat, ((group.group_id, member_id),))
        return heartbeat

    def _complete(self, heartbeat: DelayedHeartbeat) -> None:
        heartbeat.satisfy()
        for key in heartbeat.watch_keys:
            self._purgatory.check_and_complete(key)

    def _missed(self, group: Group, member: Member) -> None:
        heartbeat, member.heartbeat = member.heartbeat, None
        if group.state is GroupState.DEAD or group.member(member.member_id) is not member:
            return
        if member.waits_for_the_group:
            return
        if heartbeat is not None and not heartbeat.is_over:  # heard of after the timer had found the time over
            self.extend(group, member, heartbeat.left_ms)
            return
        self._on_missed(group, member)

    def _pending_missed(self, group: Group, member_id: str) -> None:
        if group.state is not GroupState.DEAD and group.pending.pop(member_id, None) is not None:
            self._on_pending_missed(group, member_id)
