"""The login of a client by SASL: the dispatch of its connection in place of the broker's, and the handlers of
SaslHandshake and SaslAuthenticate (keys 17 and 36).

    (A) Until the login is complete, only the requests that it expects are handled (security/sasl/authentication.py), by
        the broker's dispatch: SaslHandshake, SaslAuthenticate, one ApiVersions. Any other request ends the connection,
        before its body is decoded. (Kafka answers some of them with ILLEGAL_SASL_STATE.)
    (B) After SaslHandshake 0 the frames are the tokens themselves, of any length from 0.
    (C) A client that has authenticated gets the broker's dispatch: requests then take the same path as on other
        listeners. If its session has a lifetime, it gets `Session` instead.
    (D) `Session` ends the connection at the first request after the lifetime. A SaslHandshake, also a late one, begins
        a new login; at most once a second, others are handled as without SASL.
    (E) Requests are handled in their order, and a failed login stops the reading of the connection: nothing that a
        client sends behind a token is handled unless the login is complete.
    (F) Without a login under way, the two requests are ILLEGAL_SASL_STATE: the client has authenticated, or may not do
        so again.
    (G) A failed login is answered, after connection.failed.authentication.delay.ms, and ends the connection.

Source: Kafka's `SaslServerAuthenticator`, `KafkaChannel.maybeBeginServerReauthentication`,
`SocketServer.processCompletedReceives`; `KafkaApis.handleSaslHandshakeRequest`, `handleSaslAuthenticateRequest`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from odradek.broker.handlers.unprotected import NoSaslHandlers
from odradek.broker.requests.request_context import (
    CloseConnection,
    ConnectionInfo,
    FrameBounds,
    Part,
    PendingResponse,
    RequestContext,
)
from odradek.broker.security.sasl.authentication import Authentication, AuthenticationFailed, Login, SaslListener
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

LEAST_REQUEST_BYTES = 8
"""API key, version and correlation id."""
LEAST_BETWEEN_LOGINS_MS = 1000
LONGEST_MECHANISM = 32
"""How much of the name of an unknown mechanism is logged."""
_API_KEY = struct.Struct(">h").unpack_from

Answer = PendingResponse | list[Part] | None
Dispatch = Callable[[bytes, ConnectionInfo, int], Answer]


class Authenticating:
    """One login on one connection. `ordinary` is the broker's dispatch; `before` is the login that is renewed, and
    `began_ms` when the client began to renew one last.
    """

    __slots__ = ("_authentication", "_began_ms", "_listener", "_ordinary")

    def __init__(
        self, listener: SaslListener, ordinary: Dispatch, before: Login | None = None, began_ms: int | None = None
    ) -> None:
        self._listener = listener
        self._ordinary = ordinary
        self._began_ms = began_ms
        self._authentication = Authentication(listener, before)

    def begin(self, info: ConnectionInfo) -> None:
        """From now on, the connection's requests come here."""
        info.authentication = self._authentication
        info.frame_bounds = FrameBounds(0, self._listener.longest_message)
        info.dispatch = self.dispatch

    def dispatch(self, frame: bytes, info: ConnectionInfo, now_ms: int) -> Answer:
        """Handles one frame. Raises CloseConnection."""
        if self._authentication.takes_raw_tokens:
            answer: Answer = self._raw_token(frame)
        else:
            answer = self._request(frame, info, now_ms)
        login = self._authentication.login
        if login is not None:
            self._admit(info, login, now_ms)
        return answer

    def _request(self, frame: bytes, info: ConnectionInfo, now_ms: int) -> Answer:
        if len(frame) < LEAST_REQUEST_BYTES:
            raise CloseConnection("invalid request length", length=len(frame))
        api_key = _API_KEY(frame)[0]
        if not self._authentication.expects(api_key):
            self._authentication.count(is_successful=False)
            raise CloseConnection(
                "request not expected before authentication",
                api_key=api_key,
                expected=self._authentication.phase.value,
            )
        answer = self._ordinary(frame, info, now_ms)
        if isinstance(answer, PendingResponse):
            answer.abandon()
            raise CloseConnection("request too large before authentication", api_key=api_key, length=len(frame))
        return answer

    def _raw_token(self, frame: bytes) -> list[Part]:
        try:
            token = self._authentication.token(frame)
        except AuthenticationFailed as failed:
            raise _login_failed(self._authentication, None, failed.reason) from None
        return [len(token).to_bytes(4, "big"), token]

    def _admit(self, info: ConnectionInfo, login: Login, now_ms: int) -> None:
        """Lets the client in (C)."""
        self._authentication.count(is_successful=True)
        info.principal = login.principal
        info.authentication = None
        info.frame_bounds = None
        if login.session_lifetime_ms > 0:
            info.dispatch = Session(self._listener, self._ordinary, login, now_ms, self._began_ms).dispatch
        else:
            info.dispatch = self._ordinary


class Session:
    """The dispatch of a client whose login holds for a limited time (D)."""

    __slots__ = ("_began_ms", "_expires_ms", "_listener", "_login", "_ordinary")

    def __init__(
        self, listener: SaslListener, ordinary: Dispatch, login: Login, now_ms: int, began_ms: int | None
    ) -> None:
        self._listener = listener
        self._ordinary = ordinary
        self._login = login
        self._expires_ms = now_ms + login.session_lifetime_ms
        self._began_ms = began_ms

    def dispatch(self, frame: bytes, info: ConnectionInfo, now_ms: int) -> Answer:
        """Handles one request. Raises CloseConnection."""
        if _API_KEY(frame)[0] == ApiKey.SASL_HANDSHAKE and self._may_begin(now_ms):
            again = Authenticating(self._listener, self._ordinary, self._login, now_ms)
            again.begin(info)
            return again.dispatch(frame, info, now_ms)
        if now_ms > self._expires_ms:
            raise CloseConnection("session expired", principal=self._login.principal)
        return self._ordinary(frame, info, now_ms)

    def _may_begin(self, now_ms: int) -> bool:
        return self._began_ms is None or now_ms - self._began_ms >= LEAST_BETWEEN_LOGINS_MS


class SaslHandlers(NoSaslHandlers):
    """SaslHandshake and SaslAuthenticate (keys 17 and 36), and what they are without a login under way (F)."""

    def sasl_handshake(self, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
        """Returns the mechanisms of the listener. Raises CloseConnection if the client's is none of them."""
        authentication = context.connection.authentication
        if authentication is None:
            return super().sasl_handshake(request, context)
        mechanisms = list(authentication.listener.mechanisms)
        if authentication.handshake(request.mechanism, is_framed=context.api_version > 0):
            return SaslHandshakeResponse(mechanisms=mechanisms)
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        mechanism = request.mechanism[:LONGEST_MECHANISM]
        raise _login_failed(
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
            return super().sasl_authenticate(request, context)
        try:
            token = authentication.token(bytes(request.auth_bytes))
        except AuthenticationFailed as failed:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=failed.shown
            )
            raise _login_failed(authentication, response, failed.reason) from None
        login = authentication.login
        lifetime_ms = 0 if login is None else login.session_lifetime_ms
        return SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)


def _login_failed(authentication: Authentication, response: Any, reason: str) -> CloseConnection:
    """Counts a login that has failed, and returns what ends the connection (G). `response`: None if it gets none."""
    authentication.count(is_successful=False)
    closing = CloseConnection("authentication failed", mechanism=authentication.mechanism_name, error=reason)
    return closing.after(response, authentication.listener.failure_delay_ms)
