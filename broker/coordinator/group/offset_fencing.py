"""Who may commit offsets for a group, as it is now.

(a) Nobody for a group that is Dead.
(b) Anybody without a generation for a group without members: admin clients, consumers that assign themselves.
(c) Whoever names a generation, a member or an instance must be that member of that generation.
(d) Without any of them nobody, while the group has members; but a transaction of a client of old, which cannot name
    them, is taken at its word.

Source: Kafka's GroupCoordinator.validateOffsetCommit.
"""

from __future__ import annotations

from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.member import Member
from odradek.broker.coordinator.group.state import GroupState
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
    """The member that commits, or None where it is none.

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
