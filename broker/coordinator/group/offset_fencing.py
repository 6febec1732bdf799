"""Checks whether a client may commit offsets for a group.

(a) A Dead group accepts no commits.
(b) A group without members accepts any commit without a generation: admin clients, consumers with manual assignment.
(c) A commit that names a generation, a member or an instance must come from that member in that generation.
(d) A group with members refuses a commit that names none of the three. In a transaction it accepts such a commit
    unchecked, because old clients cannot name them there.

Source: Kafka's GroupCoordinator.validateOffsetCommit.
"""

from __future__ import annotations

from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.group_state import GroupState
from odradek.broker.coordinator.group.member import Member
from odradek.protocol.errors import ErrorCode, ProtocolError

NO_MEMBER = ""
NO_GENERATION = -1


def check_may_commit(
    group: Group,
    generation_id: int,
    member_id: str,
    group_instance_id: str | None,
    *,
    in_transaction: bool = False,
) -> Member | None:
    """Returns the member that commits, or None if the client is not a member.

    Raises COORDINATOR_NOT_AVAILABLE (a), UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    if group.state is GroupState.DEAD:
        raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    is_empty = group.state is GroupState.EMPTY
    if generation_id < 0 and is_empty:
        return None
    if generation_id >= 0 or member_id != NO_MEMBER or group_instance_id is not None:
        member = group.checked_member(member_id, group_instance_id)
        if generation_id != group.generation_id:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
        return member
    if not in_transaction and not is_empty:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    return None
