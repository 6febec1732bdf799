"""What a test can do to a broker, together: virtual time, faults, snapshots and resets."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import InProcessBroker, in_process_broker
from tests.patience import until
from tests.wire.records import values

AN_HOUR_S = 3600
RETENTION = {"log.retention.minutes": 30, "log.message.timestamp.type": "LogAppendTime"}


def has_been_deleted(broker: InProcessBroker) -> bool:
    """Whether retention has taken the first record of `orders`."""
    log = broker.log_manager.logs[TopicPartition("orders", 0)]
    return log.state.log_start_offset == 1


async def test_the_time_of_a_broker_goes_on_after_a_reset() -> None:
    async with in_process_broker(RETENTION, time="virtual") as broker:
        before_ms = broker.clock.wall_ms()
        await broker.advance(AN_HOUR_S)
        await broker.reset()
        await broker.seed({"orders": [b"an order"]})
        await broker.advance(AN_HOUR_S)
        assert broker.clock.wall_ms() - before_ms >= 2 * AN_HOUR_S * 1000
        assert has_been_deleted(broker)


async def test_a_fork_has_a_time_of_its_own() -> None:
    async with in_process_broker(RETENTION, time="virtual") as broker:
        await broker.seed({"orders": [b"an order"]})
        snapshot = await broker.snapshot()
    async with in_process_broker(RETENTION, time="virtual", snapshot=snapshot) as fork:
        assert await values(fork.bootstrap, "orders") == [b"an order"]
        await fork.advance(AN_HOUR_S)
        assert has_been_deleted(fork)


async def test_an_advance_ends_the_delay_of_a_fault() -> None:
    async with in_process_broker(time="virtual") as broker:
        delay = broker.faults.add(api="Produce", topic="orders", delay=AN_HOUR_S)
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            sending = asyncio.ensure_future(producer.send_and_wait("orders", b"an order"))
            await until(lambda: delay.hits == 1)
            assert not sending.done()
            await broker.advance(AN_HOUR_S)
            assert (await asyncio.wait_for(sending, 20)).offset == 0


async def test_a_reset_leaves_the_faults_of_the_test() -> None:
    async with in_process_broker() as broker:
        fault = broker.faults.add(api="Produce", topic="orders", times=1, error="NOT_LEADER_OR_FOLLOWER")
        await broker.reset()
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, retry_backoff_ms=20) as producer:
            await producer.send_and_wait("orders", b"an order")
        assert fault.hits == 1


async def test_a_full_disk_refuses_the_records_of_a_fork() -> None:
    async with in_process_broker() as broker:
        await broker.seed({"orders": [b"an order"]})
        snapshot = await broker.snapshot()
    async with in_process_broker(snapshot=snapshot) as fork:
        fork.faults.add(disk="full", topic="orders")
        with pytest.raises(Exception, match="KAFKA_STORAGE_ERROR"):
            await fork.seed({"orders": [b"another"]})
