"""Connections to brokers whose listener has SASL: the login comes before the first request.

(A) `logged_in` is a `Connect`: the connection that it returns has authenticated.
(B) If the broker limits the lifetime of the session, the connection logs in again before it ends: when RENEWED_AT
    of the lifetime have passed, before the next request. Requests that come meanwhile wait.
(C) A login that fails raises LoginRefused, or ends the connection if it was not the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.broker.security.sasl.client import ClientCredentials, NotTheServer, tokens
from odradek.clients.network_client import Connect, NetworkClient
from odradek.clients.network_errors import LoginRefused
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

RENEWED_AT = 0.85
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2


def logged_in(connect: Connect, credentials: ClientCredentials, new_nonce: Callable[[], bytes]) -> Connect:
    """Returns a `Connect` whose connections have authenticated (A)."""

    async def connect_and_log_in(host: str, port: int, **options: Any) -> NetworkClient:
        client = await connect(host, port, **options)
        try:
            await client.log_in(lambda exchange: log_in(exchange, client.name, credentials, new_nonce()))
        except BaseException:
            await client.close()
            raise
        return client

    return connect_and_log_in


async def log_in(exchange: Any, server: str, credentials: ClientCredentials, nonce: bytes) -> float | None:
    """Logs in by `exchange(request, version)`, which returns the response. Returns after how many seconds the login is
    to be renewed (B), None for never. Raises NetworkError.
    """
    handshake = await exchange(SaslHandshakeRequest(mechanism=credentials.mechanism), HANDSHAKE_VERSION)
    _check(handshake.error_code, f"it has {', '.join(handshake.mechanisms)}", server, credentials)
    login = tokens(credentials, nonce)
    answer = None
    try:
        token = next(login)
        while True:
            answer = await exchange(SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION)
            _check(answer.error_code, answer.error_message or "", server, credentials)
            token = login.send(bytes(answer.auth_bytes))
    except StopIteration:
        lifetime_ms: int = answer.session_lifetime_ms if answer is not None else 0
        return lifetime_ms * RENEWED_AT / 1000 if lifetime_ms > 0 else None
    except NotTheServer as error:
        raise LoginRefused(f"{server}: {error}") from error


def _check(code: int, text: str, server: str, credentials: ClientCredentials) -> None:
    if code != ErrorCode.NONE:
        name = ErrorCode.of(code).name
        raise LoginRefused(
            f"{server} refuses the login of {credentials.username} by {credentials.mechanism}: {name}: {text}"
        )
