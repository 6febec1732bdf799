"""Membership of classic groups (keys 11-14): join, heartbeat, leave, sync."""

from __future__ import annotations

from odradek.protocol.schema import Message, array, bool_, bytes_, int16, int32, message, since, string, until


@message(api_key=11, kind="request", versions=(0, 9), flexible=6)
class JoinGroupRequest(Message):
    """A member joins or rejoins its group with the protocols that it supports; timeouts in ms."""

    class JoinGroupRequestProtocol(Message):
        name: str = string()
        metadata: bytes = bytes_()

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(default=-1, versions=since(1))
    member_id: str = string()
    group_instance_id: str | None = string(default=None, versions=since(5), nullable=since(5))
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array()
    reason: str | None = string(default=None, versions=since(8), nullable=since(8))  # KIP-800


@message(api_key=11, kind="response", versions=(0, 9), flexible=6)
class JoinGroupResponse(Message):
    """The new generation, its leader, and for the leader all members."""

    class JoinGroupResponseMember(Message):
        member_id: str = string()
        group_instance_id: str | None = string(default=None, versions=since(5), nullable=since(5))
        metadata: bytes = bytes_()

    throttle_time_ms: int = int32(versions=since(2))
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(default=None, versions=since(7), nullable=since(7))  # KIP-559
    protocol_name: str | None = string(nullable=since(7))
    leader: str = string()
    skip_assignment: bool = bool_(versions=since(9))
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array()


@message(api_key=12, kind="request", versions=(0, 4), flexible=4)
class HeartbeatRequest(Message):
    """Keeps a member's session alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(default=None, versions=since(3), nullable=since(3))


@message(api_key=12, kind="response", versions=(0, 4), flexible=4)
class HeartbeatResponse(Message):
    """Whether the member is still part of the group's generation."""

    throttle_time_ms: int = int32(versions=since(1))
    error_code: int = int16()


@message(api_key=13, kind="request", versions=(0, 5), flexible=4)
class LeaveGroupRequest(Message):
    """One member, or from v3 several, leave the group."""

    class MemberIdentity(Message):
        member_id: str = string(versions=since(3))
        group_instance_id: str | None = string(default=None, versions=since(3), nullable=since(3))
        reason: str | None = string(default=None, versions=since(5), nullable=since(5))  # KIP-800

    group_id: str = string()
    member_id: str = string(versions=until(2))
    members: list[MemberIdentity] = array(versions=since(3))


@message(api_key=13, kind="response", versions=(0, 5), flexible=4)
class LeaveGroupResponse(Message):
    """Whether each member has left."""

    class MemberResponse(Message):
        member_id: str = string(versions=since(3))
        group_instance_id: str | None = string(versions=since(3), nullable=since(3))
        error_code: int = int16(versions=since(3))

    throttle_time_ms: int = int32(versions=since(1))
    error_code: int = int16()
    members: list[MemberResponse] = array(versions=since(3))


@message(api_key=14, kind="request", versions=(0, 5), flexible=4)
class SyncGroupRequest(Message):
    """The leader sends the assignments; the other members wait for theirs."""

    class SyncGroupRequestAssignment(Message):
        member_id: str = string()
        assignment: bytes = bytes_()

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(default=None, versions=since(3), nullable=since(3))
    protocol_type: str | None = string(default=None, versions=since(5), nullable=since(5))  # KIP-559
    protocol_name: str | None = string(default=None, versions=since(5), nullable=since(5))  # KIP-559
    assignments: list[SyncGroupRequestAssignment] = array()


@message(api_key=14, kind="response", versions=(0, 5), flexible=4)
class SyncGroupResponse(Message):
    """The assignment of this member."""

    throttle_time_ms: int = int32(versions=since(1))
    error_code: int = int16()
    protocol_type: str | None = string(default=None, versions=since(5), nullable=since(5))  # KIP-559
    protocol_name: str | None = string(default=None, versions=since(5), nullable=since(5))  # KIP-559
    assignment: bytes = bytes_()
