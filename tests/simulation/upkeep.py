"""What operators do during a simulation besides topics and replicas (administration.py).

SettingsKeeper    gives settings of topics, of single brokers and of all brokers one value after the other
DiskMover         moves replicas from one log directory of their broker to the other
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from random import Random

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.administration import Pauses
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.log_dirs import DiskAdmin
from tests.simulation.client.settings import SettingsAdmin
from tests.simulation.history import History
from tests.simulation.machine import DIRECTORIES
from tests.simulation.upkeep_history import Setting

HURRIED_S = 0.02
LEAST_VALUE = 2_000_000
"""No record is so large that these settings concern it."""
CLEANER = "log.cleaner.io.max.bytes.per.second"
LESS_FOR_CLEANERS = 1_990_000
"""So little that a log may change while it is cleaned."""


class SettingsKeeper:
    """`run` returns soon after `is_ending` was set."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        source: Random,
        pauses: Pauses,
        *,
        topics: Sequence[str],
        brokers: Sequence[int],
    ) -> None:
        self.is_ending = False
        self._cluster = cluster
        self._admin = SettingsAdmin(cluster, history, name="settings-keeper")
        self._source = source
        self._pauses = pauses
        self._settings = [
            *(Setting("max.message.bytes", topic=topic) for topic in topics),
            *(Setting(CLEANER, broker_id=broker_id) for broker_id in brokers),
            Setting("message.max.bytes"),
        ]

    async def run(self) -> None:
        """Does so until the end."""
        for value in count(LEAST_VALUE):
            if self.is_ending:
                return
            if not self._cluster.brokers:
                await self._cluster.refresh()
            setting = self._source.choice(self._settings)
            await self._admin.alter(setting, str(value - LESS_FOR_CLEANERS if setting.name == CLEANER else value))
            await self._pauses.pause()


class DiskMover:
    """`hurries_at`: the broker whose replicas it moves one after the other, None if it takes its time anywhere. `run`
    returns soon after `is_ending` was set."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        source: Random,
        pauses: Pauses,
        *,
        partitions: Sequence[TopicPartition],
        brokers: Sequence[int],
    ) -> None:
        self.is_ending = False
        self.hurries_at: int | None = None
        self._cluster = cluster
        self._admin = DiskAdmin(cluster, history, name="disk-mover")
        self._source = source
        self._pauses = pauses
        self._partitions = partitions
        self._brokers = brokers

    async def run(self) -> None:
        """Does so until the end."""
        source = self._source
        while not self.is_ending:
            if not self._cluster.brokers:
                await self._cluster.refresh()
            broker_id = source.choice(self._brokers) if self.hurries_at is None else self.hurries_at
            await self._admin.move(broker_id, source.choice(self._partitions), source.choice(DIRECTORIES))
            if self.hurries_at is None:
                await self._pauses.pause()
            else:
                await asyncio.sleep(HURRIED_S)
