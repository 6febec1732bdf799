"""Every change of a group triggers a rebalance: each trigger, with real consumers.

A minimal member that joins and then sends nothing stands for a consumer that has crashed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from kafka import KafkaConsumer
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from odradek.broker.server import Broker
from odradek.clients.network_client import NetworkClient
from odradek.protocol.compiler import encode_versioned
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.groups import JoinGroupRequest, SyncGroupRequest
from odradek.testing import in_process_broker
from tests.patience import until
from tests.wire.records import connect

GROUP, TOPIC, PARTITIONS = "triggers", "orders", 4
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}
PATIENCE_S = 30

pytestmark = pytest.mark.timeout(120)


async def create(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, partitions, 1)])
    await admin.close()


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with in_process_broker(SETTINGS) as broker:
        await create(broker.bootstrap, TOPIC)
        yield broker


@contextlib.asynccontextmanager
async def consuming(bootstrap: str, topic: str = TOPIC, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer in the group; it refreshes its metadata quickly."""
    given = {"heartbeat_interval_ms": 100, "session_timeout_ms": 5_000, "metadata_max_age_ms": 200, **options}
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False, **given)
    if topic.startswith("^"):
        consumer.subscribe(pattern=topic)
    else:
        consumer.subscribe([topic])
    await consumer.start()
    polling = asyncio.create_task(_poll(consumer))
    try:
        yield consumer
    finally:
        polling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await polling
        await consumer.stop()


async def _poll(consumer: AIOKafkaConsumer) -> None:
    while True:
        await consumer.getmany(timeout_ms=50)


async def until_shared(*consumers: AIOKafkaConsumer, of: set[tuple[str, int]] | None = None) -> None:
    """Waits until each consumer has a share and together they have all partitions."""
    wanted = {(TOPIC, number) for number in range(PARTITIONS)} if of is None else of

    def is_shared() -> bool:
        shares = [{(each.topic, each.partition) for each in consumer.assignment()} for consumer in consumers]
        return all(shares) and sum(map(len, shares)) == len(wanted) and set.union(*shares) == wanted

    await until(is_shared)


def generation(broker: Broker) -> int:
    group = broker.coordinators.groups.group(GROUP)
    assert group is not None
    return group.generation_id


async def test_a_joining_consumer_gets_its_share(broker: Broker) -> None:
    async with consuming(broker.bootstrap) as first:
        await until_shared(first)
        before = generation(broker)
        async with consuming(broker.bootstrap) as second:
            await until_shared(first, second)
            assert generation(broker) == before + 1


async def test_the_share_of_a_leaving_consumer_is_reassigned_at_once(broker: Broker) -> None:
    async with consuming(broker.bootstrap, session_timeout_ms=600_000) as first:
        async with consuming(broker.bootstrap, session_timeout_ms=600_000) as second:
            await until_shared(first, second)
        await until_shared(first)


async def test_the_share_of_a_consumer_that_unsubscribes_is_reassigned(broker: Broker) -> None:
    async with consuming(broker.bootstrap) as consumer:
        await until_shared(consumer)
        other = await asyncio.to_thread(_kafka_python_consumer, broker.bootstrap)
        await asyncio.to_thread(_poll_until_assigned, other)
        await until(lambda: 0 < len(consumer.assignment()) < PARTITIONS)
        await asyncio.to_thread(other.unsubscribe)
        await until_shared(consumer)
        await asyncio.to_thread(other.close)


def _kafka_python_consumer(bootstrap: str) -> KafkaConsumer:
    strategies = [RoundRobinPartitionAssignor]
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        enable_auto_commit=False,
        session_timeout_ms=60_000,
        partition_assignment_strategy=strategies,
    )
    consumer.subscribe([TOPIC])
    return consumer


def _poll_until_assigned(consumer: KafkaConsumer) -> None:
    """With long polls: kafka-python 3.0 never finishes a join whose poll ends before the SyncGroup response."""
    while not consumer.assignment():
        consumer.poll(timeout_ms=1_000)


async def test_the_share_of_a_member_whose_session_expires_is_reassigned(broker: Broker) -> None:
    async with consuming(broker.bootstrap) as consumer:
        await until_shared(consumer)
        async with await connect(broker.bootstrap) as silent:
            joined = await _join(silent, session_timeout_ms=1_000)
            answer = await silent.send(_sync(joined), version=3, timeout_ms=10_000)
            assert answer.error_code == ErrorCode.NONE
            await until(lambda: 0 < len(consumer.assignment()) < PARTITIONS)
            await until_shared(consumer)


async def test_a_created_topic_is_assigned_to_its_waiting_subscribers(broker: Broker) -> None:
    async with consuming(broker.bootstrap, "^orders.*") as first, consuming(broker.bootstrap, "^orders.*") as second:
        await until_shared(first, second)
        await create(broker.bootstrap, "orders-of-today", 2)
        old = {(TOPIC, number) for number in range(PARTITIONS)}
        await until_shared(first, second, of={*old, ("orders-of-today", 0), ("orders-of-today", 1)})


async def test_added_partitions_are_assigned(broker: Broker) -> None:
    async with consuming(broker.bootstrap) as first, consuming(broker.bootstrap) as second:
        await until_shared(first, second)
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        await admin.create_partitions({TOPIC: NewPartitions(PARTITIONS + 3)})
        await admin.close()
        await until_shared(first, second, of={(TOPIC, number) for number in range(PARTITIONS + 3)})


async def test_a_coordinator_restart_keeps_the_generation_until_the_next_rebalance(
    tmp_path: Path,
) -> None:
    async with in_process_broker(SETTINGS, data_dir=tmp_path) as broker:
        port = int(broker.bootstrap.split(":")[1])
        await create(broker.bootstrap, TOPIC)
        bootstrap = broker.bootstrap
        first = await _enter(consuming(bootstrap))
        await until_shared(first[0])
        before = generation(broker)
    again = {**SETTINGS, "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    async with in_process_broker(again, data_dir=tmp_path) as broker:
        coordinator = broker.coordinators.groups
        await until(lambda: bool(coordinator.shards()) and not coordinator.is_loading)
        assert generation(broker) == before
        async with consuming(bootstrap) as second:
            await until_shared(first[0], second)
            assert generation(broker) > before
        await first[1].__aexit__(None, None, None)


async def _enter(context: Any) -> tuple[AIOKafkaConsumer, Any]:
    return await context.__aenter__(), context


async def _join(client: NetworkClient, session_timeout_ms: int) -> Any:
    metadata = encode_versioned(ConsumerProtocolSubscription(topics=[TOPIC]), 0)
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="roundrobin", metadata=metadata)],
    )
    answer = await client.send(request, version=3, timeout_ms=30_000)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer


def _sync(joined: Any) -> SyncGroupRequest:
    return SyncGroupRequest(group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id)
