"""DescribeAcls, CreateAcls and DeleteAcls. There is no authorizer yet, so every request fails with SECURITY_DISABLED.

Source: Kafka's `AclApis`.
"""

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


class AclHandlers:
    """DescribeAcls, CreateAcls and DeleteAcls (keys 29 to 31)."""

    def describe_acls(self, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
        """Returns SECURITY_DISABLED and no bindings."""
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=REASON, resources=[])

    def create_acls(self, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
        """Returns SECURITY_DISABLED for each binding."""
        result = CreateAclsResponse.AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=REASON)
        return CreateAclsResponse(results=[result] * len(request.creations))

    def delete_acls(self, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
        """Returns SECURITY_DISABLED for each filter."""
        result = DeleteAclsResponse.DeleteAclsFilterResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=REASON, matching_acls=[]
        )
        return DeleteAclsResponse(filter_results=[result] * len(request.filters))
