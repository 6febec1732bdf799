"""Settings of groups and of client metrics in a cluster with a broker of Apache Kafka 3.9, which has neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.clients.network_client import NetworkClient
from odradek.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType
from tests.cluster.mixed_cluster import APACHE, mixed_cluster
from tests.patience import until
from tests.wire import requests
from tests.wire.records import connect
from tests.zookeeper.stores import new_chroot

TOPIC, GROUP, METRICS = ConfigResourceType.TOPIC, ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS


async def alter(client: NetworkClient, kind: ConfigResourceType, name: str, setting: str, value: str) -> int:
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name=setting, config_operation=ConfigOperation.SET, value=value
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    answer: Any = await client.send(IncrementalAlterConfigsRequest(resources=[resource]), version=1)
    return int(answer.responses[0].error_code)


async def described(client: NetworkClient, kind: ConfigResourceType, name: str, setting: str) -> str | None:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[setting]
    )
    answer: Any = await client.send(DescribeConfigsRequest(resources=[resource]), version=4)
    return next((one.value for one in answer.results[0].configs), None)


@pytest.mark.timeout(300)
async def test_the_other_broker_goes_on_with_the_next_change(
    zookeeper: str, kafka_control: list[str], tmp_path: Path
) -> None:
    session = "consumer.session.timeout.ms"
    with mixed_cluster(kafka_control, zookeeper + new_chroot(), tmp_path, brokers=3) as cluster:
        one, other = cluster.ours
        async with (
            await connect(cluster.nodes[APACHE].address) as apache,
            await connect(cluster.nodes[one].address) as ours,
            await connect(cluster.nodes[other].address) as beside,
        ):
            await apache.send(requests.create_topics("t", partitions=1, replicas=3), version=5)
            assert await alter(ours, GROUP, "g", session, "46000") == 0
            assert await alter(ours, METRICS, "m", "metrics", "a") == 0
            await until(lambda: is_so(beside, GROUP, "g", session, "46000"))
            await until(lambda: is_so(beside, METRICS, "m", "metrics", "a"))
            assert await alter(ours, TOPIC, "t", "retention.ms", "123456") == 0
            await until(lambda: is_so(apache, TOPIC, "t", "retention.ms", "123456"))


async def is_so(client: NetworkClient, kind: ConfigResourceType, name: str, setting: str, value: str) -> bool:
    return await described(client, kind, name, setting) == value
