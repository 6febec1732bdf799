"""JoinGroup: decides whether a client becomes a member.

| member id       | case                                       | outcome                                      |
|-----------------|--------------------------------------------|----------------------------------------------|
| none            | dynamic, version 4 or later                | is assigned an id to join with (KIP-394)     |
|                 | dynamic, version 0-3                       | becomes a member; the group rebalances       |
|                 | static, no member with its instance        | becomes a member; the group rebalances       |
|                 | static, a member with its instance exists  | replaces that member and fences it (KIP-345) |
| an assigned id  |                                            | becomes a member; the group rebalances       |
| a member's id   | PreparingRebalance                         | waits with the others                        |
|                 | CompletingRebalance or Stable, no changes  | gets the current generation again            |
|                 | ... with changes, or the leader and Stable | the group rebalances                         |
| another id      |                                            | UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID      |

Source: Kafka's GroupCoordinator (handleJoinGroup and its callees).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from uuid import UUID

from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.member import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Member,
    can_found,
)
from odradek.broker.coordinator.group.classic.rebalance import Rebalances, joined, joined_as_before
from odradek.broker.coordinator.group.classic.settings import GroupSettings
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.group import NO_MEMBER, Group
from odradek.broker.coordinator.group.member_requests import (
    JoinAnswer,
    Joining,
    Protocols,
    join_refused,
    sync_refused,
)
from odradek.broker.coordinator.runtime.shard import AppendFailed
from odradek.protocol.errors import ErrorCode, ProtocolError

LONGEST_PREFIX_BYTES = 32767 - len("-00000000-0000-4000-8000-000000000000")
"""The maximum length of a protocol string, minus the UUID suffix."""


class Joins:
    """Handles the JoinGroups of one shard. `groups` is the shard's table; `new_group` adds a group to it, and raises
    ProtocolError if it cannot. A group of another kind that is empty counts as none.
    """

    __slots__ = ("_groups", "_new_group", "_random", "_rebalances", "_settings")

    def __init__(
        self,
        groups: Mapping[str, Group],
        new_group: Callable[[str], ClassicGroup],
        rebalances: Rebalances,
        settings: GroupSettings,
        random: Random,
    ) -> None:
        self._groups = groups
        self._new_group = new_group
        self._rebalances = rebalances
        self._settings = settings
        self._random = random

    def join(self, group_id: str, joining: Joining) -> None:
        """Answers the request now or later. Creates the group if it does not exist and the client has no member id.
        Raises ProtocolError if the request is refused.
        """
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            self._join(group, joining)
        elif group is None or group.is_empty:
            group = self._found(group_id, joining)
        else:
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            self._rebalances.join_changed(group)

    def abandoned(self, group_id: str, answer: JoinAnswer) -> None:
        """Removes a new dynamic member if the connection of its parked JoinGroup has closed. The client never learned
        the member id, so it could never send a heartbeat.
        """
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return
        for member in group.members:
            if member.awaiting_join is answer and member.is_new and not member.is_static:
                self._rebalances.remove_member(group, member, f"the connection of {member.member_id} was closed")
                return

    def _found(self, group_id: str, joining: Joining) -> ClassicGroup:
        """Returns a new group with its first member."""
        if joining.member_id != NO_MEMBER:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not can_found(joining.protocol_type, joining.protocols):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group = self._new_group(group_id)
        self._join_new(group, joining)
        return group

    def _join(self, group: ClassicGroup, joining: Joining) -> None:
        if not self._has_room(group, joining.member_id):
            self._turn_away(group, joining)
        elif not group.supports(joining.protocol_type, joining.protocols):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif joining.member_id == NO_MEMBER:
            self._join_new(group, joining)
        else:
            self._join_known(group, joining)

    # --- group.max.size -----------------------------------------------------------------------------------------

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether group.max.size allows the join. In PreparingRebalance only members that have rejoined count, so that
        an oversized group refuses the last members to rejoin.
        """
        if group.state is GroupState.EMPTY:
            return True
        member = group.member(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.awaiting_join is not None) or group.awaiting < self._settings.max_size
        return member is not None or group.size < self._settings.max_size

    def _turn_away(self, group: ClassicGroup, joining: Joining) -> None:
        self._rebalances.sessions.expect_no_more(group, joining.member_id)
        member = group.member(joining.member_id)
        if member is not None:
            self._rebalances.sessions.end(member)
            group.remove(member.member_id)
        joining.answer(join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED))

    # --- without a member id ------------------------------------------------------------------------------------

    def _join_new(self, group: ClassicGroup, joining: Joining) -> None:
        instance_id = joining.group_instance_id
        former = None if instance_id is None else group.member(group.static_member_id(instance_id) or "")
        member_id = self._new_member_id(joining.client_id if instance_id is None else instance_id)
        if former is not None:
            self._replace(group, former, member_id, joining)
        elif joining.needs_known_id and instance_id is None:
            self._rebalances.sessions.expect(group, member_id, joining.session_timeout_ms)
            joining.answer(join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(group, member_id, joining)

    def _new_member_id(self, prefix: str) -> str:
        """Returns PREFIX-UUID, as Kafka does. A long prefix is truncated."""
        encoded = prefix.encode(errors="replace")
        if len(encoded) > LONGEST_PREFIX_BYTES:
            prefix = encoded[:LONGEST_PREFIX_BYTES].decode(errors="ignore")
        return f"{prefix}-{UUID(int=self._random.getrandbits(128), version=4)}"

    def _add(self, group: ClassicGroup, member_id: str, joining: Joining) -> None:
        member = Member(
            member_id,
            joining.group_instance_id,
            joining.client_id,
            joining.client_host,
            joining.rebalance_timeout_ms,
            joining.session_timeout_ms,
            joining.protocol_type,
            joining.protocols,
        )
        member.is_new = True
        if group.state is GroupState.PREPARING_REBALANCE and group.generation_id == 0:
            group.new_member_added = True
        group.add(member)
        group.await_join(member, joining.answer)
        self._rebalances.sessions.extend(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalances.prepare_if_possible(group, f"{member_id} joins: {joining.reason}")

    # --- static members that rejoin ------------------------------------------------------------------------------

    def _replace(self, group: ClassicGroup, member: Member, member_id: str, joining: Joining) -> None:
        """Replaces a static member's id with a new one and fences the client with the old id. (KIP-345)"""
        old_id, old_leader_id = member.member_id, group.leader_id
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.answer_join(member, join_refused(ErrorCode.FENCED_INSTANCE_ID, old_id))
        group.answer_sync(member, sync_refused(ErrorCode.FENCED_INSTANCE_ID))
        group.replace_static_member(member, member_id)
        group.update_member(member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms)
        self._rebalances.sessions.extend(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else None)
        group.await_join(member, joining.answer)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader assigns partitions to the old id, so the new id would get none.
            self._rebalances.prepare(group, f"{member_id} replaces {old_id}: {joining.reason}")
        elif group.state is GroupState.STABLE and group.select_protocol() != group.protocol_name:
            self._rebalances.prepare(group, f"{member_id} replaces {old_id} and changes the protocol")
        elif group.state is GroupState.STABLE:
            self._save_replacement(group, member, old_id, old_leader_id, before, joining)

    def _save_replacement(
        self,
        group: ClassicGroup,
        member: Member,
        old_id: str,
        old_leader_id: str | None,
        before: tuple[Protocols, int, int],
        joining: Joining,
    ) -> None:
        """Writes the new member id without a rebalance, so that it survives a restart. If one begins meanwhile, the
        next generation has the new id, whatever becomes of this write.

        A new id that is in the log stays, even if it is not replicated in time: the next coordinator will have it.
        (Kafka goes back to the old id, which may be one that was never written, if the member was replaced twice.)
        """
        new_id, generation_id = member.member_id, group.generation_id

        def done(error: ProtocolError | None) -> None:
            if group.state is not GroupState.STABLE or group.generation_id != generation_id:
                return
            if group.member(new_id) is not member:
                return
            if error is None:
                skip = joining.can_skip_assignment
                answer = joined_as_before(group, member, old_leader_id, can_skip_assignment=skip)
                group.answer_join(member, answer)
                return
            if not (isinstance(error, AppendFailed) and error.is_written):
                group.update_member(member, *before)
                group.replace_static_member(member, old_id)
            self._rebalances.sessions.extend(group, member)
            group.answer_join(member, join_refused(error.code))

        assignments = {other.member_id: other.assignment for other in group.members}
        self._rebalances.save(group, assignments, done)

    # --- with a member id ---------------------------------------------------------------------------------------

    def _join_known(self, group: ClassicGroup, joining: Joining) -> None:
        if joining.group_instance_id is None and self._rebalances.sessions.expect_no_more(group, joining.member_id):
            self._add(group, joining.member_id, joining)
            return
        member = group.checked_member(joining.member_id, joining.group_instance_id)
        if self._has_nothing_new(group, member, joining):
            joining.answer(joined(group, member))
            return
        # A repeated request on another connection: answer the first one too.
        group.answer_join(member, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        group.update_member(member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms)
        group.await_join(member, joining.answer)
        self._rebalances.prepare_if_possible(group, f"{member.member_id} rejoins: {joining.reason}")

    def _has_nothing_new(self, group: ClassicGroup, member: Member, joining: Joining) -> bool:
        """Whether the request changes nothing: the client may have missed the previous response. If the leader rejoins
        a Stable group, something outside the group has changed, such as a topic's partitions.
        """
        if group.state is GroupState.PREPARING_REBALANCE:
            return False
        if group.state is GroupState.STABLE and group.is_leader(member.member_id):
            return False
        return member.matches(joining.protocols)
