"""Delegation tokens (keys 38-41). Times are ms since 1970, periods ms."""

from __future__ import annotations

from odradek.protocol.schema import ALWAYS, Message, array, bytes_, int16, int32, int64, message, since, string


@message(api_key=38, kind="request", versions=(0, 3), flexible=2)
class CreateDelegationTokenRequest(Message):
    """Creates a token with its renewers."""

    class CreatableRenewers(Message):
        principal_type: str = string()
        principal_name: str = string()

    owner_principal_type: str | None = string(versions=since(3), nullable=since(3))
    owner_principal_name: str | None = string(versions=since(3), nullable=since(3))
    renewers: list[CreatableRenewers] = array()
    max_lifetime_ms: int = int64()


@message(api_key=38, kind="response", versions=(0, 3), flexible=2)
class CreateDelegationTokenResponse(Message):
    """The token with its HMAC."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(versions=since(3))
    token_requester_principal_name: str = string(versions=since(3))
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    throttle_time_ms: int = int32()


@message(api_key=39, kind="request", versions=(0, 2), flexible=2)
class RenewDelegationTokenRequest(Message):
    """Renews a token."""

    hmac: bytes = bytes_()
    renew_period_ms: int = int64()


@message(api_key=39, kind="response", versions=(0, 2), flexible=2)
class RenewDelegationTokenResponse(Message):
    """The token's new expiration time."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


@message(api_key=40, kind="request", versions=(0, 2), flexible=2)
class ExpireDelegationTokenRequest(Message):
    """Shortens a token's life; a negative period expires it at once."""

    hmac: bytes = bytes_()
    expiry_time_period_ms: int = int64()


@message(api_key=40, kind="response", versions=(0, 2), flexible=2)
class ExpireDelegationTokenResponse(Message):
    """The token's new expiration time."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


@message(api_key=41, kind="request", versions=(0, 3), flexible=2)
class DescribeDelegationTokenRequest(Message):
    """The tokens of these owners; null for all."""

    class DescribeDelegationTokenOwner(Message):
        principal_type: str = string()
        principal_name: str = string()

    owners: list[DescribeDelegationTokenOwner] | None = array(nullable=ALWAYS)


@message(api_key=41, kind="response", versions=(0, 3), flexible=2)
class DescribeDelegationTokenResponse(Message):
    """The tokens that the client may see."""

    class DescribedDelegationTokenRenewer(Message):
        principal_type: str = string()
        principal_name: str = string()

    class DescribedDelegationToken(Message):
        principal_type: str = string()
        principal_name: str = string()
        token_requester_principal_type: str = string(versions=since(3))
        token_requester_principal_name: str = string(versions=since(3))
        issue_timestamp: int = int64()
        expiry_timestamp: int = int64()
        max_timestamp: int = int64()
        token_id: str = string()
        hmac: bytes = bytes_()
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = array()

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array()
    throttle_time_ms: int = int32()
