"""Describing, listing and deleting groups: DescribeGroups, ListGroups, DeleteGroups (keys 15, 16 and 42).

Source: Kafka's KafkaApis and GroupCoordinatorAdapter, GroupMetadata.summary.
"""

from __future__ import annotations

from typing import Any

from odradek.broker.background.stepwise import Pace, Steps, each_in_steps, items_of, once
from odradek.broker.coordinator.group.admin import STATES, TYPES
from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.member import Member
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.coordinator import GroupCoordinator
from odradek.broker.handlers.access import ASKS_ON, LEFT_OUT, Access, Check
from odradek.broker.handlers.answer_size import AnswerSize
from odradek.broker.requests.request_context import PendingResponse, RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from odradek.protocol.wire_codes import AclOperation, AclResourceType

ITEMS_PER_DELETION = 10
"""How many items of a step the deletion of a group counts as."""

MEMBER_BYTES = 50
"""The size of a member in a response, mainly its id, without its metadata and assignment."""
LIST_ALL = Check(AclOperation.DESCRIBE, AclResourceType.CLUSTER, "all groups", ASKS_ON, is_audited=False)
LIST_EACH = Check(AclOperation.DESCRIBE, AclResourceType.GROUP, "or else, each group", LEFT_OUT, is_audited=False)
FIRST_VERSION_WITH_NOT_FOUND = 6
NOBODY: list[DescribeGroupsResponse.DescribedGroupMember] = []
"""The members of every group without members, shared by all responses: an empty list is as large as a short name."""


class GroupAdminHandlers:
    """DescribeGroups, ListGroups and DeleteGroups (keys 15, 16 and 42)."""

    def __init__(self, coordinator: GroupCoordinator, access: Access, max_response_bytes: int) -> None:
        self._coordinator = coordinator
        self._access = access
        self._max_response_bytes = max_response_bytes

    def describe_groups(self, request: DescribeGroupsRequest, context: RequestContext) -> Steps[DescribeGroupsResponse]:
        """Describes each classic group once, even if named twice. A group that does not exist, or of another kind, is
        Dead, and from version 6 on also GROUP_ID_NOT_FOUND (KIP-1043).
        """
        coordinator = self._coordinator
        groups = []
        pace, size = Pace(), AnswerSize(self._max_response_bytes)
        for group_id in (yield from once(request.groups)):
            described = _describe(coordinator, group_id, context.api_version)
            if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
                described.authorized_operations = self._access.operations(context, AclResourceType.GROUP, group_id)
            for member in described.members:
                size.add(MEMBER_BYTES + len(member.member_metadata) + len(member.member_assignment))
            groups.append(described)
            if pace.step_ends(items_of(group_id) + len(described.members)):
                yield
        return DescribeGroupsResponse(groups=groups)

    def list_groups(self, request: ListGroupsRequest, context: RequestContext) -> Steps[ListGroupsResponse]:
        """Lists the groups that this broker coordinates and the client may know, filtered by state and type."""
        coordinator = self._coordinator
        states = yield from each_in_steps(request.states_filter, lambda name: STATES.get(name.lower()))
        types = yield from each_in_steps(request.types_filter, lambda name: TYPES.get(name.lower()))
        listed = coordinator.list_groups(states, types)
        if not self._access.allows(context, LIST_ALL):
            names = [row.group_id for row in listed]
            known = yield from self._access.allowed(context, LIST_EACH, names)
            listed = [row for row in listed if row.group_id in known]
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if coordinator.is_loading else ErrorCode.NONE
        groups = yield from each_in_steps(
            listed,
            lambda row: ListGroupsResponse.ListedGroup(
                group_id=row.group_id,
                protocol_type=row.protocol_type,
                group_state=row.state_name,
                group_type=row.group_type,
            ),
        )
        return ListGroupsResponse(error_code=error, groups=groups)

    def delete_groups(self, request: DeleteGroupsRequest, context: RequestContext) -> Steps[Any]:
        """Responds when the deletions are replicated. A group that is named twice has one result.

        Groups are deleted one after the other; each deletion is atomic.
        """
        deletion = _Deletion()
        pace = Pace()
        for group_id in (yield from once(request.groups_names)):
            deletion.start(self._coordinator, group_id)
            if pace.step_ends(ITEMS_PER_DELETION + items_of(group_id)):
                yield
        return deletion.answer()


def _describe(coordinator: GroupCoordinator, group_id: str, api_version: int) -> DescribeGroupsResponse.DescribedGroup:
    try:
        group = coordinator.group(group_id)
    except ProtocolError as error:
        return DescribeGroupsResponse.DescribedGroup(
            group_id=group_id, error_code=error.code, error_message=error.error_message, members=NOBODY
        )
    if isinstance(group, ClassicGroup):
        return _described(group)
    dead = DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.label, members=NOBODY)
    if api_version >= FIRST_VERSION_WITH_NOT_FOUND:
        dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        dead.error_message = "The group does not exist." if group is None else "The group is not a classic group."
    return dead


def _described(group: ClassicGroup) -> DescribeGroupsResponse.DescribedGroup:
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


class _Deletion:
    """A request to delete groups, and the results so far."""

    def __init__(self) -> None:
        self._pending = PendingResponse()
        self._response = DeleteGroupsResponse()
        self._waiting = 0
        self._all_started = False

    def start(self, coordinator: GroupCoordinator, group_id: str) -> None:
        result = DeleteGroupsResponse.DeletableGroupResult(group_id=group_id)
        self._response.results.append(result)
        self._waiting += 1

        def done(code: ErrorCode) -> None:
            result.error_code = code
            result.error_message = None if code is ErrorCode.NONE else code.message
            self._waiting -= 1
            if self._all_started and not self._waiting:
                self._pending.complete(self._response)

        try:
            coordinator.delete(group_id, done)
        except ProtocolError as error:
            done(error.code)

    def answer(self) -> DeleteGroupsResponse | PendingResponse:
        """Returns the response, or the parked request if deletions are under way. Call it after the last `start`."""
        self._all_started = True
        return self._pending if self._waiting else self._response
