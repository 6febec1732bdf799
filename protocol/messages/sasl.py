"""SaslHandshake (key 17) and SaslAuthenticate (key 36)."""

from __future__ import annotations

from odradek.protocol.schema import ALWAYS, Message, array, bytes_, int16, int64, message, since, string


@message(api_key=17, kind="request", versions=(0, 1))
class SaslHandshakeRequest(Message):
    """The mechanism that the client wants."""

    mechanism: str = string()


@message(api_key=17, kind="response", versions=(0, 1))
class SaslHandshakeResponse(Message):
    """Whether it is enabled, and all that are."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)


@message(api_key=36, kind="request", versions=(0, 2), flexible=2)
class SaslAuthenticateRequest(Message):
    """One step of the mechanism's exchange."""

    auth_bytes: bytes = bytes_()


@message(api_key=36, kind="response", versions=(0, 2), flexible=2)
class SaslAuthenticateResponse(Message):
    """The broker's step; at the end how many ms the session lives, 0 for ever."""

    error_code: int = int16()
    error_message: str | None = string(nullable=ALWAYS)
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64(versions=since(1))
