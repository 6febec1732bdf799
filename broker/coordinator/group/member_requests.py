"""Requests of members that speak the classic protocol, whatever the kind of their group, and how they are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.broker.coordinator.group.group import NO_GENERATION, NO_MEMBER
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) pairs in the member's order of preference."""
JoinAnswer = Callable[[JoinGroupResponse], object]
SyncAnswer = Callable[[SyncGroupResponse], object]


class Joining(NamedTuple):
    """A JoinGroup request. Times in ms.

    `member_id` is empty if the client has none. `needs_known_id`: the client must join again with the id it is
    assigned. `can_skip_assignment`: the request's version has `skip_assignment` in its response.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_id: bool
    can_skip_assignment: bool
    reason: str
    answer: JoinAnswer


class Syncing(NamedTuple):
    """A SyncGroup request. `protocol_type` and `protocol_name` are None in versions without them. `assignments` is
    keyed by member id.
    """

    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]
    answer: SyncAnswer


def join_refused(code: ErrorCode, member_id: str = NO_MEMBER) -> JoinGroupResponse:
    """Returns an error without a generation. The client may retry with `member_id`."""
    return JoinGroupResponse(error_code=code, generation_id=NO_GENERATION, protocol_name=None, member_id=member_id)


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    """Returns an error without an assignment."""
    return SyncGroupResponse(error_code=code)
