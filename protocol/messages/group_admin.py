"""Lists, describes and deletes groups (keys 15, 16 and 42)."""

from __future__ import annotations

from odradek.protocol.schema import Message, array, bool_, bytes_, int16, int32, message, since, string


@message(api_key=15, kind="request", versions=(0, 6), flexible=5)
class DescribeGroupsRequest(Message):
    """The groups to describe."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = bool_(versions=since(3))


@message(api_key=15, kind="response", versions=(0, 6), flexible=5)
class DescribeGroupsResponse(Message):
    """The state, protocol and members of each group."""

    class DescribedGroupMember(Message):
        member_id: str = string()
        group_instance_id: str | None = string(default=None, versions=since(4), nullable=since(4))
        client_id: str = string()
        client_host: str = string()
        member_metadata: bytes = bytes_()
        member_assignment: bytes = bytes_()

    class DescribedGroup(Message):
        error_code: int = int16()
        error_message: str | None = string(default=None, versions=since(6), nullable=since(6))  # KIP-1043
        group_id: str = string()
        group_state: str = string()
        protocol_type: str = string()
        protocol_data: str = string()
        members: list[DescribeGroupsResponse.DescribedGroupMember] = array()
        authorized_operations: int = int32(default=-2147483648, versions=since(3))

    throttle_time_ms: int = int32(versions=since(1))
    groups: list[DescribedGroup] = array()


@message(api_key=16, kind="request", versions=(0, 5), flexible=3)
class ListGroupsRequest(Message):
    """All groups of a coordinator, from v4 filtered by state and from v5 by type."""

    states_filter: list[str] = array(string, versions=since(4))  # KIP-518
    types_filter: list[str] = array(string, versions=since(5))  # KIP-848


@message(api_key=16, kind="response", versions=(0, 5), flexible=3)
class ListGroupsResponse(Message):
    """The groups with their types and states."""

    class ListedGroup(Message):
        group_id: str = string()
        protocol_type: str = string()
        group_state: str = string(versions=since(4))  # KIP-518
        group_type: str = string(versions=since(5))  # KIP-848

    throttle_time_ms: int = int32(versions=since(1))
    error_code: int = int16()
    groups: list[ListedGroup] = array()


@message(api_key=42, kind="request", versions=(0, 3), flexible=2)
class DeleteGroupsRequest(Message):
    """The empty groups to delete."""

    groups_names: list[str] = array(string)


@message(api_key=42, kind="response", versions=(0, 3), flexible=2)
class DeleteGroupsResponse(Message):
    """Whether each group was deleted."""

    class DeletableGroupResult(Message):
        group_id: str = string()
        error_code: int = int16()
        error_message: str | None = string(default=None, versions=since(3), nullable=since(3))  # KIP-1043

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array()
