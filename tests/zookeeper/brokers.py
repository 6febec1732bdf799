"""Brokers of this process on a ZooKeeper model."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from tests.patience import until
from tests.zookeeper.model import ZooKeeperModel
from tests.zookeeper.stores import new_chroot

SESSION_TIMEOUT_MS = 60_000
"""No session ends by itself."""


class Brokers:
    """Brokers 1, 2 and so on of one cluster. Broker 1 starts first, and is the controller."""

    def __init__(self, model: ZooKeeperModel, address: str, path: Path, count: int, settings: dict[str, str]) -> None:
        self.model = model
        self.connect = f"{address}{new_chroot()}"
        self.path = path
        self.settings = settings
        self.all = [self.broker(number) for number in range(1, count + 1)]

    def broker(self, number: int) -> Broker:
        """A broker that is not started."""
        settings = {
            "broker.id": str(number),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self.log_dir(number)),
            "zookeeper.connect": self.connect,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "replica.fetch.wait.max.ms": "50",
            **self.settings,
        }
        return Broker(BrokerConfig.single_node(settings))

    def log_dir(self, number: int) -> Path:
        return self.path / f"broker-{number}"

    async def create(self, topic: str, *replicas: int) -> None:
        """Creates a topic with one partition, led by the first of the replicas, and waits until all know it."""
        assignment = NewTopic(topic, assignments={0: replicas})
        (outcome,) = await self.all[0].controller.topics.create([assignment], timeout_ms=20_000)
        assert not isinstance(outcome, Exception), outcome
        await until(lambda: all(broker.metadata.topic(topic) for broker in self.all))

    def lose_zookeeper(self) -> None:
        """All connections break, and nobody can connect."""
        self.model.refuses = True
        self.model.drop_connections()

    def bring_zookeeper_back(self) -> None:
        self.model.refuses = False


@contextlib.asynccontextmanager
async def brokers_on_zookeeper(path: Path, count: int, **settings: object) -> AsyncIterator[Brokers]:
    """Yields running brokers, which know each other."""
    model = ZooKeeperModel()
    names = {name.replace("_", "."): str(value) for name, value in settings.items()}
    async with model.served() as address:
        brokers = Brokers(model, address, path, count, names)
        for broker in brokers.all:
            await broker.start()
        await until(lambda: all(len(broker.metadata.brokers) == count for broker in brokers.all))
        try:
            yield brokers
        finally:
            brokers.bring_zookeeper_back()
            for broker in brokers.all:
                await broker.stop(hand_over=False)
