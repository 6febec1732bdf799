"""SaslHandshake (key 17) and SaslAuthenticate (key 36)."""

from __future__ import annotations

from odradek.protocol.schema import ALWAYS, Message, array, bytes_, int16, int64, message, since, string


@message(api_key=17, kind="request", versions=(0, 1))
class SaslHandshakeRequest(Message):
    """The mechanism that the client requests."""

    mechanism: str = string()


@message(api_key=17, kind="response", versions=(0, 1))
class SaslHandshakeResponse(Message):
    """Whether the mechanism is enabled, and all enabled mechanisms."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)


@message(api_key=36, kind="request", versions=(0, 2), flexible=2)
class SaslAuthenticateRequest(Message):
    """The client's message in one step of the mechanism's exchange."""

    auth_bytes: bytes = bytes_()


@message(api_key=36, kind="response", versions=(0, 2), flexible=2)
class SaslAuthenticateResponse(Message):
    """The broker's message; at the end the session's lifetime in ms, 0 for no limit."""

    error_code: int = int16()
    error_message: str | None = string(nullable=ALWAYS)
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64(versions=since(1))
