"""SaslHandshake and SaslAuthenticate (keys 17 and 36): the messages of a login, for clients of a listener with SASL.

    (A) Without a login under way they are ILLEGAL_SASL_STATE: the listener does not authenticate, the client has
        authenticated, or it may not do so again.
    (B) A failed login is answered, after connection.failed.authentication.delay.ms, and ends the connection.

Source: Kafka's `SaslServerAuthenticator`; `KafkaApis.handleSaslHandshakeRequest` and `handleSaslAuthenticateRequest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.broker.requests.request_context import CloseConnection, RequestContext
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from odradek.broker.security.sasl.authentication import Authentication

LONGEST_MECHANISM = 32
"""How much of the name of an unknown mechanism is logged."""


class SaslHandlers:
    """SaslHandshake and SaslAuthenticate (keys 17 and 36)."""

    def sasl_handshake(self, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
        """Returns the mechanisms of the listener. Raises CloseConnection if the client's is none of them."""
        authentication = context.connection.authentication
        if authentication is None:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        mechanisms = list(authentication.listener.mechanisms)
        if authentication.handshake(request.mechanism, is_framed=context.api_version > 0):
            return SaslHandshakeResponse(mechanisms=mechanisms)
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        mechanism = request.mechanism[:LONGEST_MECHANISM]
        raise login_failed(
            authentication,
            SaslHandshakeResponse(error_code=code, mechanisms=mechanisms),
            f"mechanism {mechanism} is not enabled",
        )

    def sasl_authenticate(self, request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
        """Returns the answer to a token, and at the end the lifetime of the session. Raises CloseConnection if the
        login has failed.
        """
        authentication = context.connection.authentication
        if authentication is None:
            message = "SaslAuthenticate request received after successful authentication"
            return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
        from odradek.broker.security.sasl.authentication import AuthenticationFailed

        try:
            token = authentication.token(bytes(request.auth_bytes))
        except AuthenticationFailed as failed:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=failed.shown
            )
            raise login_failed(authentication, response, failed.reason) from None
        login = authentication.login
        lifetime_ms = 0 if login is None else login.session_lifetime_ms
        return SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)


def login_failed(authentication: Authentication, response: Any, reason: str) -> CloseConnection:
    """Counts a login that has failed, and returns what ends the connection (B). `response`: None if it gets none."""
    authentication.count(is_successful=False)
    closing = CloseConnection("authentication failed", mechanism=authentication.mechanism_name, error=reason)
    return closing.after(response, authentication.listener.failure_delay_ms)
