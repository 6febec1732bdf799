"""Beside a broker of Apache Kafka 3.9, which supports no feature: groups stay classic, transactions of version 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.broker.features.features import GROUP_VERSION, TRANSACTION_VERSION
from odradek.clients.network_client import NetworkClient
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.features import UpdateFeaturesRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.cluster.mixed_cluster import APACHE, mixed_cluster
from tests.patience import until
from tests.wire import requests
from tests.wire.records import connect
from tests.zookeeper.stores import new_chroot

JOINS = ConsumerGroupHeartbeatRequest(
    group_id="g",
    member_id="m",
    member_epoch=0,
    rebalance_timeout_ms=60_000,
    subscribed_topic_names=["t"],
    topic_partitions=[],
)


async def finalized(client: NetworkClient) -> dict[str, int]:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer: Any = await client.send(request, version=4)
    return {each.name: each.max_version_level for each in answer.finalized_features}


async def upgrade(client: NetworkClient, feature: str, level: int) -> int:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=1)
    answer: Any = await client.send(UpdateFeaturesRequest(feature_updates=[update]), version=1)
    return int(answer.error_code)


@pytest.mark.timeout(300)
async def test_a_member_of_the_newer_protocol_gets_an_error_until_every_broker_supports_it(
    zookeeper: str, kafka_control: list[str], tmp_path: Path
) -> None:
    with mixed_cluster(kafka_control, zookeeper + new_chroot(), tmp_path, brokers=3) as cluster:
        one, other = cluster.ours
        async with (
            await connect(cluster.nodes[one].address) as first,
            await connect(cluster.nodes[other].address) as second,
        ):
            await until(lambda: is_found(first))
            for client in (first, second):
                assert {GROUP_VERSION, TRANSACTION_VERSION}.isdisjoint(await finalized(client))
                answer: Any = await client.send(JOINS, version=1)
                assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            cluster.terminate(APACHE)

            async def is_upgraded() -> bool:
                return ErrorCode.NONE in [await upgrade(each, GROUP_VERSION, 1) for each in (first, second)]

            await until(is_upgraded)
            for client in (first, second):
                await until(lambda client=client: has_group_version(client))
            await first.send(requests.create_topics("t", partitions=1, replicas=2), version=5)

            async def has_joined() -> bool:
                return ErrorCode.NONE in [(await each.send(JOINS, version=1)).error_code for each in (first, second)]

            await until(has_joined)


async def is_found(client: NetworkClient) -> bool:
    """The first request for a coordinator creates its topic."""
    answer: Any = await client.send(FindCoordinatorRequest(key="g", key_type=0), version=2)
    return int(answer.error_code) == ErrorCode.NONE


async def has_group_version(client: NetworkClient) -> bool:
    return (await finalized(client)).get(GROUP_VERSION) == 1
