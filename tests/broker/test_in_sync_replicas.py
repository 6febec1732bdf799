"""The in-sync replicas of a whole broker: periodic work, requests to the controller, metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from odradek.broker.background.background import Background
from odradek.broker.cluster.active_controller import ActiveController
from odradek.broker.metadata.metadata_cache import BrokerInfo
from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.metrics.families import FAMILIES
from odradek.broker.server import Broker
from odradek.protocol.messages.replica_control import AlterPartitionRequest, AlterPartitionResponse
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import in_process_broker
from odradek.timer import ManualClock
from tests.broker.replica.harness import later
from tests.patience import until

T0 = TopicPartition("t", 0)


async def accept(_active: ActiveController, request: AlterPartitionRequest) -> AlterPartitionResponse:
    """A controller that accepts every proposal."""
    return AlterPartitionResponse(
        topics=[
            AlterPartitionResponse.TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    AlterPartitionResponse.PartitionData(
                        partition_index=data.partition_index,
                        leader_id=request.broker_id,
                        leader_epoch=data.leader_epoch,
                        isr=data.new_isr,
                        partition_epoch=data.partition_epoch + 1,
                    )
                    for data in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def numbers(broker: Broker) -> dict[str, float]:
    """The metrics of the replica manager, by Kafka's name in lower case."""
    prefix, sources = "kafka_server_replicamanager_", broker.metric_sources()
    found = {}
    for family in FAMILIES:
        if family.name.startswith(prefix):
            ((_, found[family.name.removeprefix(prefix)]),) = family.read(sources)
    return found


async def test_isrs_shrink_and_expand_at_the_configured_lag_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: dict[float, Callable[[], Awaitable[None]]] = {}
    monkeypatch.setattr(Background, "every", lambda _, interval_ms, job, *__: jobs.setdefault(interval_ms, job))
    monkeypatch.setattr(ActiveController, "alter_partition", accept)
    clock = ManualClock(now_ms=1_000_000)
    settings = {"replica.lag.time.max.ms": "66666", "min.insync.replicas": "2"}
    async with in_process_broker(settings, clock=clock) as broker:
        manager = broker.replica_manager
        await broker.controller.topics.create([NewTopic("t", 1, 1)], timeout_ms=10_000)
        partition = manager.partitions.find(T0)
        broker.metadata.put_broker(BrokerInfo(broker.broker_id + 1, {}))
        replicas = (broker.broker_id, broker.broker_id + 1)
        partition.make_leader(later(partition, broker.broker_id, replicas, replicas))
        manager.appends.append_one(T0, build_batch([Record(value=b"x")]), 1, 9)
        assert partition.log.state.high_watermark == 0

        clock.advance(66_666)
        await jobs[33_333]()
        assert partition.isr.proposal is None
        clock.advance(1)
        await jobs[33_333]()
        await until(lambda: partition.isr.committed == replicas[:1])
        found = numbers(broker)
        assert (found["isrshrinks"], found["underreplicatedpartitions"], found["underminisrpartitioncount"]) == (
            1,
            1,
            1,
        )

        partition.update_follower(replicas[1], 1, 0)
        await until(lambda: partition.isr.committed == replicas)
        found = numbers(broker)
        assert (found["isrexpands"], found["underreplicatedpartitions"], found["underminisrpartitioncount"]) == (
            1,
            0,
            0,
        )
        assert found["failedisrupdates"] == 0
        assert partition.log.state.high_watermark == 1
