"""Looking at groups and deleting them: DescribeGroups, ListGroups, DeleteGroups (keys 15, 16 and 42).

Source: Kafka's KafkaApis and GroupCoordinatorAdapter.
"""

from __future__ import annotations

from broker.coordinator.group.coordinator import CLASSIC, GroupCoordinator
from broker.coordinator.group.member import Member
from broker.coordinator.group.state import GroupState
from broker.handlers.authorized_operations import ALL_ON_GROUP
from broker.handlers.request_context import PendingResponse, RequestContext
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

_Described = DescribeGroupsResponse.DescribedGroup
_DescribedMember = DescribeGroupsResponse.DescribedGroupMember


def handle_describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """A group that does not exist is Dead. One that is named twice is described once."""
    coordinator = context.broker.group_coordinator
    groups = [_describe(coordinator, group_id) for group_id in dict.fromkeys(request.groups)]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_ON_GROUP
    return DescribeGroupsResponse(groups=groups)


def _describe(coordinator: GroupCoordinator, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
    try:
        group = coordinator.group(group_id)
    except ProtocolError as error:
        return _Described(group_id=group_id, error_code=error.code)
    if group is None:
        return _Described(group_id=group_id, group_state=GroupState.DEAD.value)
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    return _Described(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[_describe_member(member, protocol) for member in group.members],
    )


def _describe_member(member: Member, protocol: str | None) -> DescribeGroupsResponse.DescribedGroupMember:
    """What it said and was given is told of Stable groups only: in between it is of no generation."""
    return _DescribedMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=b"" if protocol is None else member.assignment,
    )


def handle_list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """All groups that this broker coordinates, or those in the states, and of the types, that are named."""
    coordinator = context.broker.group_coordinator
    listed = coordinator.list_groups(request.states_filter)
    if request.types_filter and CLASSIC not in {name.lower() for name in request.types_filter}:
        listed = []
    return ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if coordinator.is_loading else ErrorCode.NONE,
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=row.group_id,
                protocol_type=row.protocol_type,
                group_state=row.state.value,
                group_type=CLASSIC,
            )
            for row in listed
        ],
    )


def handle_delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> PendingResponse:
    """Answered when every group that can be is gone for good. One that is named twice is answered once."""
    deletion = _Deletion(list(dict.fromkeys(request.groups_names)))
    for group_id in deletion.group_ids:
        deletion.start(context.broker.group_coordinator, group_id)
    deletion.answer_if_complete()
    return deletion.pending


class _Deletion:
    """One request, and what came of each of its groups so far."""

    def __init__(self, group_ids: list[str]) -> None:
        self.group_ids = group_ids
        self.pending = PendingResponse()
        self._codes: dict[str, ErrorCode] = {}

    def start(self, coordinator: GroupCoordinator, group_id: str) -> None:
        def done(code: ErrorCode) -> None:
            self._codes[group_id] = code
            self.answer_if_complete()

        try:
            coordinator.delete(group_id, done)
        except ProtocolError as error:
            self._codes[group_id] = error.code

    def answer_if_complete(self) -> None:
        if len(self._codes) < len(self.group_ids):
            return
        results = [
            DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=self._codes[group_id])
            for group_id in self.group_ids
        ]
        self.pending.complete(DeleteGroupsResponse(results=results))
