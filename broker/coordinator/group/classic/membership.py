"""Membership: handles SyncGroup, Heartbeat and LeaveGroup for the groups of one shard. (JoinGroup: `join.py`)

Everything here is synchronous. A refused request raises ProtocolError. SyncGroup may be answered later, through the
request's `answer` callable.

Source: Kafka's GroupCoordinator.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.rebalance import Rebalances, synced
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.group import NO_MEMBER, Group
from odradek.broker.coordinator.group.member_requests import Syncing, sync_refused
from odradek.protocol.errors import ErrorCode, ProtocolError


class Membership:
    """`groups` is the shard's table."""

    __slots__ = ("_groups", "_rebalances", "_sessions")

    def __init__(self, groups: Mapping[str, Group], rebalances: Rebalances) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._sessions = rebalances.sessions

    # --- in a generation ----------------------------------------------------------------------------------------

    def sync(self, group_id: str, syncing: Syncing) -> None:
        """Handles a SyncGroup. The leader's contains the assignment; the others are parked until it arrives."""
        group = self._group(group_id)
        member = group.checked_member(syncing.member_id, syncing.group_instance_id)
        group.check_generation(member, syncing.generation_id)
        for sent, agreed in (
            (syncing.protocol_type, group.protocol_type),
            (syncing.protocol_name, group.protocol_name),
        ):
            if sent is not None and sent != agreed:
                raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalances.sync_received(group, member)
        if group.state is GroupState.STABLE:
            self._sessions.extend(group, member)
            syncing.answer(synced(group, member))
            return
        # A repeated request on another connection: answer the first one too.
        group.answer_sync(member, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = syncing.answer
        if group.is_leader(member.member_id):
            given = syncing.assignments
            members = (member.member_id for member in group.members)
            self._rebalances.assign(group, {member_id: given[member_id] for member_id in members if member_id in given})

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Extends the member's session. Returns NONE, or REBALANCE_IN_PROGRESS if the member must rejoin."""
        group = self._group(group_id)
        member = group.checked_member(member_id, group_instance_id)
        group.check_generation(member, generation_id)
        self._sessions.extend(group, member)
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # --- leaving ------------------------------------------------------------------------------------------------

    def leave(self, group_id: str, member_id: str, group_instance_id: str | None, reason: str) -> None:
        """Removes a member. An administrator may name a static member by its instance id alone."""
        group = self._group(group_id)
        if self._sessions.expect_no_more(group, member_id):
            self._rebalances.remove_pending(group, member_id)
            return
        if member_id == NO_MEMBER:
            member_id = group.static_member_id(group_instance_id or "") or ""
            group_instance_id = None
        member = group.checked_member(member_id, group_instance_id)
        self._rebalances.remove_member(group, member, f"{member.member_id} leaves: {reason}")

    def _group(self, group_id: str) -> ClassicGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group
