"""Rebalances: from a change of a group's membership until its members have their assignments.

    prepare          members get REBALANCE_IN_PROGRESS and rejoin; their JoinGroups are parked (DelayedJoin)
    complete_join    all have joined, or the rebalance timeout has expired: the next generation begins and all
                     JoinGroups are answered
    assign           the leader's assignment is replicated: all SyncGroups are answered and the group is Stable
    sync_overdue     the rebalance timeout has expired again: members without a SyncGroup are removed (DelayedSync)

A static member that does not rejoin remains a member until its session expires; a dynamic member is removed.

Source: Kafka's GroupCoordinator (prepareRebalance, onCompleteJoin, onExpirePendingSync, propagateAssignment),
JoinGroupResult, SyncGroupResult.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import structlog

from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.member import Member, Sessions
from odradek.broker.coordinator.group.classic.records import group_metadata_record
from odradek.broker.coordinator.group.classic.settings import GroupSettings
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.group import NO_MEMBER
from odradek.broker.coordinator.group.member_requests import join_refused, sync_refused
from odradek.broker.coordinator.runtime.shard import Act, AppendFailed, Decision, OnDone
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse
from odradek.purgatory import DelayedOperationPurgatory
from odradek.purgatory.delayed_join import DelayedJoin, InitialDelayedJoin
from odradek.purgatory.delayed_sync import DelayedSync

SHORTEST_WAIT_ON_MS = 1000
"""The minimum wait before checking again for static members that have not rejoined."""

log = structlog.get_logger("broker.coordinator.group")


class GroupJoinKey(NamedTuple):
    """The purgatory key for a group's parked JoinGroups."""

    group_id: str
    awaited: str = "JoinGroup"


class GroupSyncKey(NamedTuple):
    """The purgatory key for a group's expected SyncGroups."""

    group_id: str
    awaited: str = "SyncGroup"


class GroupWaits(NamedTuple):
    """The groups' purgatories, shared by all shards. Kafka's names: Heartbeat and Rebalance."""

    heartbeat: DelayedOperationPurgatory
    rebalance: DelayedOperationPurgatory


class Rebalances:
    """`act` carries out a decision. `on_completed()` is called for every leader's assignment, as Kafka counts them."""

    __slots__ = ("_act", "_on_completed", "_purgatory", "_settings", "sessions")

    def __init__(
        self, waits: GroupWaits, settings: GroupSettings, act: Act, on_completed: Callable[[], object]
    ) -> None:
        self.sessions = Sessions(waits.heartbeat, self._session_missed, self._pending_missed)
        self._purgatory = waits.rebalance
        self._settings = settings
        self._act = act
        self._on_completed = on_completed

    def save(self, group: ClassicGroup, assignments: Mapping[str, bytes], done: OnDone) -> None:
        """Writes the group's current state with the given assignments by member id."""
        self._act(Decision([group_metadata_record(group, assignments)], done, replay=False))

    # --- joining ------------------------------------------------------------------------------------------------

    def prepare_if_possible(self, group: ClassicGroup, reason: str) -> None:
        """Begins a rebalance, unless one that is under way covers the change."""
        if group.can_rebalance:
            self.prepare(group, reason)

    def prepare(self, group: ClassicGroup, reason: str) -> None:
        """Begins a rebalance. It may complete before this returns, so callers must not change the group afterwards."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self._sync_changed(group)
        group.new_member_added = False
        operation = self._initial_join(group) if group.state is GroupState.EMPTY else self._join(group)
        group.transition_to(GroupState.PREPARING_REBALANCE, reason)
        self._park_join(group, operation)

    def join_changed(self, group: ClassicGroup) -> None:
        """A member has joined or left: schedules a check of the DelayedJoin after the current callback."""
        self._purgatory.completions.add(self._purgatory, GroupJoinKey(group.group_id))

    def _initial_join(self, group: ClassicGroup) -> InitialDelayedJoin:
        delay_ms = self._settings.initial_rebalance_delay_ms

        def take_new_member() -> bool:
            added, group.new_member_added = group.new_member_added, False
            return added

        return InitialDelayedJoin(
            delay_ms,
            delay_ms,
            max(group.rebalance_timeout_ms - delay_ms, 0),
            take_new_member,
            partial(self._park_join, group),
            partial(self.complete_join, group),
        )

    def _join(self, group: ClassicGroup, shortest_ms: int = 0) -> DelayedJoin:
        return DelayedJoin(
            max(group.rebalance_timeout_ms, shortest_ms),
            lambda: group.has_all_joined or group.state is not GroupState.PREPARING_REBALANCE,
            partial(self.complete_join, group),
        )

    def _park_join(self, group: ClassicGroup, operation: DelayedJoin) -> None:
        self._purgatory.try_complete_else_watch(operation, (GroupJoinKey(group.group_id),))

    def complete_join(self, group: ClassicGroup) -> None:
        """Begins the next generation with the members that have joined. If only absent static members are left, waits
        again.
        """
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        absent = [member for member in group.members if member.awaiting_join is None and not member.is_static]
        if absent:
            self._remove_silent(group, [member.member_id for member in absent], "not rejoined in time")
        if group.size and not group.elect_joined_leader():
            log.warning("no member rejoined", group=group.group_id, members=group.size)
            self._park_join(group, self._join(group, SHORTEST_WAIT_ON_MS))
            return
        if group.size:
            group.begin_generation(f"{group.awaiting} members have joined")
            self._begin_sync(group)
        else:
            group.begin_generation("no members are left")
            self.save(group, {}, partial(self._emptied, group))

    def _emptied(self, group: ClassicGroup, error: ProtocolError | None) -> None:
        """Logs a failed write. A restart would then load the previous generation, and its members would time out."""
        if error is not None:
            log.warning("empty group not written", group=group.group_id, error=error.code.name)

    def _begin_sync(self, group: ClassicGroup) -> None:
        group.pending_sync.update(member.member_id for member in group.members)
        for member in list(group.members):
            group.answer_join(member, joined(group, member))
            self.sessions.extend(group, member)
            member.is_new = False
        generation_id = group.generation_id
        operation = DelayedSync(
            group.rebalance_timeout_ms,
            lambda: not group.pending_sync or group.generation_id != generation_id,
            partial(self._sync_overdue, group),
        )
        self._purgatory.try_complete_else_watch(operation, (GroupSyncKey(group.group_id),))

    # --- syncing ------------------------------------------------------------------------------------------------

    def sync_received(self, group: ClassicGroup, member: Member) -> None:
        """Notes that the member has sent its SyncGroup for this generation."""
        group.pending_sync.discard(member.member_id)
        self._sync_changed(group)

    def assign(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        """Writes the leader's assignment, by member id. Once it is replicated, all parked SyncGroups are answered."""
        generation_id = group.generation_id

        def done(error: ProtocolError | None) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return
            if error is None:
                self._propagate(group, assignments)
            else:
                self._refuse_syncs(group, _code_for_sync(error))
                self.prepare(group, f"the assignment could not be written: {error.code.name}")

        self._on_completed()
        self.save(group, assignments, done)

    def _propagate(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        group.transition_to(GroupState.STABLE, "the leader's assignment is written")
        group.former.clear()
        for member in list(group.members):
            member.assignment = assignments.get(member.member_id, b"")
            if group.answer_sync(member, synced(group, member)):
                self.sessions.extend(group, member)

    def _refuse_syncs(self, group: ClassicGroup, code: ErrorCode) -> None:
        for member in list(group.members):
            member.assignment = b""
            if group.answer_sync(member, sync_refused(code)):
                self.sessions.extend(group, member)

    def _sync_changed(self, group: ClassicGroup) -> None:
        self._purgatory.completions.add(self._purgatory, GroupSyncKey(group.group_id))

    def _sync_overdue(self, group: ClassicGroup) -> None:
        if not group.pending_sync or not group.can_rebalance:
            return
        self._remove_silent(group, sorted(group.pending_sync), "SyncGroup overdue")
        self.prepare(group, "SyncGroups were overdue")

    # --- leaving ------------------------------------------------------------------------------------------------

    def remove_member(self, group: ClassicGroup, member: Member, reason: str) -> None:
        """Removes a member; the others rebalance."""
        self._take_out(group, member)
        if group.state is GroupState.PREPARING_REBALANCE:
            self.join_changed(group)
        else:
            self.prepare_if_possible(group, reason)

    def remove_pending(self, group: ClassicGroup, member_id: str) -> None:
        """Stops waiting for a client that was assigned this member id. Does nothing if the id is not pending."""
        self.sessions.expect_no_more(group, member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            self.join_changed(group)

    def _take_out(self, group: ClassicGroup, member: Member) -> None:
        self.sessions.end(member)
        group.answer_join(member, join_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        group.answer_sync(member, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)

    def _remove_silent(self, group: ClassicGroup, member_ids: list[str], reason: str) -> None:
        log.info("group members removed", group=group.group_id, members=member_ids, reason=reason)
        for member_id in member_ids:
            member = group.member(member_id)
            if member is not None:
                self._take_out(group, member)

    def _session_missed(self, group: ClassicGroup, member: Member) -> None:
        log.info("group members removed", group=group.group_id, members=[member.member_id], reason="session timed out")
        self.remove_member(group, member, f"the session of {member.member_id} timed out")

    def _pending_missed(self, group: ClassicGroup, member_id: str) -> None:
        self.remove_pending(group, member_id)

    # --- what a group leaves to its rebalances ------------------------------------------------------------------

    def resume(self, group: ClassicGroup) -> None:
        """Starts the sessions of a loaded group's members, each with its full timeout. Begins a rebalance if there are
        too many, or if the group has just become a classic one, and has no leader yet.
        """
        for member in group.members:
            self.sessions.extend(group, member)
        if group.size > self._settings.max_size:
            self.prepare(group, f"more members than group.max.size={self._settings.max_size}")
        elif group.size and group.leader_id is None:
            group.leader_id = next(iter(group.members)).member_id
            self.prepare(group, "the members must rejoin since the group was converted")

    def give_up(self, group: ClassicGroup, reason: str, code: ErrorCode) -> None:
        """The group ends here: answers all parked requests with the error and ends all sessions."""
        group.transition_to(GroupState.DEAD, reason)
        for member in list(group.members):
            group.answer_join(member, join_refused(code, member.member_id))
            group.answer_sync(member, sync_refused(code))
            self.sessions.end(member)
        self.sessions.expect_nobody(group)
        group.pending_sync.clear()
        for key in (GroupJoinKey(group.group_id), GroupSyncKey(group.group_id)):
            for operation in self._purgatory.cancel_for_key(key):
                operation.abandon()


def _code_for_sync(error: ProtocolError) -> ErrorCode:
    """Returns REBALANCE_IN_PROGRESS if the write timed out, so that members rejoin at the same coordinator."""
    timed_out = isinstance(error, AppendFailed) and error.cause is ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.REBALANCE_IN_PROGRESS if timed_out else error.code


# --- responses --------------------------------------------------------------------------------------------------------


def joined(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """Returns the current generation. The leader's response contains all members and their metadata."""
    return _generation(group, member, group.leader_id, with_members=group.is_leader(member.member_id))


def joined_as_before(
    group: ClassicGroup, member: Member, old_leader_id: str | None, *, can_skip_assignment: bool
) -> JoinGroupResponse:
    """Returns the current generation to a static member that rejoined a Stable group without a rebalance.

    If the member is the leader, it must not assign: a Stable group ignores assignments. From version 9 on the response
    sets `skip_assignment`. Before version 9 it carries the leader's old member id, so that the member does not
    recognize itself as the leader.
    """
    if not can_skip_assignment:
        return _generation(group, member, old_leader_id, with_members=False)
    leads = group.is_leader(member.member_id)
    answer = _generation(group, member, group.leader_id, with_members=leads)
    answer.skip_assignment = leads
    return answer


def _generation(group: ClassicGroup, member: Member, leader_id: str | None, *, with_members: bool) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader_id or NO_MEMBER,
        member_id=member.member_id,
        members=_members(group) if with_members else [],
    )


def _members(group: ClassicGroup) -> list[JoinGroupResponse.JoinGroupResponseMember]:
    assert group.protocol_name is not None
    return [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members
    ]


def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """Returns the member's assignment in the current generation."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )
