"""Membership of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (keys 11-14).

Versions differ in their fields, hardly in behavior. JoinGroup 0 has no rebalance timeout of its own; from 4 on a new
member receives an id to join again with; 9 can skip the assignment. From 3 on a LeaveGroup may name several members.

Source: Kafka's KafkaApis and GroupCoordinatorAdapter.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from odradek.broker.background.stepwise import Pace, Steps, each_in_steps
from odradek.broker.coordinator.group.consumer.classic_members import Leaving
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.coordinator import GroupCoordinator
from odradek.broker.coordinator.group.member_requests import (
    JoinAnswer,
    Joining,
    Syncing,
    join_refused,
    sync_refused,
)
from odradek.broker.handlers.access import Access, Check
from odradek.broker.requests.request_context import PendingResponse, RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from odradek.protocol.wire_codes import AclOperation, AclResourceType

JOIN_WITH_REBALANCE_TIMEOUT = 1
JOIN_WITH_KNOWN_ID = 4
JOIN_WITH_SKIPPED_ASSIGNMENT = 9
SYNC_WITH_PROTOCOL = 5
LEAVE_OF_SEVERAL = 3
NO_REASON = "not provided"
READ_GROUP = Check(AclOperation.READ, AclResourceType.GROUP, "group_id")


class GroupHandlers:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup (keys 11 to 14)."""

    def __init__(self, coordinator: GroupCoordinator, access: Access) -> None:
        self._coordinator = coordinator
        self._access = access

    def join_group(self, request: JoinGroupRequest, context: RequestContext) -> PendingResponse:
        """Responds when the next generation begins, or at once if there is nothing to wait for."""
        pending = PendingResponse()
        coordinator = self._coordinator
        answer = pending.complete
        try:
            coordinator.join(request.group_id, _joining(request, context, answer))
        except ProtocolError as error:
            answer(join_refused(error.code, request.member_id))
        if not request.member_id:
            pending.when_abandoned(partial(coordinator.join_abandoned, request.group_id, answer))
        return pending

    def sync_group(
        self, request: SyncGroupRequest, context: RequestContext
    ) -> Steps[PendingResponse | SyncGroupResponse]:
        """Responds when the leader's assignment is available and replicated."""
        protocol = (request.protocol_type, request.protocol_name)
        if context.api_version >= SYNC_WITH_PROTOCOL and None in protocol:
            return sync_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._access.demand(context, READ_GROUP, request.group_id)
        pending = PendingResponse()
        assignments = yield from _assignments(request)
        syncing = Syncing(
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
            assignments,
            pending.complete,
        )
        try:
            self._coordinator.sync(request.group_id, syncing)
        except ProtocolError as error:
            return sync_refused(error.code)
        return pending

    def heartbeat(self, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        try:
            code = self._coordinator.heartbeat(
                request.group_id, request.member_id, request.group_instance_id, request.generation_id
            )
        except ProtocolError as error:
            code = error.code
        return HeartbeatResponse(error_code=code)

    def leave_group(
        self, request: LeaveGroupRequest, context: RequestContext
    ) -> Steps[LeaveGroupResponse | PendingResponse]:
        """Members leave one after the other; those of a consumer group together, which is answered when it is
        replicated. Before version 3 the error of the only member is the response's error.
        """
        coordinator = self._coordinator

        def left(member: LeaveGroupRequest.MemberIdentity) -> LeaveGroupResponse.MemberResponse:
            code = coordinator.leave(
                request.group_id, member.member_id, member.group_instance_id, member.reason or NO_REASON
            )
            return LeaveGroupResponse.MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
            )

        try:
            group = coordinator.consumer_group(request.group_id)
            if group is not None:
                return (yield from self._leave_together(group, request, context))
            if context.api_version < LEAVE_OF_SEVERAL:
                code = coordinator.leave(request.group_id, request.member_id, None, NO_REASON)
                return LeaveGroupResponse(error_code=code)
            members = yield from each_in_steps(request.members, left)
        except ProtocolError as error:
            return LeaveGroupResponse(error_code=error.code)
        return LeaveGroupResponse(members=members)

    def _leave_together(
        self, group: ConsumerGroup, request: LeaveGroupRequest, context: RequestContext
    ) -> Steps[PendingResponse]:
        pending = PendingResponse()
        is_of_several = context.api_version >= LEAVE_OF_SEVERAL

        def answer(response: Any) -> None:
            if isinstance(response, ProtocolError):
                response = LeaveGroupResponse(error_code=response.code)
            elif not is_of_several:
                response = LeaveGroupResponse(error_code=response.members[0].error_code)
            pending.complete(response)

        leaving = (
            (Leaving(member.member_id, member.group_instance_id) for member in request.members)
            if is_of_several
            else (Leaving(request.member_id, None),)
        )
        yield from self._coordinator.leave_together(group, leaving, answer)
        return pending


def _joining(request: JoinGroupRequest, context: RequestContext, answer: JoinAnswer) -> Joining:
    version = context.api_version
    has_timeout = version >= JOIN_WITH_REBALANCE_TIMEOUT
    return Joining(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.java_host}",
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        needs_known_id=version >= JOIN_WITH_KNOWN_ID,
        can_skip_assignment=version >= JOIN_WITH_SKIPPED_ASSIGNMENT,
        reason=request.reason or NO_REASON,
        answer=answer,
    )


def _assignments(request: SyncGroupRequest) -> Steps[dict[str, bytes]]:
    """Returns the assignments by member id. If a member is named twice, the last one counts."""
    assignments: dict[str, bytes] = {}
    pace = Pace()
    for each in request.assignments:
        assignments[each.member_id] = bytes(each.assignment)
        if pace.step_ends():
            yield
    return assignments
