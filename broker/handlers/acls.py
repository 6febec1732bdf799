"""DescribeAcls, CreateAcls and DeleteAcls, as long as there is no authorizer: SECURITY_DISABLED for whatever is asked.

Source: Kafka's `AclApis`.
"""

from __future__ import annotations

from odradek.broker.handlers.request_context import RequestContext
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

REASON = "There is no authorizer: everybody may do everything"


def handle_describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """No binding, and why."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=REASON, resources=[])


def handle_create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """The refusal for each binding."""
    result = CreateAclsResponse.AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=REASON)
    return CreateAclsResponse(results=[result] * len(request.creations))


def handle_delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """The refusal for each filter."""
    result = DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=REASON, matching_acls=[]
    )
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))
