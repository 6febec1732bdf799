"""DescribeUserScramCredentials (key 50) and AlterUserScramCredentials (key 51)."""

from __future__ import annotations

from odradek.protocol.schema import ALWAYS, Message, array, bytes_, int8, int16, int32, message, string


@message(api_key=50, kind="request", versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest(Message):
    """The users to describe; null for all."""

    class UserName(Message):
        name: str = string()

    users: list[UserName] | None = array(nullable=ALWAYS)


@message(api_key=50, kind="response", versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse(Message):
    """The mechanisms and iterations of each user, never the secrets."""

    class CredentialInfo(Message):
        mechanism: int = int8()
        iterations: int = int32()

    class DescribeUserScramCredentialsResult(Message):
        user: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable=ALWAYS)
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = array()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALWAYS)
    results: list[DescribeUserScramCredentialsResult] = array()


@message(api_key=51, kind="request", versions=(0, 0), flexible=0)
class AlterUserScramCredentialsRequest(Message):
    """Credentials to delete and to set; passwords are salted."""

    class ScramCredentialDeletion(Message):
        name: str = string()
        mechanism: int = int8()

    class ScramCredentialUpsertion(Message):
        name: str = string()
        mechanism: int = int8()
        iterations: int = int32()
        salt: bytes = bytes_()
        salted_password: bytes = bytes_()

    deletions: list[ScramCredentialDeletion] = array()
    upsertions: list[ScramCredentialUpsertion] = array()


@message(api_key=51, kind="response", versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse(Message):
    """Whether each user's credentials were changed."""

    class AlterUserScramCredentialsResult(Message):
        user: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable=ALWAYS)

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array()
