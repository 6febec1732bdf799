"""An administrator: access rights."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.clients.admin.acls import Acl
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.acls import CreateAclsRequest, DescribeAclsRequest
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from tests.simulation.client.cluster import Address, Cluster
from tests.simulation.client.wire import NotSent, Unanswered


def create_acls_request(acls: Iterable[Acl]) -> CreateAclsRequest:
    """All of them in one request."""
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
    return CreateAclsRequest(creations=creations)


async def give_rights(cluster: Cluster, addresses: Iterable[Address], acls: Iterable[Acl]) -> None:
    """Creates ACLs; returns when all brokers have them."""
    request = create_acls_request(acls)
    while True:
        try:
            answer = await cluster.ask_any(request)
        except (NotSent, Unanswered):
            await cluster.back_off()
            continue
        if all(each.error_code == ErrorCode.NONE for each in answer.results):
            break
        await cluster.back_off()
    for address in addresses:
        while await _acls_at(cluster, address) < len(request.creations):
            await cluster.back_off()


async def _acls_at(cluster: Cluster, address: Address) -> int:
    """How many ACLs a broker has."""
    everything = DescribeAclsRequest(
        resource_type_filter=AclResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=AclPatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )
    try:
        answer = await cluster.ask(address, everything)
    except (NotSent, Unanswered):
        return 0
    return sum(len(resource.acls) for resource in answer.resources)
