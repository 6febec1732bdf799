"""AclAdmin over the wire's own form, with a cluster that answers what a test says."""

from __future__ import annotations

from typing import Any, cast

import pytest

from odradek.clients.admin.acls import Acl, AclAdmin, AclFilter
from odradek.clients.admin.client import AdminClient
from odradek.protocol.compiler import decode, encode
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.acls import CreateAclsResponse, DeleteAclsResponse, DescribeAclsResponse
from odradek.protocol.schema import Message
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType

VERSION = 3
TOPIC = AclResourceType.TOPIC
ACL = Acl(TOPIC, "t", AclPatternType.PREFIXED, "User:a", "*", AclOperation.READ, AclPermissionType.DENY)


class Cluster:
    """Answers every request with `response`, both as bytes."""

    def __init__(self, response: Message) -> None:
        self.response = response
        self.asked: list[Any] = []

    async def ask_any(self, request: Message) -> Any:
        self.asked.append(decode(type(request), VERSION, encode(request, VERSION)))
        return decode(type(self.response), VERSION, encode(self.response, VERSION))

    @property
    def admin(self) -> AclAdmin:
        return AclAdmin(cast(AdminClient, self))


def described(operation: int = 3) -> DescribeAclsResponse:
    entry = DescribeAclsResponse.AclDescription(principal="User:a", host="*", operation=operation, permission_type=2)
    resource = DescribeAclsResponse.DescribeAclsResource(
        resource_type=2, resource_name="t", pattern_type=4, acls=[entry]
    )
    return DescribeAclsResponse(resources=[resource])


async def test_acls_are_described_once_whatever_filters_select_them() -> None:
    cluster = Cluster(described())
    assert await cluster.admin.acls([AclFilter(), AclFilter(TOPIC, "t", principal="User:a")]) == [ACL]
    first, second = cluster.asked
    assert (first.resource_type_filter, first.resource_name_filter, first.pattern_type_filter) == (1, None, 1)
    assert (first.principal_filter, first.host_filter, first.operation, first.permission_type) == (None, None, 1, 1)
    assert (second.resource_type_filter, second.resource_name_filter, second.principal_filter) == (2, "t", "User:a")


async def test_an_operation_of_a_newer_broker_is_unknown() -> None:
    (acl,) = await Cluster(described(operation=99)).admin.acls([AclFilter()])
    assert acl.operation is AclOperation.UNKNOWN


async def test_acls_are_created() -> None:
    cluster = Cluster(CreateAclsResponse(results=[CreateAclsResponse.AclCreationResult()]))
    await cluster.admin.create([ACL])
    (creation,) = cluster.asked[0].creations
    assert (creation.resource_type, creation.resource_name, creation.resource_pattern_type) == (2, "t", 4)
    assert (creation.principal, creation.host, creation.operation, creation.permission_type) == ("User:a", "*", 3, 2)


async def test_the_deleted_acls_are_returned() -> None:
    match = DeleteAclsResponse.DeleteAclsMatchingAcl(
        resource_type=2, resource_name="t", pattern_type=4, principal="User:a", host="*", operation=3, permission_type=2
    )
    result = DeleteAclsResponse.DeleteAclsFilterResult(matching_acls=[match])
    cluster = Cluster(DeleteAclsResponse(filter_results=[result, result]))
    assert await cluster.admin.delete([AclFilter(*ACL), AclFilter()]) == [ACL]
    assert [one.resource_type_filter for one in cluster.asked[0].filters] == [2, 1]


async def test_errors_are_raised_wherever_they_stand() -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    creation = CreateAclsResponse.AclCreationResult(error_code=code, error_message="no")
    result = DeleteAclsResponse.DeleteAclsFilterResult(error_code=code, error_message="no")
    match = DeleteAclsResponse.DeleteAclsMatchingAcl(
        error_code=code, error_message="no", resource_name="", principal="", host=""
    )
    within = DeleteAclsResponse.DeleteAclsFilterResult(matching_acls=[match])
    attempts = [
        Cluster(DescribeAclsResponse(error_code=code, error_message="no")).admin.acls([AclFilter()]),
        Cluster(CreateAclsResponse(results=[CreateAclsResponse.AclCreationResult(), creation])).admin.create(
            [ACL, ACL]
        ),
        Cluster(DeleteAclsResponse(filter_results=[result])).admin.delete([AclFilter()]),
        Cluster(DeleteAclsResponse(filter_results=[within])).admin.delete([AclFilter()]),
    ]
    for attempt in attempts:
        with pytest.raises(ProtocolError, match="no") as caught:
            await attempt
        assert caught.value.code == code
