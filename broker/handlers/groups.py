"""Membership of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (keys 11-14).

Versions differ in what they say, hardly in what happens: JoinGroup 0 has no rebalance time-out of its own, from 4 on a
new member is given an id to come back with, 9 knows that there may be nothing to assign; LeaveGroup speaks for several
from 3 on.

Source: Kafka's KafkaApis and GroupCoordinatorAdapter.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from ipaddress import ip_address

from broker.coordinator.group.answers import join_refused, sync_refused
from broker.coordinator.group.join import Joining
from broker.coordinator.group.membership import Syncing
from broker.handlers.request_context import PendingResponse, RequestContext
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

JOIN_WITH_REBALANCE_TIMEOUT = 1
JOIN_WITH_KNOWN_ID = 4
JOIN_WITH_NULLABLE_PROTOCOL = 7
JOIN_WITH_SKIPPED_ASSIGNMENT = 9
SYNC_WITH_PROTOCOL = 5
LEAVE_OF_SEVERAL = 3
NO_REASON = "not provided"

_Identity = LeaveGroupRequest.MemberIdentity
_Left = LeaveGroupResponse.MemberResponse


def handle_join_group(request: JoinGroupRequest, context: RequestContext) -> PendingResponse | JoinGroupResponse:
    """Answered when the next generation begins; at once where there is nothing to wait for."""
    pending = PendingResponse()
    coordinator = context.broker.group_coordinator
    answer = partial(_answer_join, pending, context.api_version)
    try:
        coordinator.join(request.group_id, _joining(request, context, answer))
    except ProtocolError as error:
        answer(join_refused(error.code, request.member_id))
    if not request.member_id:
        pending.when_abandoned(partial(coordinator.join_abandoned, request.group_id, answer))
    return pending


def _joining(request: JoinGroupRequest, context: RequestContext, answer: partial[None]) -> Joining:
    version = context.api_version
    has_timeout = version >= JOIN_WITH_REBALANCE_TIMEOUT
    return Joining(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=_java_host(context.client_host),
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        needs_known_id=version >= JOIN_WITH_KNOWN_ID,
        can_skip_assignment=version >= JOIN_WITH_SKIPPED_ASSIGNMENT,
        reason=request.reason or NO_REASON,
        answer=answer,
    )


def _answer_join(pending: PendingResponse, version: int, response: JoinGroupResponse) -> None:
    if response.protocol_name is None and version < JOIN_WITH_NULLABLE_PROTOCOL:
        response.protocol_name = ""
    pending.complete(response)


def handle_sync_group(request: SyncGroupRequest, context: RequestContext) -> PendingResponse | SyncGroupResponse:
    """Answered when the leader's assignment is there and safe."""
    protocol = (request.protocol_type, request.protocol_name)
    if context.api_version >= SYNC_WITH_PROTOCOL and None in protocol:
        return sync_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    pending = PendingResponse()
    syncing = Syncing(
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        {each.member_id: bytes(each.assignment) for each in request.assignments},
        pending.complete,
    )
    try:
        context.broker.group_coordinator.sync(request.group_id, syncing)
    except ProtocolError as error:
        return sync_refused(error.code)
    return pending


def handle_heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    try:
        code = context.broker.group_coordinator.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    except ProtocolError as error:
        code = error.code
    return HeartbeatResponse(error_code=code)


def handle_leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Before version 3 the one member's error is the answer's."""
    several = context.api_version >= LEAVE_OF_SEVERAL
    members = request.members if several else [_Identity(member_id=request.member_id)]
    leaving = [(each.member_id, each.group_instance_id, each.reason or NO_REASON) for each in members]
    try:
        codes = context.broker.group_coordinator.leave(request.group_id, leaving)
    except ProtocolError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not several:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(members=list(_left(members, codes)))


def _left(members: Iterable[_Identity], codes: Iterable[ErrorCode]) -> Iterable[_Left]:
    for member, code in zip(members, codes, strict=True):
        yield _Left(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code)


def _java_host(host: str) -> str:
    """An address as Java's InetAddress writes it: /127.0.0.1, and IPv6 in full."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return f"/{host}"
    if address.version == 4:
        return f"/{address}"
    return "/" + ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))
