"""Connections between brokers authenticate before the first request, and again before their session ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.security.sasl.client import ClientCredentials
from odradek.broker.server import Broker
from odradek.broker.start_error import StartError
from odradek.clients.logins import logged_in
from odradek.clients.network_client import NetworkClient
from odradek.clients.network_errors import Disconnected, LoginRefused
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.testing import in_process_cluster
from tests.broker.handlers.sasl_broker import PLAIN_MODULE, PREFIX, sasl_broker
from tests.wire import requests

ADMIN = f'{PLAIN_MODULE} required username="admin" password="admin-secret" user_admin="admin-secret";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="admin-secret";'
BETWEEN_BROKERS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.plaintext.plain.sasl.jaas.config": ADMIN,
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": SCRAM,
}


async def connect(broker: Broker, mechanism: str = "PLAIN", password: str = "alice-secret") -> NetworkClient:
    credentials = ClientCredentials(mechanism, "alice", password)
    connecting = logged_in(NetworkClient.connect, credentials, lambda: b"nonce")
    return await connecting("127.0.0.1", broker.endpoints[0].port, timeout_ms=20_000)


def logins(broker: Broker) -> int:
    return broker.metrics.of(17, 1).requests


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_connection_authenticates_before_its_first_request(mechanism: str, tmp_path: Path) -> None:
    async with sasl_broker(scram=tmp_path) as broker, await connect(broker, mechanism) as client:
        assert (await client.send(MetadataRequest(topics=[]))).brokers
        assert [each.info.principal for each in broker.socket_server.connections] == ["User:alice"]
        assert logins(broker) == 1


@pytest.mark.parametrize(
    ("mechanism", "text"),
    [
        ("PLAIN", "by PLAIN: SASL_AUTHENTICATION_FAILED: Authentication failed: Invalid username or password"),
        ("SCRAM-SHA-256", "by SCRAM-SHA-256: SASL_AUTHENTICATION_FAILED: Authentication failed during"),
        ("SCRAM-SHA-512", "by SCRAM-SHA-512: SASL_AUTHENTICATION_FAILED"),
    ],
)
async def test_a_wrong_password_is_named_and_not_shown(mechanism: str, text: str, tmp_path: Path) -> None:
    async with sasl_broker(scram=tmp_path) as broker:
        with pytest.raises(LoginRefused) as caught:
            await connect(broker, mechanism, "hidden")
    assert f"refuses the login of alice {text}" in str(caught.value)
    assert "hidden" not in str(caught.value)


async def test_a_mechanism_that_is_not_enabled_is_named() -> None:
    async with sasl_broker({"sasl.enabled.mechanisms": "PLAIN"}) as broker:
        with pytest.raises(LoginRefused, match="UNSUPPORTED_SASL_MECHANISM: it has PLAIN"):
            await connect(broker, "SCRAM-SHA-256")


class RenewedAtOnce:
    """Logs in again before each request, and counts how often."""

    def __init__(self) -> None:
        self.times = 0
        self.fails = False
        self.holds: asyncio.Event | None = None

    async def __call__(self, exchange: Any) -> float:
        self.times += 1
        if self.holds is not None:
            await self.holds.wait()
        if self.fails:
            raise LoginRefused("no more")
        return 0.0


async def test_a_login_is_renewed_before_the_next_request_and_others_wait() -> None:
    async with sasl_broker() as broker, await connect(broker) as client:
        login = RenewedAtOnce()
        await client.log_in(login)
        await asyncio.gather(*(client.send(MetadataRequest(topics=[])) for _ in range(3)))
        assert login.times == 4


async def test_a_login_that_cannot_be_renewed_ends_the_connection() -> None:
    async with sasl_broker() as broker, await connect(broker) as client:
        login = RenewedAtOnce()
        await client.log_in(login)
        login.fails = True
        with pytest.raises(LoginRefused):
            await client.send(MetadataRequest(topics=[]))
        assert not client.is_connected


async def test_an_interrupted_login_ends_the_connection() -> None:
    async with sasl_broker() as broker, await connect(broker) as client:
        login = RenewedAtOnce()
        await client.log_in(login)
        login.holds = asyncio.Event()
        sending = asyncio.ensure_future(client.send(MetadataRequest(topics=[])))
        while login.times < 2:  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.002)
        sending.cancel()
        await asyncio.wait([sending])
        with pytest.raises(Disconnected, match="interrupted"):
            await client.send(MetadataRequest(topics=[]))


async def test_a_session_with_a_lifetime_goes_on_beyond_it() -> None:
    lifetime = {f"{PREFIX}plain.connections.max.reauth.ms": "1500"}
    async with sasl_broker(lifetime) as broker, await connect(broker) as client:
        async with asyncio.timeout(30):
            while logins(broker) < 3:
                assert (await client.send(MetadataRequest(topics=[]))).brokers
                await asyncio.sleep(0.01)
        assert client.is_connected


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_brokers_of_a_cluster_authenticate_to_each_other(mechanism: str, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("SCRAM-SHA-256=[name=admin,password=admin-secret]\n")
    settings = {
        **BETWEEN_BROKERS,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "odradek.scram.credentials.file": str(file),
    }
    async with in_process_cluster(3, settings) as cluster:
        credentials = ClientCredentials(mechanism, "admin", "admin-secret")
        connecting = logged_in(NetworkClient.connect, credentials, lambda: b"nonce")
        controller = cluster.controller
        assert controller is not None
        host, port = cluster.bootstrap_of(controller).split(":")
        async with await connecting(host, int(port), timeout_ms=20_000) as client:
            (created,) = (await client.send(requests.create_topics("t", partitions=3, replicas=3))).topics
            assert created.error_code == 0
        for partition in range(3):
            await cluster.wait_for_isr("t", partition, {1, 2, 3})
        connections = [info for broker in cluster.brokers.values() for info in broker.socket_server.connections]
        others = [each.info for each in connections if each.info.principal != "User:admin"]
        assert len(connections) > len(others)
        assert all(info.authentication is not None for info in others)  # their logins are under way


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({}, "sasl.mechanism.inter.broker.protocol=GSSAPI is not enabled by the listener PLAINTEXT"),
        (
            {
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.plaintext.plain.sasl.jaas.config": f"{PLAIN_MODULE} required user_a=b;",
            },
            "lacks the options username and password",
        ),
    ],
)
async def test_a_cluster_does_not_start_without_a_login_between_its_brokers(more: dict[str, str], problem: str) -> None:
    with pytest.raises(StartError, match=problem):
        async with in_process_cluster(1, {**BETWEEN_BROKERS, **more}):
            pass
