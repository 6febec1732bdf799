"""JoinGroup: who wants to be a member, and whether it can.

| comes with            | and is                                   | happens                                        |
|-----------------------|------------------------------------------|------------------------------------------------|
| no member id          | dynamic, version 4 or later              | is given an id to join with (KIP-394)          |
|                       | dynamic, before                          | becomes a member; the group rebalances         |
|                       | static, its instance is not there        | becomes a member; the group rebalances         |
|                       | static, its instance is there            | takes its place, fences it (KIP-345)           |
| an id that it was given |                                        | becomes a member; the group rebalances         |
| a member's id         | preparing                                | waits with the others                          |
|                       | completing or stable, nothing new to say | hears of the generation again                  |
|                       | ... something new, or stable and leader  | the group rebalances                           |
| another id            |                                          | UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID       |

Source: Kafka's GroupCoordinator (handleJoinGroup and what it calls).
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple
from uuid import UUID

from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.member import JoinAnswer, Member, Protocols
from odradek.broker.coordinator.group.rebalance import Rebalances
from odradek.broker.coordinator.group.responses import (
    UNKNOWN_MEMBER_ID,
    join_refused,
    joined,
    joined_as_before,
    sync_refused,
)
from odradek.broker.coordinator.group.sessions import NEW_MEMBER_JOIN_TIMEOUT_MS
from odradek.broker.coordinator.group.settings import GroupSettings
from odradek.broker.coordinator.group.state import GroupState
from odradek.protocol.errors import ErrorCode, ProtocolError

LONGEST_PREFIX_BYTES = 32767 - len("-00000000-0000-4000-8000-000000000000")
"""What a string of the protocol holds, with a UUID behind it."""


class Joining(NamedTuple):
    """A JoinGroup. `member_id` is empty for one that has none; `needs_known_id`: it must come back with the id it is
    given; `can_skip_assignment`: it understands that there is nothing to assign. Times in ms.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_id: bool
    can_skip_assignment: bool
    reason: str
    answer: JoinAnswer


class Joins:
    """The JoinGroups of one shard. `groups` is the shard's; a group that did not exist is put there."""

    __slots__ = ("_groups", "_random", "_rebalances", "_settings")

    def __init__(
        self, groups: dict[str, Group], rebalances: Rebalances, settings: GroupSettings, random: Random
    ) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._settings = settings
        self._random = random

    def join(self, group: Group, joining: Joining) -> None:
        """Answers now or later. Raises ProtocolError where the request is refused as it is."""
        settings = self._settings
        if not settings.min_session_timeout_ms <= joining.session_timeout_ms <= settings.max_session_timeout_ms:
            raise ProtocolError(ErrorCode.INVALID_SESSION_TIMEOUT)
        is_new = joining.member_id == UNKNOWN_MEMBER_ID
        if not is_new and group.group_id not in self._groups:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not self._has_room(group, joining.member_id):
            self._turn_away(group, joining)
        elif not group.supports(joining.protocol_type, joining.protocols):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif is_new:
            self._groups[group.group_id] = group
            self._join_new(group, joining)
        else:
            self._join_known(group, joining)
        if group.state is GroupState.PREPARING_REBALANCE:
            self._rebalances.join_changed(group)

    # --- group.max.size -----------------------------------------------------------------------------------------

    def _has_room(self, group: Group, member_id: str) -> bool:
        """While the group prepares, those count who have joined: members of a group that is too big drop out last."""
        if group.state is GroupState.EMPTY:
            return True
        member = group.member(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.awaiting_join is not None) or group.awaiting < self._settings.max_size
        return member is not None or group.size < self._settings.max_size

    def _turn_away(self, group: Group, joining: Joining) -> None:
        self._rebalances.sessions.expect_no_more(group, joining.member_id)
        member = group.member(joining.member_id)
        if member is not None:
            self._rebalances.sessions.end(member)
            group.remove(member.member_id)
        joining.answer(join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED))

    # --- without a member id ------------------------------------------------------------------------------------

    def _join_new(self, group: Group, joining: Joining) -> None:
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
        """PREFIX-UUID, as Kafka makes it; of a prefix that would make it too long, the beginning."""
        encoded = prefix.encode(errors="replace")
        if len(encoded) > LONGEST_PREFIX_BYTES:
            prefix = encoded[:LONGEST_PREFIX_BYTES].decode(errors="ignore")
        return f"{prefix}-{UUID(int=self._random.getrandbits(128), version=4)}"

    def _add(self, group: Group, member_id: str, joining: Joining) -> None:
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

    # --- static members that come back ---------------------------------------------------------------------------

    def _replace(self, group: Group, member: Member, member_id: str, joining: Joining) -> None:
        """The instance is here again, and whoever had its place is fenced. (KIP-345)"""
        old_id, old_leader_id = member.member_id, group.leader_id
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.answer_join(member, join_refused(ErrorCode.FENCED_INSTANCE_ID, old_id))
        group.answer_sync(member, sync_refused(ErrorCode.FENCED_INSTANCE_ID))
        group.replace_static_member(member, member_id)
        group.update_member(member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms)
        self._rebalances.sessions.extend(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else None)
        group.await_join(member, joining.answer)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader assigns to the id it knows; the new one would come away empty-handed.
            self._rebalances.prepare(group, f"{member_id} takes the place of {old_id}: {joining.reason}")
        elif group.state is GroupState.STABLE and group.select_protocol() != group.protocol_name:
            self._rebalances.prepare(group, f"{member_id} takes the place of {old_id} and changes the protocol")
        elif group.state is GroupState.STABLE:
            self._save_replacement(group, member, old_id, old_leader_id, before, joining)

    def _save_replacement(
        self,
        group: Group,
        member: Member,
        old_id: str,
        old_leader_id: str | None,
        before: tuple[Protocols, int, int],
        joining: Joining,
    ) -> None:
        """No rebalance: the group stays as it is, but for the id, and that must survive a restart."""
        new_id, generation_id = member.member_id, group.generation_id

        def done(error: ProtocolError | None) -> None:
            if group.state is GroupState.DEAD or group.member(new_id) is not member:
                return
            if error is not None:
                group.update_member(member, *before)
                group.replace_static_member(member, old_id)
                self._rebalances.sessions.extend(group, member)
                group.answer_join(member, join_refused(error.code))
            elif group.state is GroupState.STABLE and group.generation_id == generation_id:
                skip = joining.can_skip_assignment
                answer = joined_as_before(group, member, old_leader_id, can_skip_assignment=skip)
                group.answer_join(member, answer)
            # Otherwise a rebalance has begun meanwhile, and answers all who wait.

        assignments = {other.member_id: other.assignment for other in group.members}
        self._rebalances.save(group, assignments, done)

    # --- with a member id ---------------------------------------------------------------------------------------

    def _join_known(self, group: Group, joining: Joining) -> None:
        if joining.group_instance_id is None and self._rebalances.sessions.expect_no_more(group, joining.member_id):
            self._add(group, joining.member_id, joining)
            return
        member = group.checked_member(joining.member_id, joining.group_instance_id)
        if self._has_nothing_new(group, member, joining):
            joining.answer(joined(group, member))
            return
        # Asked again, on another connection: the first request is not left without an answer.
        group.answer_join(member, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        group.update_member(member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms)
        group.await_join(member, joining.answer)
        self._rebalances.prepare_if_possible(group, f"{member.member_id} joins again: {joining.reason}")

    def _has_nothing_new(self, group: Group, member: Member, joining: Joining) -> bool:
        """It may have missed the answer. A leader of a Stable group that joins has seen something that members do not
        tell, such as new partitions."""
        if group.state is GroupState.PREPARING_REBALANCE:
            return False
        if group.state is GroupState.STABLE and group.is_leader(member.member_id):
            return False
        return member.matches(joining.protocols)
