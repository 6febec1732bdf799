"""ZooKeeper has lost all its data, or has that of another cluster: brokers that run go on without it, as Kafka's do,
and take nothing from it; brokers that start refuse.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.start_up import make_persistent_entries
from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.server import Broker
from odradek.broker.start_error import StartError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType
from odradek.storage.checkpoint import CLEAN_SHUTDOWN
from tests.patience import until
from tests.wire.records import connect, produce, values
from tests.zookeeper.brokers import Brokers, brokers_on_zookeeper
from tests.zookeeper.stores import store_at

TOPIC = "t"
SESSION_TIMEOUT_MS = 2000
"""Longer than a client pauses between two attempts to connect."""
OTHER_ID = "AAAAAAAAQACAAAAAAAAAAA"
CHROOT_IS_EMPTY = "/cluster/id is missing"


async def keep_for_ever(brokers: Brokers) -> None:
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name="retention.ms", config_operation=ConfigOperation.SET, value="-1"
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=TOPIC, configs=[config]
    )
    async with await connect(brokers.all[0].bootstrap) as client:
        response = await client.send(IncrementalAlterConfigsRequest(resources=[resource]))
    assert response.responses[0].error_code == ErrorCode.NONE
    await until(lambda: all(retention(broker) == -1 for broker in brokers.all))


def partition_of(broker: Broker) -> Partition:
    return broker.replica_manager.partitions.find(TopicPartition(TOPIC, 0))


def retention(broker: Broker) -> int:
    log = partition_of(broker).log
    assert log is not None
    return log.config.retention_ms


def refusals(lines: list[EventDict], reason: str) -> int:
    """How many brokers have said that ZooKeeper is not theirs."""
    return sum(line["log_level"] == "error" and reason in str(line.get("reason")) for line in lines)


@pytest.mark.parametrize("sessions", ["are restored", "have ended"])
async def test_brokers_go_on_without_a_zookeeper_that_lost_its_data_until_it_is_restored(
    tmp_path: Path, sessions: str
) -> None:
    settings = {"zookeeper_session_timeout_ms": SESSION_TIMEOUT_MS, "min_insync_replicas": 2}
    async with brokers_on_zookeeper(tmp_path, 2, **settings) as brokers:
        await brokers.create(TOPIC, 1, 2)
        await keep_for_ever(brokers)
        assert await produce(brokers.all[0].bootstrap, TOPIC, b"before") is ErrorCode.NONE
        with capture_logs() as lines:
            lost = brokers.model.wipe()
            await until(lambda: refusals(lines, CHROOT_IS_EMPTY) == 2)
            assert await produce(brokers.all[0].bootstrap, TOPIC, b"meanwhile") is ErrorCode.NONE

            other = store_at(brokers.connect)
            await found_another_cluster(other)
            await until(lambda: refusals(lines, f"/cluster/id is {OTHER_ID}") == 2)
            assert await other.children(znodes.BROKER_IDS) == []
            assert await other.exists(znodes.CONTROLLER) is None
            await other.close()
            assert await produce(brokers.all[0].bootstrap, TOPIC, b"still") is ErrorCode.NONE
            assert [retention(broker) for broker in brokers.all] == [-1, -1]

        brokers.model.restore(lost)
        if sessions == "have ended":
            for broker in brokers.all:
                brokers.model.expire(broker.metadata_store.session_id)
        await until(lambda: all(brokers.model.has(broker.metadata_store.session_id) for broker in brokers.all))
        epochs = [broker.metadata_store.session_epoch for broker in brokers.all]
        assert epochs == ([1, 1] if sessions == "are restored" else [2, 2])

        leaders: list[Broker] = []

        async def is_written() -> bool:
            """To the second broker, if its session has begun anew before the first one's."""
            leaders[:] = [broker for broker in brokers.all if partition_of(broker).is_leader]
            written = [await produce(leader.bootstrap, TOPIC, b"after") for leader in leaders]
            return ErrorCode.NONE in written

        await until(is_written)
        await brokers.create("new", 2, 1)
        assert await values(leaders[0].bootstrap, TOPIC) == [b"before", b"meanwhile", b"still", b"after"]
        assert [retention(broker) for broker in brokers.all] == [-1, -1]


async def found_another_cluster(store: ZooKeeperStore) -> None:
    """A broker with an empty directory would do it."""
    await store.open()
    await make_persistent_entries(store)
    await store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(OTHER_ID))


async def test_a_broker_does_not_start_without_the_data_of_its_cluster(tmp_path: Path) -> None:
    async with brokers_on_zookeeper(tmp_path, 1) as brokers:
        (broker,) = brokers.all
        await brokers.create(TOPIC, 1)
        assert await produce(broker.bootstrap, TOPIC, b"before") is ErrorCode.NONE
        await broker.stop(hand_over=False)
        lost = brokers.model.wipe()
        again = brokers.broker(1)
        with pytest.raises(StartError, match="but ZooKeeper has none") as refused:
            await again.start()
        assert broker.metadata.cluster_id in str(refused.value)
        assert (brokers.log_dir(1) / CLEAN_SHUTDOWN).exists()
        observer = store_at(brokers.connect)
        await observer.open()
        assert await observer.children("/") == []
        await observer.close()

        brokers.model.restore(lost)
        brokers.all[0] = brokers.broker(1)
        await brokers.all[0].start()
        assert await values(brokers.all[0].bootstrap, TOPIC) == [b"before"]
