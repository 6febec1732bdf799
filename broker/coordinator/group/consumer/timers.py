"""The timers of consumer groups, in the timing wheel.

| timer      | runs                                                       | at its end                                |
|------------|------------------------------------------------------------|-------------------------------------------|
| session    | from each accepted heartbeat of a member, and from loading | the member is removed                     |
| rebalance  | while the member must give up partitions                   | removed, if it still has the same epoch   |
| join       | from when a classic member is told to, until it joins      | the member is removed                     |
| sync       | from the JoinGroup of a classic member until it syncs      | the member is removed                     |
| assignment | until the next target may be computed, one for a group     | the target is computed                    |

Members that speak the classic protocol have session timeouts of their own, and no rebalance timer. After a move of the
partition they are told again when to join. A timer that ends late finds out whether it still concerns somebody.

Source: Kafka's GroupMetadataManager (scheduleConsumerGroupSessionTimeout, scheduleConsumerGroupRebalanceTimeout,
scheduleConsumerGroupJoinTimeoutIfAbsent, scheduleConsumerGroupSyncTimeout).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.outcome import Timer, TimerKind
from odradek.broker.coordinator.group.consumer.state import ConsumerGroupState
from odradek.broker.coordinator.group.group import Session
from odradek.purgatory import DelayedOperationPurgatory
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat
from odradek.purgatory.delayed_step import DelayedStep
from odradek.timer import TimerTask

SHORTEST_MS = 1
"""Work of a timer begins after the request that asked for it, and once for several that ask."""


AWAITED: Mapping[TimerKind, str] = {"rebalance": "partitions", "join": "JoinGroup", "sync": "SyncGroup"}
"""What a member must do in time, by the timer."""
_MISSED: Mapping[TimerKind, str] = {
    "rebalance": "rebalance timed out",
    "join": "not rejoined in time",
    "sync": "SyncGroup overdue",
}


class StepKey(NamedTuple):
    """The purgatory key of a member that must take a step."""

    group_id: str
    member_id: str
    awaited: str


class _OfGroup:
    __slots__ = ("assignment", "sessions", "steps")

    def __init__(self) -> None:
        self.sessions: dict[str, DelayedHeartbeat] = {}
        self.steps: dict[tuple[TimerKind, str], DelayedStep] = {}
        self.assignment: TimerTask | None = None


class ConsumerTimers:
    """The timers of one shard. `remove(group, member, reason)` is called when a session or a step is missed.

    `session_timeout_ms(group_id)` is that of members which do not choose it themselves.
    """

    def __init__(
        self,
        sessions: DelayedOperationPurgatory,
        steps: DelayedOperationPurgatory,
        session_timeout_ms: Callable[[str], int],
        remove: Callable[[ConsumerGroup, ConsumerMember, str], object],
    ) -> None:
        self._in_sessions = sessions
        self._in_steps = steps
        self._session_timeout_ms = session_timeout_ms
        self._remove = remove
        self._by_group: dict[ConsumerGroup, _OfGroup] = {}

    # --- of members ---------------------------------------------------------------------------------------------

    def set(self, group: ConsumerGroup, timers: Iterable[Timer]) -> None:
        """Sets the timers in their order."""
        for timer in timers:
            if timer.kind == "session":
                self._set_session(group, timer.member_id, timer.after_ms)
            else:
                self._set_step(group, timer)

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

    def _set_step(self, group: ConsumerGroup, timer: Timer) -> None:
        steps, name = self._of(group).steps, (timer.kind, timer.member_id)
        former = steps.get(name)
        if former is not None:
            if timer.if_absent:
                return
            del steps[name]
            self._end(self._in_steps, former)
        if timer.after_ms is not None:
            step = steps[name] = DelayedStep(timer.after_ms, partial(self._step_missed, group, timer))
            key = StepKey(group.group_id, timer.member_id, AWAITED[timer.kind])
            self._in_steps.try_complete_else_watch(step, (key,))

    @staticmethod
    def _end(purgatory: DelayedOperationPurgatory, operation: DelayedHeartbeat | DelayedStep) -> None:
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

    def _step_missed(self, group: ConsumerGroup, timer: Timer) -> None:
        self._of(group).steps.pop((timer.kind, timer.member_id), None)
        member = self._still(group, timer.member_id)
        if member is None:
            return
        if timer.kind == "rebalance":
            must_step = member.epoch == timer.epoch and member.state is MemberState.UNREVOKED_PARTITIONS
        else:
            must_step = member.classic is not None
        if must_step:
            self._remove(group, member, _MISSED[timer.kind])

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
                self._set_step(group, Timer("rebalance", member.member_id, member.rebalance_timeout_ms, member.epoch))

    def give_up(self, group: ConsumerGroup) -> None:
        waits = self._by_group.pop(group, None)
        if waits is None:
            return
        for heartbeat in waits.sessions.values():
            self._end(self._in_sessions, heartbeat)
        for step in waits.steps.values():
            self._end(self._in_steps, step)
        if waits.assignment is not None:
            waits.assignment.cancel()

    def session_of(self, group: ConsumerGroup, member: ConsumerMember) -> Session:
        waits = self._by_group.get(group)
        heartbeat = None if waits is None else waits.sessions.get(member.member_id)
        return Session(self._timeout_of(group, member), heartbeat)

    def step_of(self, group: ConsumerGroup, member_id: str) -> DelayedStep | None:
        steps = self._by_group.get(group, _OfGroup()).steps
        return next(filter(None, (steps.get((kind, member_id)) for kind in AWAITED)), None)

    def sessions(self, group: ConsumerGroup) -> Iterator[DelayedHeartbeat]:
        waits = self._by_group.get(group)
        return iter(()) if waits is None else iter(list(waits.sessions.values()))

    def _timeout_of(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        return self._session_timeout_ms(group.group_id) if member.classic is None else member.classic.session_timeout_ms
