"""SaslHandshake and SaslAuthenticate: both are refused, since PLAINTEXT listeners do not authenticate.

Source: Kafka's `KafkaApis.handleSaslHandshakeRequest` and `handleSaslAuthenticateRequest`.
"""

from __future__ import annotations

from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


class SaslHandlers:
    """SaslHandshake and SaslAuthenticate (keys 17 and 36)."""

    def sasl_handshake(self, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
        """Returns ILLEGAL_SASL_STATE and no mechanisms."""
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    def sasl_authenticate(self, request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
        """Returns ILLEGAL_SASL_STATE."""
        message = f"Listener {context.listener.name} does not authenticate with SASL"
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
