"""Three brokers on one event loop, with sockets between them, and a client of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from odradek.broker.coordinator.runtime.runtime import partition_for
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from odradek.clients.network_client import NetworkClient
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.patience import until
from tests.wire import requests
from tests.wire.records import connect

IDS = (1, 2, 3)
GROUP, TRANSACTION = 0, 1
"""The types of coordinators."""
TOPICS = {GROUP: GROUP_TOPIC, TRANSACTION: TRANSACTION_TOPIC}
PARTITIONS = 3
"""Of each internal topic."""
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": str(PARTITIONS),
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": str(PARTITIONS),
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "300",
    "controlled.shutdown.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "replica.fetch.wait.max.ms": "50",
}
TRANSIENT = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class Brokers:
    """`brokers` and `clients` are the running ones, by id."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._store = SharedStore(session_timeout_ms=6000)
        self.brokers: dict[int, Broker] = {}
        self.clients: dict[int, NetworkClient] = {}

    async def start(self, *ids: int) -> None:
        await asyncio.gather(*map(self._start, ids))
        await until(self._all_know_all)

    async def _start(self, broker_id: int) -> None:
        settings = {**SETTINGS, "broker.id": str(broker_id), "log.dirs": str(self._root / str(broker_id))}
        session = self._store.session(str(broker_id))
        broker = Broker(BrokerConfig.single_node(settings), new_metadata_store=lambda *_: session)
        await broker.start()
        self.brokers[broker_id] = broker
        self.clients[broker_id] = await self._connect(broker_id)

    async def _connect(self, broker_id: int) -> NetworkClient:
        return await connect(self.brokers[broker_id].bootstrap)

    def _all_know_all(self) -> bool:
        return all(broker.metadata.brokers.keys() == self.brokers.keys() for broker in self.brokers.values())

    async def stop(self, broker_id: int) -> None:
        """Stops a broker, which moves none of its leaderships before."""
        await self.clients.pop(broker_id).close()
        await self.brokers.pop(broker_id).stop()
        await until(self._all_know_all)

    async def close(self) -> None:
        for broker_id in list(self.brokers):
            await self.clients.pop(broker_id).close()
            await self.brokers.pop(broker_id).stop()

    @property
    def controller(self) -> Broker:
        return next(broker for broker in self.brokers.values() if broker.controller.terms.is_active)

    async def ask(self, broker_id: int, request: Message, version: int) -> Any:
        return await self.clients[broker_id].send(request, version=version, timeout_ms=20_000)

    async def ask_alone(self, broker_id: int, request: Message, version: int) -> Any:
        """Sends a request on a connection of its own, so that others need not wait for its response."""
        async with await self._connect(broker_id) as client:
            return await client.send(request, version=version, timeout_ms=20_000)

    async def create(self, name: str, *assignments: Sequence[int]) -> None:
        """Creates a topic with these replicas, by partition, and waits until all brokers know it."""
        request = requests.create_assigned(name, *assignments)
        response = await self.ask(self.controller.broker_id, request, 5)
        assert response.topics[0].error_code == 0, response.topics[0].error_message
        await until(lambda: all(broker.metadata.topic(name) is not None for broker in self.brokers.values()))

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader that the controller's broker knows."""
        leader = self.controller.metadata.leader_of(TopicPartition(topic, partition))
        assert leader is not None
        return leader

    async def coordinator(self, key: str = "g", kind: int = GROUP) -> int:
        """Asks all brokers until they name the same coordinator, and it has loaded the key's partition."""
        found: set[int] = set()

        async def all_agree() -> bool:
            request = FindCoordinatorRequest(key=key, key_type=kind)
            responses = [await self.ask(broker_id, request, 3) for broker_id in self.brokers]
            found.clear()
            found.update(response.node_id for response in responses)
            return len(found) == 1 and found <= self.brokers.keys() and self._is_loaded(next(iter(found)), key, kind)

        await until(all_agree)
        return found.pop()

    def _is_loaded(self, broker_id: int, key: str, kind: int) -> bool:
        coordinators = self.brokers[broker_id].coordinators
        runtime = coordinators.runtimes[kind]
        number = partition_for(key, PARTITIONS)
        return number in runtime._led and not runtime._led[number].is_loading

    def names_by_partition(self, prefix: str = "key") -> list[str]:
        """A key for each partition of an internal topic."""
        names: dict[int, str] = {}
        for number in range(1000):
            names.setdefault(partition_for(f"{prefix}{number}", PARTITIONS), f"{prefix}{number}")
        return [names[number] for number in range(PARTITIONS)]


async def patiently(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Sends a request again until its error code is not a transient one."""
    answers: list[Any] = []

    async def is_answered() -> bool:
        answers.append(await ask())
        return answers[-1].error_code not in TRANSIENT

    await until(is_answered)
    return answers[-1]


@asynccontextmanager
async def three_brokers(root: Path) -> AsyncIterator[Brokers]:
    brokers = Brokers(root)
    try:
        await brokers.start(*IDS)
        yield brokers
    finally:
        await brokers.close()
