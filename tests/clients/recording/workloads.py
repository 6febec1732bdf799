"""What clients do while they are recorded on a new broker of ours, and how their recordings are sent again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from odradek.clients.admin.client import parse_addresses
from odradek.clients.recording.recording_file import Entry, Recording
from odradek.clients.recording.replay import Difference, Replay, Summary
from odradek.clients.recording.streams import Dial
from odradek.clients.recording.target import Target
from odradek.testing import in_process_broker
from odradek.timer import SystemClock
from tests.clients.recording.proxied import bootstrap, proxied

SETTINGS = {
    "group.initial.rebalance.delay.ms": "300",  # members that join at once are in one generation, in whatever order
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
Workload = Callable[[str], Awaitable[None]]


@contextlib.asynccontextmanager
async def fresh(**settings: Any) -> AsyncIterator[str]:
    async with in_process_broker(SETTINGS, **settings) as broker:
        yield broker.bootstrap


async def replay(
    file: Path, *addresses: str, timeout_s: float = 20, is_timed: bool = False
) -> tuple[list[Difference], Summary]:
    with file.open("rb") as stream:
        recording = Recording(stream, str(file))
        return await replay_entries(
            recording.entries, *addresses, timeout_s=timeout_s, is_timed=is_timed, started_ms=recording.started_ms
        )


async def replay_entries(
    entries: Callable[[], Iterable[Entry]],
    *addresses: str,
    timeout_s: float = 20,
    is_timed: bool = False,
    started_ms: int = 0,
) -> tuple[list[Difference], Summary]:
    found: list[Difference] = []
    targets = [Target(parse_addresses(address)[0], Dial(), timeout_s) for address in addresses]
    replaying = Replay(targets, started_ms, SystemClock(), found.append, is_timed=is_timed)
    summary = await replaying.run(entries)
    assert summary.differences == len(found)
    return found, summary


async def recording_of(workload: Workload, file: Path) -> Path:
    async with fresh() as upstream, proxied(upstream, file) as proxy:
        await workload(bootstrap(proxy))
    return file


async def create(servers: str, topic: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, partitions, 1)])
    await admin.close()


async def transactions(servers: str) -> None:
    """A transaction that is committed and one that is aborted, of two producers one after the other."""
    await create(servers, "orders", 2)
    for _ in range(2):
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="clerk") as producer:
            async with producer.transaction():
                await producer.send("orders", b"committed", partition=0)
                offsets = {TopicPartition("orders", 0): 7}
                await producer.send_offsets_to_transaction(offsets, "readers")
            await producer.begin_transaction()
            await producer.send("orders", b"aborted", partition=0)
            await producer.flush()
            await producer.abort_transaction()
    async with AIOKafkaConsumer(
        "orders", bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        assert [(await consumer.getone()).value for _ in range(2)] == [b"committed"] * 2


async def a_group(servers: str) -> None:
    """A group of two consumers that commit, and one that comes back."""
    await create(servers, "orders", 4)
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        for number in range(40):
            await producer.send("orders", b"%d" % number, partition=number % 4)
    for _ in range(2):
        consumers = [
            AIOKafkaConsumer("orders", bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest")
            for _ in range(2)
        ]
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        for consumer in consumers:
            await consumer.getmany(timeout_ms=1000)
            await consumer.commit()
        for consumer in consumers:
            await consumer.stop()


async def readers_beside_writers(servers: str) -> None:
    """Fetches wait for batches: those of an idempotent producer, and those of transactions."""
    await create(servers, "orders", 3)
    partitions = [TopicPartition("orders", number) for number in range(3)]

    async def write() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            for number in range(60):
                await producer.send_and_wait("orders", b"plain", partition=number % 2)

    async def write_transactions() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="clerk") as producer:
            for _ in range(10):
                async with producer.transaction():
                    await producer.send_and_wait("orders", b"in a transaction", partition=2)

    async def read(isolation_level: str) -> None:
        async with AIOKafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level=isolation_level
        ) as consumer:
            consumer.assign(partitions)
            for _ in range(70):
                await consumer.getone()

    await asyncio.gather(write(), write_transactions(), read("read_uncommitted"), read("read_committed"))
