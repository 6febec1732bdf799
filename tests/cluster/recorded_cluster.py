"""Three brokers in this process on a shared store, whose requests to each other are recorded and can be sent again."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from odradek.broker.metadata_store.interface import Entry
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.peers.inter_broker_protocol import BROKER_SOFTWARE, INTER_BROKER_VERSIONS
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from odradek.clients.network_client import NetworkClient, api_key_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.schema import Message
from tests.patience import until
from tests.wire.records import connect

SESSION_TIMEOUT_MS = 6000
SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.max.retries": "1",
    "replica.fetch.backoff.ms": "20",
}


class Sent(NamedTuple):
    """A request from one broker to another."""

    sender: int
    receiver: int
    request: Any


class _Recording(NetworkClient):
    """A connection whose requests are handed to `note` once that is set."""

    note: Callable[[Message], object] | None = None

    async def send(self, request: Message, *, version: int | None = None, timeout_ms: int | None = None) -> Any:
        if self.note is not None:
            self.note(request)
        return await super().send(request, version=version, timeout_ms=timeout_ms)


class RecordedCluster:
    """Made by `recorded_cluster`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = SharedStore(session_timeout_ms=SESSION_TIMEOUT_MS)
        self.brokers: dict[int, Broker] = {}
        self.sent: list[Sent] = []
        self._at: dict[int, int] = {}

    async def start(self, broker_id: int) -> Broker:
        """Starts a broker for the first time or again."""
        config = BrokerConfig.single_node(
            {
                "broker.id": str(broker_id),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(self.directory / str(broker_id)),
                "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
                **SETTINGS,
            }
        )
        store = self.store.session(f"broker-{broker_id}")
        broker = Broker(config, new_metadata_store=lambda *_: store, connect=partial(self._connect, broker_id))
        await broker.start()
        self.brokers[broker_id] = broker
        self._at[broker.endpoints[0].port] = broker_id
        return broker

    async def stop(self, broker_id: int) -> None:
        """A controlled shutdown."""
        await self.brokers.pop(broker_id).stop()

    async def _connect(
        self,
        sender: int,
        host: str,
        port: int,
        *,
        client_id: str = "",
        software_name: str = "",
        timeout_ms: int = 10_000,
    ) -> NetworkClient:
        client = await _Recording.connect(
            host, port, client_id=client_id, software_name=software_name, timeout_ms=timeout_ms
        )
        assert isinstance(client, _Recording)
        client.note = lambda request: self.sent.append(Sent(sender, self._at[port], request))
        return client

    def between(self, *kinds: type[Message], sender: int | None = None, receiver: int | None = None) -> list[Any]:
        """The requests of these kinds that were sent so far, in order."""
        return [
            sent.request
            for sent in self.sent
            if isinstance(sent.request, kinds) and sender in (None, sent.sender) and receiver in (None, sent.receiver)
        ]

    async def replay(self, receiver: int, requests: Iterable[Message]) -> list[Any]:
        """Sends requests to a broker as another broker would; returns the responses."""
        async with self._client(receiver, BROKER_SOFTWARE) as client:
            return [
                await client.send(request, version=INTER_BROKER_VERSIONS[ApiKey(api_key_of(request))])
                for request in requests
            ]

    async def ask(self, receiver: int, request: Message) -> Any:
        """Sends a client's request."""
        async with self._client(receiver, "test") as client:
            return await client.send(request)

    @contextlib.asynccontextmanager
    async def _client(self, receiver: int, software: str) -> AsyncIterator[NetworkClient]:
        async with await connect(self.brokers[receiver].bootstrap, software_name=software) as client:
            yield client

    def controller(self) -> int:
        """The broker that is the controller; 0 if there is none."""
        return next((one for one, broker in self.brokers.items() if broker.controller.terms.is_active), 0)

    async def until_settled(self) -> None:
        """Waits until all brokers know each other and the controller, and all replicas are in sync and have all."""
        await until(self._is_settled)

    def _is_settled(self) -> bool:
        return all(
            list(broker.metadata.brokers) == sorted(self.brokers)
            and broker.metadata.controller_id == self.controller()
            and self._is_in_sync(broker)
            for broker in self.brokers.values()
        )

    def _is_in_sync(self, broker: Broker) -> bool:
        states = [
            state
            for name in broker.metadata.topic_names()
            if (topic := broker.metadata.topic(name)) is not None
            for state in topic.partitions.values()
        ]
        logs = [partition.log for partition in broker.replica_manager.partitions]
        return all({*state.isr} == {*state.replicas} & self.brokers.keys() for state in states) and all(
            log.state.high_watermark == log.state.log_end_offset for log in logs
        )

    async def everything(self) -> dict[str, object]:
        """What the store and the brokers know, which a refused request must not change."""
        known: dict[str, object] = {**await self._entries()}
        for one, broker in self.brokers.items():
            metadata = broker.metadata
            known[f"brokers of {one}"] = dict(metadata.brokers)
            known[f"controller of {one}"] = (metadata.controller_id, metadata.controller_epoch)
            known[f"topics of {one}"] = [metadata.topic(name) for name in metadata.topic_names()]
            known[f"folders of {one}"] = sorted(path.name for path in (self.directory / str(one)).glob("*-[0-9]*"))
            for partition in broker.replica_manager.partitions:
                log = partition.log
                known[f"{partition.topic_partition} of {one}"] = (
                    (partition.leader_id, partition.leader_epoch, partition.partition_epoch, partition.replicas),
                    (partition.isr.committed, partition.isr.maximal),
                    (log.state.log_start_offset, log.state.high_watermark, log.state.log_end_offset),
                )
        return known

    async def _entries(self) -> dict[str, Entry]:
        session = self.store.session("reader")
        await session.open()
        entries: dict[str, Entry] = {}
        paths = ["/"]
        while paths:
            path = paths.pop()
            entries[path] = await session.get(path)
            paths += [f"{path.rstrip('/')}/{name}" for name in await session.children(path)]
        await session.close()
        return entries


@contextlib.asynccontextmanager
async def recorded_cluster(directory: Path) -> AsyncIterator[RecordedCluster]:
    """A running cluster of the brokers 1, 2 and 3."""
    cluster = RecordedCluster(directory)
    try:
        for broker_id in (1, 2, 3):
            await cluster.start(broker_id)
        await cluster.until_settled()
        yield cluster
    finally:
        for broker in cluster.brokers.values():
            await broker.stop()
