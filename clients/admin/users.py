"""UserAdmin: the passwords that users have for SCRAM, over an `AdminClient` (KIP-554).

A password is salted here: the broker gets what it needs to verify it, never the password. Changes go to the controller,
each in a request of its own: Kafka with KRaft refuses two mechanisms of a user in one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from odradek.broker.security.sasl.scram import BY_NUMBER, MECHANISMS, new_salt
from odradek.clients.admin.client import AdminClient, check
from odradek.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

Iterations = dict[str, int]
"""Of each mechanism of a user, by its name."""


class UserAdmin:
    """`source` draws salts."""

    def __init__(self, admin: AdminClient, source: random.Random) -> None:
        self._admin = admin
        self._source = source

    async def users(self, names: Sequence[str] | None = None) -> dict[str, Iterations]:
        """Returns the users that have a password, or the named ones, sorted. Raises RESOURCE_NOT_FOUND."""
        user = DescribeUserScramCredentialsRequest.UserName
        asked = None if names is None else [user(name=name) for name in names]
        response: DescribeUserScramCredentialsResponse = await self._admin.ask_any(
            DescribeUserScramCredentialsRequest(users=asked)
        )
        check(response.error_code, response.error_message)
        for result in response.results:
            check(result.error_code, result.error_message)
        return {
            result.user: {_name(info.mechanism): info.iterations for info in result.credential_infos}
            for result in sorted(response.results, key=lambda result: result.user)
        }

    async def set_password(self, name: str, password: str, mechanism: str, iterations: int) -> None:
        """Gives a user this password for a mechanism."""
        scram, salt = MECHANISMS[mechanism], new_salt(self._source)
        upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=name,
            mechanism=scram.number,
            iterations=iterations,
            salt=salt,
            salted_password=scram.salted_password(password, salt, iterations),
        )
        await self._alter(AlterUserScramCredentialsRequest(upsertions=[upsertion]))

    async def remove(self, name: str, mechanism: str) -> None:
        """Removes a user's password for a mechanism. Raises RESOURCE_NOT_FOUND."""
        number = MECHANISMS[mechanism].number
        deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=number)
        await self._alter(AlterUserScramCredentialsRequest(deletions=[deletion]))

    async def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        response: AlterUserScramCredentialsResponse = await self._admin.ask_controller(request)
        for result in response.results:
            check(result.error_code, result.error_message)


def _name(number: int) -> str:
    known = BY_NUMBER.get(number)
    return f"mechanism {number}" if known is None else known.name
