"""What a broker responds that has no authorizer, or no logins.

(A) Without an authorizer, DescribeAcls, CreateAcls and DeleteAcls (keys 29 to 31) fail: SECURITY_DISABLED.
(B) Without SASL, SaslHandshake and SaslAuthenticate (keys 17 and 36) fail: ILLEGAL_SASL_STATE.
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
from odradek.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
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


class NoSaslHandlers:
    """Case B: also for a client without a login under way (authenticating.py)."""

    def sasl_handshake(self, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    def sasl_authenticate(self, request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
        message = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
