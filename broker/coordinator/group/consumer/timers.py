"""The timers of consumer groups, in the timing wheel.

| timer      | runs                                                       | at its end                                |
|------------|------------------------------------------------------------|-------------------------------------------|
| session    | from each accepted heartbeat of a member, and from loading | the member is removed                     |
| revocation | while the member must give up partitions                   | removed, if it still has the same epoch   |
| assignment | until the next target may be computed, one for a group     | the target is computed                    |

Members that speak the classic protocol have session timeouts of their own and no revocations. A timer that ends late
finds out whether it still concerns somebody.

Source: Kafka's GroupMetadataManager (scheduleConsumerGroupSessionTimeout, scheduleConsumerGroupRebalanceTimeout).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.outcome import Timer
from odradek.broker.coordinator.group.consumer.state import ConsumerGroupState
from odradek.broker.coordinator.group.group import Session
from odradek.purgatory import DelayedOperationPurgatory
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat
from odradek.purgatory.delayed_revocation import DelayedRevocation
from odradek.timer import TimerTask

SHORTEST_MS = 1
"""Work of a timer begins after the request that asked for it, and once for several that ask."""


class RevocationKey(NamedTuple):
    """The purgatory key of a member that must give up partitions."""

    group_id: str
    member_id: str
    awaited: str = "partitions"


class _OfGroup:
    __slots__ = ("assignment", "revocations", "sessions")

    def __init__(self) -> None:
        self.sessions: dict[str, DelayedHeartbeat] = {}
        self.revocations: dict[str, DelayedRevocation] = {}
        self.assignment: TimerTask | None = None


class ConsumerTimers:
    """The timers of one shard. `remove(group, member, reason)` is called when a session or a revocation is missed.

    `session_timeout_ms(group_id)` is that of members which do not choose it themselves.
    """

    def __init__(
        self,
        sessions: DelayedOperationPurgatory,
        revocations: DelayedOperationPurgatory,
        session_timeout_ms: Callable[[str], int],
        remove: Callable[[ConsumerGroup, ConsumerMember, str], object],
    ) -> None:
        self._in_sessions = sessions
        self._in_revocations = revocations
        self._session_timeout_ms = session_timeout_ms
        self._remove = remove
        self._by_group: dict[ConsumerGroup, _OfGroup] = {}

    # --- of members ---------------------------------------------------------------------------------------------

    def set(self, group: ConsumerGroup, timers: Iterable[Timer]) -> None:
        """Sets the timers in their order."""
        for timer in timers:
            if timer.kind == "session":
                self._set_session(group, timer.member_id, timer.after_ms)
            elif timer.kind == "rebalance":
                self._set_revocation(group, timer.member_id, timer.after_ms, timer.epoch)

    def _of(self, group: ConsumerGroup) -> _OfGroup:
        found = self._by_group.get(group)
        if found is None:
            found = self._by_group[group] = _OfGroup()
        return found

    def _set_session(self, group: ConsumerGroup, member_id: str, timeout_ms: int | None) -> None:
        sessions = self._of(group).sessions
        heartbeat = sessions.get(member_id)
        if timeout_ms is None:
            if heartbeat is not None:
                del sessions[member_id]
                self._end(self._in_sessions, heartbeat)
        elif heartbeat is not None and not heartbeat.is_completed:
            heartbeat.extend(timeout_ms)
        else:
            missed = partial(self._session_missed, group, member_id)
            heartbeat = sessions[member_id] = DelayedHeartbeat(timeout_ms, self._in_sessions.timer, missed)
            self._in_sessions.try_complete_else_watch(heartbeat, ((group.group_id, member_id),))

    def _set_revocation(self, group: ConsumerGroup, member_id: str, timeout_ms: int | None, epoch: int) -> None:
        revocations = self._of(group).revocations
        former = revocations.pop(member_id, None)
        if former is not None:
            self._end(self._in_revocations, former)
        if timeout_ms is not None:
            missed = partial(self._revocation_missed, group, member_id, epoch)
            revocation = revocations[member_id] = DelayedRevocation(timeout_ms, missed)
            key = RevocationKey(group.group_id, member_id)
            self._in_revocations.try_complete_else_watch(revocation, (key,))

    @staticmethod
    def _end(purgatory: DelayedOperationPurgatory, operation: DelayedHeartbeat | DelayedRevocation) -> None:
        operation.satisfy()
        for key in operation.watch_keys:
            purgatory.check_and_complete(key)

    def _session_missed(self, group: ConsumerGroup, member_id: str) -> None:
        heartbeat = self._of(group).sessions.pop(member_id, None)
        member = self._still(group, member_id)
        if member is None:
            return
        if heartbeat is not None and not heartbeat.is_over:  # extended after the timer expired
            self._set_session(group, member_id, heartbeat.left_ms)
        else:
            self._remove(group, member, "session timed out")

    def _revocation_missed(self, group: ConsumerGroup, member_id: str, epoch: int) -> None:
        self._of(group).revocations.pop(member_id, None)
        member = self._still(group, member_id)
        if member is not None and member.epoch == epoch and member.state is MemberState.UNREVOKED_PARTITIONS:
            self._remove(group, member, "rebalance timed out")

    def _still(self, group: ConsumerGroup, member_id: str) -> ConsumerMember | None:
        if group.state is ConsumerGroupState.DEAD:
            self._by_group.pop(group, None)
            return None
        return group.member(member_id)

    # --- of groups ----------------------------------------------------------------------------------------------

    def assign_later(self, group: ConsumerGroup, delay_ms: int, assign: Callable[[], object]) -> None:
        """Calls `assign()` after the delay, unless such a call is waiting already."""
        waits = self._of(group)
        if waits.assignment is None or not waits.assignment.is_scheduled:
            waits.assignment = self._in_sessions.timer.call_later(max(delay_ms, SHORTEST_MS), assign)

    # --- see GroupTimers ----------------------------------------------------------------------------------------

    def resume(self, group: ConsumerGroup) -> None:
        for member in group.members:
            self._set_session(group, member.member_id, self._timeout_of(group, member))
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                self._set_revocation(group, member.member_id, member.rebalance_timeout_ms, member.epoch)

    def give_up(self, group: ConsumerGroup) -> None:
        waits = self._by_group.pop(group, None)
        if waits is None:
            return
        for heartbeat in waits.sessions.values():
            self._end(self._in_sessions, heartbeat)
        for revocation in waits.revocations.values():
            self._end(self._in_revocations, revocation)
        if waits.assignment is not None:
            waits.assignment.cancel()

    def session_of(self, group: ConsumerGroup, member: ConsumerMember) -> Session:
        waits = self._by_group.get(group)
        heartbeat = None if waits is None else waits.sessions.get(member.member_id)
        return Session(self._timeout_of(group, member), heartbeat)

    def sessions(self, group: ConsumerGroup) -> Iterator[DelayedHeartbeat]:
        waits = self._by_group.get(group)
        return iter(()) if waits is None else iter(list(waits.sessions.values()))

    def _timeout_of(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        return self._session_timeout_ms(group.group_id) if member.classic is None else member.classic.session_timeout_ms
