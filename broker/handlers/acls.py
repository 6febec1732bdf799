"""DescribeAcls, CreateAcls and DeleteAcls (keys 29 to 31).

(A) Without an authorizer, every request fails with SECURITY_DISABLED (unprotected.py).
(B) A request with a code 0 (UNKNOWN) cannot be read, as in Kafka: its connection ends. A filter with another unknown
    code selects nothing. A creation with a code that only filters have (ANY, MATCH) is UNKNOWN_SERVER_ERROR for all.
(C) INVALID_REQUEST, for one creation: another name for the cluster than kafka-cluster, an empty name, one with a slash,
    an unknown code.
(D) UNKNOWN_SERVER_ERROR, for all creations of the same resource pattern: a principal that is not TYPE:NAME, a name that
    ZooKeeper does not take. Kafka says no more; here a text says why.
(E) The ACLs of one resource pattern are changed together. They hold on this broker before the response. An ACL that two
    filters of DeleteAcls select belongs to the result of the first. DeleteAcls answers with all ACLs that it has tried
    to delete: if the session with the store ends, the second try may not find what the first one has deleted.

Any broker answers. Source: Kafka's `AclApis`, `AclAuthorizer`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from odradek.broker.background.stepwise import each_when_written, others_between
from odradek.broker.cluster.stored_acls import MANY_ACLS, AclChange, Acls, StoredAcls
from odradek.broker.metadata_store.acl_znodes import name_fault
from odradek.broker.requests.request_context import CloseConnection, RequestContext
from odradek.broker.security.authorizer.acl import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    EntryFilter,
    Filters,
    PatternFilter,
    ResourcePattern,
)
from odradek.broker.security.authorizer.authorizer import CLUSTER_NAME
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType

Creation = CreateAclsRequest.AclCreation
Created = CreateAclsResponse.AclCreationResult
Deleted = DeleteAclsResponse.DeleteAclsFilterResult
DeletedAcl = DeleteAclsResponse.DeleteAclsMatchingAcl
DeletedItem = tuple[ResourcePattern, AccessControlEntry, ProtocolError | None]
ANY = EntryFilter(None, None, AclOperation.ANY, AclPermissionType.ANY)
NOTHING = AclFilter(PatternFilter(AclResourceType.UNKNOWN, AclPatternType.ANY, None), ANY)
"""Selects no ACL."""


class AclHandlers:
    """DescribeAcls, CreateAcls and DeleteAcls (keys 29 to 31), if there is an authorizer."""

    def __init__(self, stored: StoredAcls) -> None:
        self._stored = stored

    async def describe_acls(self, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
        """Describes the ACLs that the filter selects."""
        stored = self._stored
        wanted = _filter(request)
        found: list[tuple[ResourcePattern, Acls]] = []
        async for pattern in others_between(list(stored.authorizer.acls)):
            acls = stored.authorizer.acls.get(pattern, frozenset())
            if wanted.pattern.matches(pattern) and any(map(wanted.entry.matches, acls)):
                found.append((pattern, acls))
            if len(acls) > MANY_ACLS:
                await asyncio.sleep(0)
        resources = each_when_written(found, lambda each: _described(each[0], each[1], wanted.entry))
        return DescribeAclsResponse(error_message="", resources=resources)

    async def create_acls(self, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
        """Adds ACLs."""
        stored = self._stored
        added: dict[ResourcePattern, list[AccessControlEntry]] = {}
        results: list[ProtocolError | ResourcePattern] = []
        are_for_filters = False
        async for item in others_between(request.creations):
            codes = item.resource_type, item.resource_pattern_type, item.operation, item.permission_type
            _check_readable(codes)
            are_for_filters |= AclOperation.ANY in codes or item.resource_pattern_type == AclPatternType.MATCH
            try:
                pattern, entry = _binding(item)
            except ProtocolError as error:
                results.append(error)
            else:
                added.setdefault(pattern, []).append(entry)
                results.append(pattern)
        if are_for_filters:
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, "An ACL has ANY or MATCH, which are for filters")
        errors = {pattern: _fault(pattern, acls) async for pattern, acls in others_between(added.items())}
        changes = ((pattern, _addition(acls)) for pattern, acls in added.items() if errors[pattern] is None)
        async for pattern, altered in stored.alter(changes):
            errors[pattern] = altered.error
        return CreateAclsResponse(
            results=each_when_written(
                results, lambda each: _created(each if isinstance(each, ProtocolError) else errors[each])
            )
        )

    async def delete_acls(self, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
        """Deletes the ACLs that the filters select."""
        stored = self._stored
        filters = Filters([_filter(each) for each in request.filters])
        named = (pattern for pattern in filters.named_patterns() if name_fault(pattern.name) is None)
        patterns = dict.fromkeys([*stored.authorizer.acls, *named])
        selected = [pattern async for pattern in others_between(patterns) if filters.of(pattern)]
        tried: defaultdict[ResourcePattern, set[AccessControlEntry]] = defaultdict(set)
        changes = ((pattern, _deletion(filters, pattern, tried[pattern])) for pattern in selected)
        deleted: list[list[DeletedItem]] = [[] for _ in request.filters]
        async for pattern, (before, _, error) in stored.alter(changes):
            if len(before) > MANY_ACLS:
                await asyncio.sleep(0)
            for entry in sorted(tried.pop(pattern)):
                index = filters.first(pattern, entry)
                assert index is not None
                deleted[index].append((pattern, entry, error))
            if len(before) > MANY_ACLS:
                await asyncio.sleep(0)
        results = [
            Deleted(error_message=None, matching_acls=each_when_written(items, lambda item: _deleted(*item)))
            for items in deleted
        ]
        return DeleteAclsResponse(filter_results=results)


def _filter(item: Any) -> AclFilter:
    """The filter of DescribeAcls, or one of DeleteAcls (B)."""
    codes = item.resource_type_filter, item.pattern_type_filter, item.operation, item.permission_type
    _check_readable(codes)
    try:
        pattern = PatternFilter(AclResourceType(codes[0]), AclPatternType(codes[1]), item.resource_name_filter)
        entry = EntryFilter(
            item.principal_filter, item.host_filter, AclOperation(codes[2]), AclPermissionType(codes[3])
        )
    except ValueError:
        return NOTHING
    return AclFilter(pattern, entry)


def _check_readable(codes: Iterable[int]) -> None:
    if 0 in codes:
        raise CloseConnection("the request has an ACL or a filter with the code 0")


def _binding(item: Creation) -> AclBinding:
    """Raises ProtocolError (B, C), which is for all creations if it is UNKNOWN_SERVER_ERROR."""
    try:
        pattern_type = AclPatternType(item.resource_pattern_type)
        pattern = ResourcePattern(AclResourceType(item.resource_type), pattern_type, item.resource_name)
        operation, permission = AclOperation(item.operation), AclPermissionType(item.permission_type)
    except ValueError:
        unknown = True
    else:
        unknown = False
    if item.resource_type == AclResourceType.CLUSTER and item.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not item.resource_name:
        raise _invalid("Invalid empty resource name")
    if unknown:
        raise _invalid("Failed to create ACL: it contains unknown elements")
    if "/" in item.resource_name:
        raise _invalid("Failed to create ACL: the name of the resource contains a slash")
    return AclBinding(pattern, AccessControlEntry(item.principal, item.host, operation, permission))


def _invalid(text: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, text)


def _fault(pattern: ResourcePattern, acls: Iterable[AccessControlEntry]) -> ProtocolError | None:
    """Why none of these ACLs of one pattern can be added (D)."""
    fault = name_fault(pattern.name)
    if fault is not None:
        return ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The name of the resource {fault}")
    for entry in acls:
        if ":" not in entry.principal:
            return ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The principal {entry.principal!r} is not TYPE:NAME")
    return None


def _addition(acls: Iterable[AccessControlEntry]) -> AclChange:
    return lambda before: before.union(acls)


def _deletion(filters: Filters, pattern: ResourcePattern, tried: set[AccessControlEntry]) -> AclChange:
    """Adds what it deletes to `tried`."""

    def delete(before: Acls) -> Acls:
        deleted = frozenset(entry for entry in before if filters.first(pattern, entry) is not None)
        tried.update(deleted)
        return before - deleted

    return delete


def _described(pattern: ResourcePattern, acls: Acls, wanted: EntryFilter) -> Any:
    return DescribeAclsResponse.DescribeAclsResource(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        acls=[
            DescribeAclsResponse.AclDescription(
                principal=entry.principal, host=entry.host, operation=entry.operation, permission_type=entry.permission
            )
            for entry in sorted(filter(wanted.matches, acls))
        ],
    )


def _created(error: ProtocolError | None) -> Created:
    if error is None:
        return Created(error_message="")
    return Created(error_code=error.code, error_message=error.error_message)


def _deleted(pattern: ResourcePattern, entry: AccessControlEntry, error: ProtocolError | None) -> DeletedAcl:
    return DeletedAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.error_message,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
