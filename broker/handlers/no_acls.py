"""DescribeAcls, CreateAcls and DeleteAcls (keys 29 to 31) of a broker without an authorizer: all fail."""

from __future__ import annotations

from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

REASON = "There is no authorizer: every client may perform every operation"

Created = CreateAclsResponse.AclCreationResult
Deleted = DeleteAclsResponse.DeleteAclsFilterResult


class NoAclHandlers:
    """Each response has SECURITY_DISABLED, one for each item of the request."""

    async def describe_acls(self, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=REASON, resources=[])

    async def create_acls(self, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
        result = Created(error_code=ErrorCode.SECURITY_DISABLED, error_message=REASON)
        return CreateAclsResponse(results=[result] * len(request.creations))

    async def delete_acls(self, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
        result = Deleted(error_code=ErrorCode.SECURITY_DISABLED, error_message=REASON, matching_acls=[])
        return DeleteAclsResponse(filter_results=[result] * len(request.filters))
