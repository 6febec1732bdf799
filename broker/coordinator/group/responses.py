"""What members are answered: a generation, an assignment, or why not.

Source: Kafka's JoinGroupResult, SyncGroupResult.
"""

from __future__ import annotations

from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.member import Member
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse

UNKNOWN_MEMBER_ID = ""
"""What a member without an id calls itself."""
NO_GENERATION = -1


def join_refused(code: ErrorCode, member_id: str = UNKNOWN_MEMBER_ID) -> JoinGroupResponse:
    """No generation, and the id under which the member may try again."""
    return JoinGroupResponse(error_code=code, generation_id=NO_GENERATION, protocol_name=None, member_id=member_id)


def joined(group: Group, member: Member) -> JoinGroupResponse:
    """The current generation. Its leader hears of all members and what they said."""
    return _generation(group, member, group.leader_id, with_members=group.is_leader(member.member_id))


def joined_as_before(
    group: Group, member: Member, old_leader_id: str | None, *, can_skip_assignment: bool
) -> JoinGroupResponse:
    """A static member is back in a Stable group, and no rebalance is due.

    If it leads, there is nothing for it to assign: an assignment of a Stable group would go nowhere. It is told so
    where it understands that (version 9); before, it hears of the leader under its old id and takes it for another.
    """
    if not can_skip_assignment:
        return _generation(group, member, old_leader_id, with_members=False)
    leads = group.is_leader(member.member_id)
    answer = _generation(group, member, group.leader_id, with_members=leads)
    answer.skip_assignment = leads
    return answer


def _generation(group: Group, member: Member, leader_id: str | None, *, with_members: bool) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader_id or UNKNOWN_MEMBER_ID,
        member_id=member.member_id,
        members=_members(group) if with_members else [],
    )


def _members(group: Group) -> list[JoinGroupResponse.JoinGroupResponseMember]:
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
    """No assignment."""
    return SyncGroupResponse(error_code=code)


def synced(group: Group, member: Member) -> SyncGroupResponse:
    """The member's assignment in the current generation."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )
