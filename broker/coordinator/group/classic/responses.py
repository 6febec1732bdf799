"""Builds the responses about a classic group: JoinGroup, SyncGroup and DescribeGroups.

Source: Kafka's JoinGroupResult, SyncGroupResult, GroupMetadata.summary.
"""

from __future__ import annotations

from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.member import Member
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.group_admin import DescribeGroupsResponse
from odradek.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse

UNKNOWN_MEMBER_ID = ""
"""The member id in the JoinGroup of a client that has none."""
NO_GENERATION = -1
NOBODY: list[DescribeGroupsResponse.DescribedGroupMember] = []
"""The members of every group without members, shared by all responses: an empty list is as large as a short name."""


def join_refused(code: ErrorCode, member_id: str = UNKNOWN_MEMBER_ID) -> JoinGroupResponse:
    """Returns an error without a generation. The client may retry with `member_id`."""
    return JoinGroupResponse(error_code=code, generation_id=NO_GENERATION, protocol_name=None, member_id=member_id)


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
        leader=leader_id or UNKNOWN_MEMBER_ID,
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


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    """Returns an error without an assignment."""
    return SyncGroupResponse(error_code=code)


def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """Returns the member's assignment in the current generation."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def described(group: ClassicGroup) -> DescribeGroupsResponse.DescribedGroup:
    """Returns the group with its members. Only a Stable group has a protocol, and members with metadata and assignment:
    during a rebalance there is no consistent generation.
    """
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.label,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[_described_member(member, protocol) for member in group.members],
    )


def _described_member(member: Member, protocol: str | None) -> DescribeGroupsResponse.DescribedGroupMember:
    return DescribeGroupsResponse.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=b"" if protocol is None else member.assignment,
    )


def not_described(group_id: str, code: ErrorCode = ErrorCode.NONE) -> DescribeGroupsResponse.DescribedGroup:
    """Returns an error without a group. Without an error there is no such group: it is Dead."""
    state = GroupState.DEAD.label if code is ErrorCode.NONE else ""
    return DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=code, group_state=state, members=NOBODY)
