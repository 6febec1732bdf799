"""DescribeClientQuotas of very many entities, of damaged entries, and without the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.metadata_store.interface import Create
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.client_quotas import DescribeClientQuotasRequest
from tests.wire.api import Api, api_of_a_broker

MANY = 2000
LEAST_TURNS = MANY // 100
"""A read of entries has a hundred of them."""
EXACT, DEFAULT, ANY = range(3)
EVERYTHING = DescribeClientQuotasRequest(components=[], strict=False)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker() as api:
        yield api


def asked(kind: str, match_type: int, match: str | None = None, *, strict: bool = True) -> DescribeClientQuotasRequest:
    component = DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=match_type, match=match)
    return DescribeClientQuotasRequest(components=[component], strict=strict)


def settings(**values: str) -> bytes:
    return json.dumps({"version": 1, "config": values}).encode()


def names(response: Any) -> list[list[str | None]]:
    assert response.error_code == ErrorCode.NONE, response.error_message
    return [[each.entity_name for each in entry.entity] for entry in response.entries]


async def store_many(api: Api) -> None:
    data = settings(producer_byte_rate="1000")
    operations = []
    for number in range(MANY):
        user = f"/config/users/user-{number:04}"
        operations += [Create(user, data), Create(f"{user}/clients"), Create(f"{user}/clients/app", data)]
    await api.broker.metadata_store.multi(operations)


async def test_a_node_alone_has_none(api: Api) -> None:
    for request in (EVERYTHING, asked("user", EXACT, "alice"), asked("ip", ANY)):
        assert names(await api(request, 1)) == []


async def test_many_are_described_completely_while_other_work_goes_on(api: Api) -> None:
    await store_many(api)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(others())
    response = await api(EVERYTHING, 1)
    other.cancel()
    users = [f"user-{number:04}" for number in range(MANY)]
    assert names(response) == [[user] for user in users] + [[user, "app"] for user in users]
    assert turns > LEAST_TURNS


async def test_an_answer_above_the_limit_is_refused() -> None:
    async with api_of_a_broker({"odradek.max.response.bytes": 65_536}) as api:
        await store_many(api)
        response = await api(EVERYTHING, 1)
        assert (response.error_code, response.entries) == (ErrorCode.POLICY_VIOLATION, None)
        assert names(await api(asked("user", EXACT, "user-0007", strict=False), 1)) == [
            ["user-0007"],
            ["user-0007", "app"],
        ]


async def test_a_quota_that_is_not_a_number_is_named_to_the_client_and_in_the_log(api: Api) -> None:
    await api.broker.metadata_store.create("/config/clients/app", settings(consumer_byte_rate="much"))
    with capture_logs() as lines:
        response = await api(asked("client-id", ANY), 1)
    text = "/config/clients/app: consumer_byte_rate is not a number: 'much'"
    assert (response.error_code, response.error_message) == (ErrorCode.UNKNOWN_SERVER_ERROR, text)
    assert [line["reason"] for line in lines if line["event"] == "stored quota is not a number"] == [text]
    assert names(await api(asked("user", ANY), 1)) == []


async def test_settings_that_cannot_be_parsed_are_logged_and_hide_no_others(api: Api) -> None:
    await api.broker.metadata_store.create("/config/ips/10.0.0.1", b"{")
    await api.broker.metadata_store.create("/config/ips/10.0.0.2", settings(connection_creation_rate="1"))
    with capture_logs() as lines:
        assert names(await api(asked("ip", ANY), 1)) == [["10.0.0.2"]]
    logged = [line["path"] for line in lines if line["event"] == "stored settings of a client ignored"]
    assert logged == ["/config/ips/10.0.0.1"]


async def test_credentials_are_not_shown(api: Api) -> None:
    secret = settings(**{"SCRAM-SHA-256": "salt=hidden", "producer_byte_rate": "1"})
    await api.broker.metadata_store.create("/config/users/alice", secret)
    response = await api(EVERYTHING, 1)
    assert [value.key for entry in response.entries for value in entry.values] == ["producer_byte_rate"]
    assert "hidden" not in repr(response)


async def test_without_the_store_there_is_an_error(api: Api) -> None:
    await api.broker.metadata_store.close()
    response = await api(EVERYTHING, 1)
    assert (response.error_code, response.entries) == (ErrorCode.KAFKA_STORAGE_ERROR, None)


async def test_a_very_long_filter_is_refused_at_its_first_fault(api: Api) -> None:
    component = DescribeClientQuotasRequest.ComponentData(entity_type="user", match_type=ANY)
    response = await api(DescribeClientQuotasRequest(components=[component] * 10_000, strict=True), 1)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    component.entity_type = "x" * 30_000
    response = await api(DescribeClientQuotasRequest(components=[component], strict=True), 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert len(response.error_message) < 2000
