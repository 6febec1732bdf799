"""AclAdmin: lists, creates and deletes ACLs, over an `AdminClient`. Any broker takes them (KIP-140)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from odradek.clients.admin.client import AdminClient, check
from odradek.protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType


class Acl(NamedTuple):
    """Who may (ALLOW) or may not (DENY) do what, from where, on which resources. `principal` is TYPE:NAME."""

    resource_type: AclResourceType
    name: str
    pattern_type: AclPatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType


class AclFilter(NamedTuple):
    """Selects ACLs. ANY and None select everything; MATCH all patterns that concern the resource `name`."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermissionType = AclPermissionType.ANY


class AclAdmin:
    """Each method raises ProtocolError: SECURITY_DISABLED if the cluster has no authorizer."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def acls(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Returns the ACLs that one of the filters selects, sorted."""
        found: set[Acl] = set()
        for each in filters:
            request = DescribeAclsRequest(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            response: DescribeAclsResponse = await self._admin.ask_any(request)
            check(response.error_code, response.error_message)
            found.update(_acl(resource, one) for resource in response.resources for one in resource.acls)
        return sorted(found)

    async def create(self, acls: Iterable[Acl]) -> None:
        """Creates ACLs; those that are there already stay. Raises the first error; the others may have been created."""
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=each.resource_type,
                resource_name=each.name,
                resource_pattern_type=each.pattern_type,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in acls
        ]
        response: CreateAclsResponse = await self._admin.ask_any(CreateAclsRequest(creations=creations))
        for result in response.results:
            check(result.error_code, result.error_message)

    async def delete(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Deletes the ACLs that one of the filters selects, and returns them, sorted. Raises the first error; the
        others may have been deleted.
        """
        asked = [
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in filters
        ]
        response: DeleteAclsResponse = await self._admin.ask_any(DeleteAclsRequest(filters=asked))
        deleted: set[Acl] = set()
        for result in response.filter_results:
            check(result.error_code, result.error_message)
            for one in result.matching_acls:
                check(one.error_code, one.error_message)
                deleted.add(_acl(one, one))
        return sorted(deleted)


def _acl(resource: Any, entry: Any) -> Acl:
    """The ACL of two parts of a response, which may be the same. A number that a newer broker sends is UNKNOWN."""
    return Acl(
        _known(AclResourceType, resource.resource_type),
        resource.resource_name,
        _known(AclPatternType, resource.pattern_type),
        entry.principal,
        entry.host,
        _known(AclOperation, entry.operation),
        _known(AclPermissionType, entry.permission_type),
    )


def _known(kind: Any, number: int) -> Any:
    return kind(number) if number in kind._value2member_map_ else kind.UNKNOWN
