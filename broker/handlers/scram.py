"""DescribeUserScramCredentials and AlterUserScramCredentials (keys 50 and 51): the passwords of users (KIP-554).

    (A) Clients send salted passwords, from which the stored keys are made; a description has neither.
    (B) The changes of a user take effect all together or not at all: before they are answered on this broker, and soon
        after on the others. One fault in a user's items refuses all of them.
    (C) Any broker changes and describes them, not only the controller. A description comes from the store itself.

Results are in the order in which the request names users, those that are refused without a look at the store first.
Source: Kafka's `ZkAdminManager`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from odradek.broker.background.stepwise import Steps, others_between
from odradek.broker.cluster.dynamic_configs import DynamicConfigs
from odradek.broker.metadata_store.interface import StoreUnavailable
from odradek.broker.metadata_store.read_back import retry_until_connected
from odradek.broker.requests.request_context import RequestContext
from odradek.broker.security.sasl.scram import (
    BY_NUMBER,
    LEAST_ITERATIONS,
    MECHANISMS,
    MOST_ITERATIONS,
    parse_credential,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

LONGEST_NAME = 1024
"""The longest name of a user, in characters."""
LONGEST_SECRET = 1024
"""The longest salt and salted password, in bytes."""
COST = 20
"""The cost of one item, in items of a step."""

Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


class ScramHandlers:
    """DescribeUserScramCredentials and AlterUserScramCredentials (keys 50 and 51)."""

    def __init__(self, configs: DynamicConfigs) -> None:
        self._configs = configs

    async def describe_user_scram_credentials(
        self, request: DescribeUserScramCredentialsRequest, context: RequestContext
    ) -> DescribeUserScramCredentialsResponse:
        """Describes the users of the request, or all that have credentials."""
        asked = [str(one.name) for one in cast("list[Any]", request.users or [])]
        users = self._configs.users
        counts: dict[str, int] = {}
        for name in asked:
            counts[name] = counts.get(name, 0) + 1
        try:
            names = await retry_until_connected(self._configs.store, users.names) if not asked else list(counts)
            found = await retry_until_connected(self._configs.store, lambda: users.stored(filter(None, names)))
        except StoreUnavailable as error:
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        results = []
        async for name in others_between(names, COST):
            result = _described(name, found.get(name, {}))
            if name and counts.get(name, 1) > 1:
                text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
                result = Described(user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=text)
            if asked or not result.error_code:
                results.append(result)
        return DescribeUserScramCredentialsResponse(results=results)

    async def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest, context: RequestContext
    ) -> AlterUserScramCredentialsResponse:
        """Changes the credentials of each user, or returns why it cannot."""
        items: dict[str, list[Any]] = {}
        asked: list[Any] = [*request.deletions, *request.upsertions]
        async for item in others_between(asked):
            items.setdefault(item.name, []).append(item)
        refused: list[Altered] = []
        altered: list[Altered] = []
        async for user, own in others_between(items.items(), COST):
            try:
                _check(own)
            except ProtocolError as error:
                refused.append(Altered(user=user, error_code=error.code, error_message=error.error_message))
                continue
            try:
                await self._configs.alter_user(user, partial(_changed, items=own))
            except ProtocolError as error:
                altered.append(Altered(user=user, error_code=error.code, error_message=error.error_message))
            else:
                altered.append(Altered(user=user))
        return AlterUserScramCredentialsResponse(results=refused + altered)


def _described(user: str, config: Mapping[str, str]) -> Described:
    """RESOURCE_NOT_FOUND if the user has no credentials."""
    if not user:
        text = "Username must not be empty"
        return Described(user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=text)
    own = [mechanism for name, mechanism in MECHANISMS.items() if name in config]
    if not own:
        text = f"Attempt to describe a user credential that does not exist: {user}"
        return Described(user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=text)
    info = DescribeUserScramCredentialsResponse.CredentialInfo
    try:
        infos = [info(mechanism=each.number, iterations=parse_credential(config[each.name]).iterations) for each in own]
    except ValueError as error:
        return Described(user=user, error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=str(error))
    return Described(user=user, credential_infos=infos)


def _check(items: list[Any]) -> None:
    """Raises ProtocolError if a user's items are refused whatever is stored."""
    for item in items:
        if not item.name:
            raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        if len(item.name) > LONGEST_NAME:
            raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username is too long")
        if item.mechanism not in BY_NUMBER:
            raise ProtocolError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(item, Upsertion):
            _check_upsertion(item)
    if len({item.mechanism for item in items}) < len(items):
        raise ProtocolError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )


def _check_upsertion(item: Upsertion) -> None:
    if item.iterations < LEAST_ITERATIONS:
        raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if item.iterations > MOST_ITERATIONS:
        raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    for secret in (item.salt, item.salted_password):
        if not 1 <= len(secret) <= LONGEST_SECRET:
            raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt or the salted password has a wrong length")


def _changed(before: Mapping[str, str], *, items: list[Any]) -> Steps[dict[str, str]]:
    after = dict(before)
    for item in items:
        mechanism = BY_NUMBER[item.mechanism]
        if isinstance(item, Upsertion):
            credential = mechanism.credential(bytes(item.salted_password), bytes(item.salt), item.iterations)
            after[mechanism.name] = credential.text()
        elif after.pop(mechanism.name, None) is None:
            raise ProtocolError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    yield
    return after
