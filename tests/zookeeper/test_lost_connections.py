"""Brokers without ZooKeeper for a while: what clients change is applied when it is back, and brokers can stop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Create
from odradek.broker.server import Broker
from odradek.clients.network_client import NetworkClient
from odradek.clients.network_errors import NodeUnreachable
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType
from odradek.storage.checkpoint import CLEAN_SHUTDOWN
from tests.patience import until
from tests.wire.records import connect, produce
from tests.zookeeper.brokers import Brokers, brokers_on_zookeeper
from tests.zookeeper.stores import store_at

VERSION_OF_ZOOKEEPER = 0
SECONDS_TO_STOP = 30
"""It takes ten at most; a busy machine gets more."""


async def set_retention_on(client: NetworkClient, resource: ConfigResourceType, name: str, setting: str) -> ErrorCode:
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name=setting, config_operation=ConfigOperation.SET, value="123456"
    )
    resources = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=resource, resource_name=name, configs=[config]
        )
    ]
    response = await client.send(IncrementalAlterConfigsRequest(resources=resources), timeout_ms=60_000)
    return ErrorCode.of(response.responses[0].error_code)


async def commit_on(client: NetworkClient, offset: int) -> ErrorCode:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = OffsetCommitRequest(group_id="g", topics=topics)
    response = await client.send(request, version=VERSION_OF_ZOOKEEPER, timeout_ms=60_000)
    return ErrorCode.of(response.topics[0].partitions[0].error_code)


async def committed_on(client: NetworkClient) -> int:
    topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(group_id="g", topics=topics)
    response = await client.send(request, version=VERSION_OF_ZOOKEEPER, timeout_ms=60_000)
    offset: int = response.topics[0].partitions[0].committed_offset
    return offset


async def test_changes_of_settings_and_offsets_wait_for_zookeeper(tmp_path: Path) -> None:
    async with brokers_on_zookeeper(tmp_path, 2) as brokers:
        await brokers.create("t", 1, 2)
        clients = [await connect(brokers.all[1].bootstrap) for _ in range(5)]
        assert await commit_on(clients[2], 4) is ErrorCode.NONE
        brokers.lose_zookeeper()
        changes = [
            asyncio.ensure_future(change)
            for change in (
                set_retention_on(clients[0], ConfigResourceType.TOPIC, "t", "retention.ms"),
                set_retention_on(clients[1], ConfigResourceType.BROKER, "2", "log.retention.ms"),
                set_retention_on(clients[3], ConfigResourceType.BROKER, "", "log.retention.bytes"),
                commit_on(clients[2], 5),
            )
        ]
        reading = asyncio.ensure_future(committed_on(clients[4]))
        assert await produce(brokers.all[0].bootstrap, "t", b"goes on") is ErrorCode.NONE
        assert not any(change.done() for change in changes)
        brokers.bring_zookeeper_back()
        assert await asyncio.gather(*changes) == [ErrorCode.NONE] * 4
        assert await reading in (4, 5)
        assert await committed_on(clients[4]) == 5
        assert brokers.all[1].metadata.topic_config("t") == {"retention.ms": "123456"}
        assert brokers.all[1].config.log_retention_ms == 123456
        await until(lambda: brokers.all[0].metadata.topic_config("t") == {"retention.ms": "123456"})
        for client in clients:
            await client.close()


@pytest.mark.parametrize("failure", ["gone", "hung"])
async def test_brokers_stop_cleanly_without_zookeeper(tmp_path: Path, failure: str) -> None:
    """Also if they are in the middle of something that needs it."""
    async with brokers_on_zookeeper(tmp_path, 2) as brokers:
        await brokers.create("t", 1, 2)
        async with await connect(brokers.all[0].bootstrap) as client, await connect(brokers.all[1].bootstrap) as other:
            if failure == "gone":
                brokers.lose_zookeeper()
            else:
                brokers.model.hangs = True
            topics = brokers.all[0].controller.topics
            creating = asyncio.ensure_future(topics.create([NewTopic("new")], timeout_ms=600_000))
            settings = [
                asyncio.ensure_future(set_retention_on(each, ConfigResourceType.TOPIC, "t", "retention.ms"))
                for each in (client, other)
            ]
            assert await produce(brokers.all[0].bootstrap, "t", b"goes on") is ErrorCode.NONE
            await stopped(*brokers.all)
            (outcome,) = await creating
            assert isinstance(outcome, ProtocolError)
            assert outcome.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR)
            assert await asyncio.gather(*settings) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        assert is_clean(brokers, 1)
        assert is_clean(brokers, 2)


async def test_a_start_that_waits_for_zookeeper_can_be_stopped(tmp_path: Path) -> None:
    """The marker of the clean shutdown before stays, or is written again."""
    async with brokers_on_zookeeper(tmp_path, 2) as brokers:
        await brokers.create("t", 1, 2)
        await brokers.all[1].stop(hand_over=False)
        assert is_clean(brokers, 2)

        brokers.lose_zookeeper()
        broker = brokers.broker(2)
        starting = asyncio.ensure_future(broker.start())
        await until(lambda: getattr(broker, "metadata_store", None) is not None)
        await ended(starting)
        assert is_clean(brokers, 2)

        brokers.bring_zookeeper_back()
        other = store_at(brokers.connect)
        await other.open()
        await other.multi([Create(znodes.broker_path(2), b"{}", ephemeral=True)])
        broker = brokers.broker(2)
        starting = asyncio.ensure_future(broker.start())
        await until(lambda: broker.endpoints and broker._logs_are_loaded)
        assert not is_clean(brokers, 2)
        brokers.lose_zookeeper()
        await ended(starting)
        assert is_clean(brokers, 2)
        await other.close()


async def test_a_broker_that_waits_for_its_id_serves_nobody(tmp_path: Path) -> None:
    """It knows no topics yet. Clients would believe it."""
    async with brokers_on_zookeeper(tmp_path, 1) as brokers:
        await brokers.create("t", 1)
        killed = store_at(brokers.connect)
        await killed.open()
        await killed.multi([Create(znodes.broker_path(2), b"{}", ephemeral=True)])
        broker = brokers.broker(2)
        with capture_logs() as lines:
            starting = asyncio.ensure_future(broker.start())
            await until(lambda: any("waiting for its end" in line["event"] for line in lines))
        with pytest.raises(NodeUnreachable):
            await connect(broker.bootstrap)
        await killed.close()
        await starting
        async with await connect(broker.bootstrap):
            pass
        await broker.stop(hand_over=False)


async def stopped(*brokers: Broker) -> None:
    """Stops them all at once, as a signal to each of them does."""
    async with asyncio.timeout(SECONDS_TO_STOP):
        await asyncio.gather(*(broker.stop() for broker in brokers))


async def ended(starting: asyncio.Future[None]) -> None:
    """Cancels a start, as a signal does."""
    starting.cancel()
    async with asyncio.timeout(SECONDS_TO_STOP):
        await asyncio.wait([starting])
    assert starting.cancelled()


def is_clean(brokers: Brokers, number: int) -> bool:
    return (brokers.log_dir(number) / CLEAN_SHUTDOWN).exists()
