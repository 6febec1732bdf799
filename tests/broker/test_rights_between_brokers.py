"""A cluster whose brokers may do what docs/security.md says that they need, and no more."""

from __future__ import annotations

import pytest

from odradek.broker.broker_security import BrokerSecurity
from odradek.clients.network_client import NetworkClient
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.protocol.wire_codes import AclOperation as Op
from odradek.protocol.wire_codes import AclResourceType as On
from odradek.testing import in_process_cluster
from tests.base_requests import small_batch
from tests.broker.handlers.scripted_authorizer import ScriptedAuthorizer, only
from tests.patience import until
from tests.wire import requests
from tests.wire.records import connect

BROKERS = ((Op.CLUSTER_ACTION, On.CLUSTER), (Op.CREATE, On.CLUSTER), (Op.DESCRIBE, On.TOPIC))
CLIENTS = ((Op.WRITE, On.TOPIC), (Op.DESCRIBE, On.GROUP))
"""Both come by the same listener, as the same principal."""
DEADLINE_MS = 30_000


class Given:
    """Gives the brokers of a test authorizers with these rights."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rights: tuple[Op, On]) -> None:
        self.authorizers: list[ScriptedAuthorizer] = []

        def new_authorizer(_: BrokerSecurity) -> ScriptedAuthorizer:
            self.authorizers.append(ScriptedAuthorizer(only(*rights)))
            return self.authorizers[-1]

        monkeypatch.setattr(BrokerSecurity, "_new_authorizer", new_authorizer)


def with_two_replicas(name: str) -> CreateTopicsRequest:
    return requests.create_topics(name, replicas=2)


def produce(name: str) -> ProduceRequest:
    return requests.produce(name, small_batch(), timeout_ms=DEADLINE_MS)


async def test_brokers_replicate_and_create_topics_with_the_rights_of_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    Given(monkeypatch, *BROKERS, *CLIENTS)
    async with in_process_cluster(2) as cluster:
        controller = cluster.controller
        assert controller is not None
        for broker_id in sorted(cluster.ids, key=controller.__eq__, reverse=True):
            async with await connect(cluster.bootstrap_of(broker_id)) as client:
                if broker_id == controller:
                    (created,) = (await client.send(with_two_replicas("t"), version=7)).topics
                    assert created.error_code == ErrorCode.NONE
                    await cluster.wait_for_isr("t", 0, {1, 2})
                    continue

                async def is_found(client: NetworkClient = client) -> bool:
                    """The broker has the controller create the topic of the coordinators."""
                    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
                    (found,) = (await client.send(request, version=4)).coordinators
                    return bool(found.error_code == ErrorCode.NONE)

                await until(is_found)
        leader = cluster.leader("t", 0)
        assert leader is not None
        async with await connect(cluster.bootstrap_of(leader)) as client:
            (answer,) = (await client.send(produce("t"), version=9)).responses
            assert answer.partition_responses[0].error_code == ErrorCode.NONE


async def test_a_broker_without_the_rights_of_brokers_replicates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Given(monkeypatch, *BROKERS, *CLIENTS)
    async with in_process_cluster(2) as cluster:
        controller = cluster.controller
        assert controller is not None
        async with await connect(cluster.bootstrap_of(controller)) as client:
            await client.send(with_two_replicas("t"), version=7)
        await cluster.wait_for_isr("t", 0, {1, 2})
        for authorizer in given.authorizers:
            authorizer.change(only(*BROKERS[1:], *CLIENTS))
        leader = cluster.leader("t", 0)
        assert leader is not None
        async with await connect(cluster.bootstrap_of(leader)) as client:
            request = produce("t")
            request.timeout_ms = 1000
            (answer,) = (await client.send(request, version=9)).responses
            assert answer.partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        for authorizer in given.authorizers:
            authorizer.change(only(*BROKERS, *CLIENTS))
        await cluster.wait_for_isr("t", 0, {1, 2})
