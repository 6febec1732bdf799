"""DescribeUserScramCredentials and AlterUserScramCredentials: Kafka's codes and texts, user by user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.security.sasl.scram import BY_NUMBER
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.scram import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from tests.broker.handlers.sasl_broker import sasl_broker, stranger_of
from tests.broker.security.scram_client import SALT, ScramClient
from tests.wire.api import Api, api_of_a_broker

SHA_256, SHA_512 = 1, 2
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker() as api:
        yield api


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096, password: str = "secret") -> Upsertion:
    salted = BY_NUMBER.get(mechanism, BY_NUMBER[SHA_256]).salted_password(password, SALT, max(iterations, 1))
    return Upsertion(name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted)


async def alter(api: Any, *items: Any) -> list[tuple[str, int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[item for item in items if isinstance(item, Deletion)],
        upsertions=[item for item in items if isinstance(item, Upsertion)],
    )
    return [(one.user, one.error_code, one.error_message) for one in (await api(request, 0)).results]


async def describe(api: Any, *names: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
    user = DescribeUserScramCredentialsRequest.UserName
    request = DescribeUserScramCredentialsRequest(users=[user(name=name) for name in names])
    response = await api(request, 0)
    assert response.error_code == ErrorCode.NONE
    return [
        (one.user, one.error_code, [(info.mechanism, info.iterations) for info in one.credential_infos])
        for one in response.results
    ]


async def test_what_is_set_is_described_and_what_is_deleted_is_gone(api: Api) -> None:
    assert await alter(api, upsertion("bob"), upsertion("alice"), upsertion("alice", SHA_512, 8192)) == [
        ("bob", ErrorCode.NONE, ""),
        ("alice", ErrorCode.NONE, ""),
    ]
    both = ("alice", ErrorCode.NONE, [(SHA_256, 4096), (SHA_512, 8192)])
    bob = ("bob", ErrorCode.NONE, [(SHA_256, 4096)])
    assert await describe(api) == [both, bob]
    assert await describe(api, "bob", "alice") == [bob, both]
    everybody = await api(DescribeUserScramCredentialsRequest(users=None), 0)
    assert [one.user for one in everybody.results] == ["alice", "bob"]
    assert await alter(api, Deletion(name="alice", mechanism=SHA_256)) == [("alice", ErrorCode.NONE, "")]
    assert await describe(api, "alice") == [("alice", ErrorCode.NONE, [(SHA_512, 8192)])]
    assert await alter(api, Deletion(name="alice", mechanism=SHA_512)) == [("alice", ErrorCode.NONE, "")]
    assert await describe(api) == [bob]


async def test_descriptions_that_are_refused(api: Api) -> None:
    await alter(api, upsertion("alice"))
    user = DescribeUserScramCredentialsRequest.UserName
    names = ["", "nobody", "alice", "alice", ""]
    response = await api(DescribeUserScramCredentialsRequest(users=[user(name=name) for name in names]), 0)
    assert [(one.user, one.error_code, one.error_message) for one in response.results] == [
        ("", ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty"),
        (
            "nobody",
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to describe a user credential that does not exist: nobody",
        ),
        (
            "alice",
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: alice",
        ),
    ]


@pytest.mark.parametrize(
    ("items", "code", "text"),
    [
        ([upsertion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ([Deletion(name="", mechanism=SHA_256)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ([upsertion("x", 0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ([upsertion("x", 3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ([Deletion(name="x", mechanism=-1)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ([upsertion("x", iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        ([upsertion("x", iterations=-1)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        ([upsertion("x", iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (
            [upsertion("x"), upsertion("x", password="other")],
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        ),
        (
            [Deletion(name="x", mechanism=SHA_256)],
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
        (
            [upsertion("x"), Deletion(name="x", mechanism=SHA_512)],
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
        (
            [Upsertion(name="x", mechanism=SHA_256, iterations=4096, salt=b"", salted_password=b"x")],
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "The salt or the salted password has a wrong length",
        ),
        ([upsertion("x" * 1025)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username is too long"),
    ],
)
async def test_one_fault_refuses_all_changes_of_a_user_and_none_of_another(
    api: Api, items: list[Any], code: ErrorCode, text: str
) -> None:
    results = await alter(api, upsertion("other"), *items)
    name = items[0].name
    assert sorted(results) == sorted([("other", ErrorCode.NONE, ""), (name, code, text)])
    assert await describe(api) == [("other", ErrorCode.NONE, [(SHA_256, 4096)])]


async def test_a_changed_password_holds_at_once_for_new_logins(tmp_path: Path) -> None:
    async def logs_in(password: str) -> bool:
        async with stranger_of(broker) as client:
            await client.handshake("SCRAM-SHA-256")
            scram = ScramClient("alice", password)
            challenge = await client.token(scram.first)
            answer = await client.token(scram.final(challenge.auth_bytes))
            if answer.error_code == ErrorCode.NONE and password == "alice-secret":
                await alter(client.call, upsertion("alice", password="changed"))
            return bool(answer.error_code == ErrorCode.NONE)

    async with sasl_broker(scram=tmp_path) as broker:
        assert await logs_in("alice-secret")
        assert await logs_in("changed")
        assert not await logs_in("alice-secret")


async def test_a_damaged_credential_is_described_as_an_error(api: Api) -> None:
    await alter(api, upsertion("alice"))
    await api.broker.metadata_store.set("/config/users/alice", b'{"version":1,"config":{"SCRAM-SHA-256":"x"}}')
    assert await describe(api, "alice") == [("alice", ErrorCode.UNKNOWN_SERVER_ERROR, [])]
