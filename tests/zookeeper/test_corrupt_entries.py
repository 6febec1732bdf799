"""Entries that nobody can read, anywhere in ZooKeeper, while a cluster runs: no broker dies, topics whose own entries
are whole are served, and a new controller can be elected.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
import structlog
from aiokafka import AIOKafkaProducer

from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import MetadataStoreError
from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore
from odradek.broker.server import Broker
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.testing import in_process_broker
from tests.patience import until
from tests.wire.records import connect
from tests.zookeeper.model import ZooKeeperModel
from tests.zookeeper.stores import store_at

SEED = 31
GARBAGE: tuple[bytes | None, ...] = (
    None,
    b"",
    b"{",
    b"[]",
    b"{}",
    b"null",
    b"-1",
    b"1e999",
    b"99999999999999999999",
    b'"text"',
    b"\xff\xfe",
    b"[" * 50_000,
    b'{"version":1}',
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    -2,
    1.5,
    2**31 - 1,
    2**31,
    2**63,
    float("inf"),
    "",
    "x" * 40_000,
    "\ud800",
    [],
    {},
    [[1]],
    {"0": [1]},
)
"""What a value of an entry is replaced by."""
BAD = "bad"
NAMED = (
    znodes.topic_path(BAD),
    znodes.topic_config_path(BAD),
    znodes.broker_config_path(None),
    znodes.broker_path(1),
    znodes.CONTROLLER,
    znodes.FEATURE,
    znodes.REASSIGN_PARTITIONS,
    znodes.PREFERRED_ELECTION,
    f"{znodes.CONFIG_CHANGES}/unknown",
    f"{znodes.LOG_DIR_EVENTS}/unknown",
)
"""The paths that the log must name."""
NAMES = ("", "unknown", "<default>", "-1", "007", "99999999999", "a b", "٣", "x" * 300)


class Vandal:
    """Writes garbage into entries, and puts back those without which there is no cluster."""

    def __init__(self, store: ZooKeeperStore, source: random.Random) -> None:
        self.store = store
        self.random = source

    async def existing(self) -> list[str]:
        """The paths of all entries but those of the good topic."""
        paths = [""]
        for path in paths:
            names = await self.store.children(path or "/")
            paths += [f"{path}/{name}" for name in names if name != "good"]
        return paths[1:]

    async def overwrite(self, path: str, data: bytes | None) -> None:
        try:
            await self.store.set(path, data)
        except MetadataStoreError:
            pass  # its owner has deleted it

    async def add(self, parent: str, name: str, data: bytes | None) -> None:
        try:
            await self.store.create(f"{parent}/{name}", data)
        except MetadataStoreError:
            pass  # the parent is an ephemeral entry, or the name is not valid

    def damaged(self, data: bytes | None) -> Iterator[bytes]:
        """The data with other values, if it is JSON."""
        try:
            value = json.loads(data or b"")
        except ValueError:
            return
        for place in _places(value):
            yield json.dumps(_replaced(value, place, self.random.choice(VALUES))).encode()


def _places(value: Any) -> Iterator[tuple[Any, ...]]:
    """The way to each value within a value."""
    yield ()
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from ((key, *rest) for rest in _places(inner))


def _replaced(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    if not place:
        return other
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _replaced(value[place[0]], place[1:], other)
    return copy


class Cluster:
    """Two brokers, of which one may be asked for everything."""

    def __init__(self, settings: dict[str, Any], brokers: Sequence[Broker], producer: AIOKafkaProducer) -> None:
        self.settings = settings
        self.brokers = brokers
        self.producer = producer
        self._topics = 0

    async def create(self, name: str) -> bool:
        """Asks both brokers for a topic with two replicas, one of which must be the controller."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=1, replication_factor=2, assignments=[], configs=[]
        )
        codes = []
        for broker in self.brokers:
            async with await connect(broker.bootstrap) as client:
                response = await client.send(CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
            codes += [each.error_code for each in response.topics]
        return 0 in codes

    async def serves(self) -> None:
        """Waits until a topic is created, and all replicas of the good one store a record."""
        self._topics += 1
        name = f"t-{self._topics}"
        await until(lambda: self.create(name))
        async with asyncio.timeout(60):
            await self.producer.send_and_wait("good", b"record")


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[Cluster, ZooKeeperStore]]:
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(ZooKeeperModel().served())
        settings = {
            "zookeeper.connect": address,
            "min.insync.replicas": 2,
            "default.replication.factor": 2,
            "auto.create.topics.enable": "false",
        }
        brokers = [await stack.enter_async_context(in_process_broker(settings, broker_id=id_)) for id_ in (1, 2)]
        producer = AIOKafkaProducer(bootstrap_servers=[each.bootstrap for each in brokers], acks="all")
        cluster = Cluster(settings, brokers, producer)
        for name in ("good", BAD):
            await until(lambda name=name: cluster.create(name))
        await producer.start()
        stack.push_async_callback(producer.stop)
        vandal = store_at(address)
        await vandal.open()
        stack.push_async_callback(vandal.close)
        yield cluster, vandal


@pytest.mark.timeout(300)
async def test_no_broker_dies_of_an_entry_that_it_cannot_read(cluster: tuple[Cluster, ZooKeeperStore]) -> None:
    brokers, store = cluster
    vandal = Vandal(store, random.Random(SEED))
    await brokers.serves()
    paths = await vandal.existing()
    assert znodes.state_path(BAD, 0) in paths
    with structlog.testing.capture_logs() as logs:
        for path in paths:
            before = (await store.get(path)).data
            for data in (*vandal.damaged(before), *GARBAGE):
                await vandal.overwrite(path, data)
            for name in NAMES:
                await vandal.add(path, name, vandal.random.choice(GARBAGE))
            if path in (znodes.CONTROLLER_EPOCH, znodes.PRODUCER_ID_BLOCK, znodes.CLUSTER_ID):
                await vandal.overwrite(path, before)
            await brokers.serves()
        for path in (znodes.REASSIGN_PARTITIONS, znodes.PREFERRED_ELECTION):
            for data in GARBAGE:
                await vandal.add("/admin", path.rpartition("/")[2], data)
                await vandal.overwrite(path, data)
        await store.delete(znodes.CONTROLLER)
        await brokers.serves()
        async with in_process_broker(brokers.settings, broker_id=3):
            await brokers.serves()
    said = "\n".join(str(line) for line in logs)
    assert [path for path in NAMED if path not in said] == []
    assert not [line for line in logs if line["log_level"] == "critical" or "exc_info" in line]
