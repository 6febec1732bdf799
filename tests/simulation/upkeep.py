"""What operators do during a simulation besides topics and replicas (administration.py).

SettingsKeeper    gives settings of topics, of single brokers and of all brokers one value after the other
DiskMover         moves replicas from one log directory of their broker to the other, some back while they move
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.administration import Administrator, Office
from tests.simulation.client.log_dirs import DiskAdmin
from tests.simulation.client.settings import SettingsAdmin
from tests.simulation.machine import DIRECTORIES
from tests.simulation.upkeep_history import Setting

HURRIED_S = 0.02
LEAST_VALUE = 2_000_000
"""No record is so large that these settings concern it, and no log takes long."""
CLEANER, MOVES = "log.cleaner.io.max.bytes.per.second", "replica.alter.log.dirs.io.max.bytes.per.second"
LESS_FOR_CLEANERS = 1_990_000
"""So little that a log may change while it is cleaned."""
SECOND_THOUGHTS = 0.4
"""How often a replica is moved once more at once, maybe back."""


class SettingsKeeper(Administrator):
    """See the head of this file."""

    def __init__(self, office: Office, *, topics: Sequence[str], brokers: Sequence[int]) -> None:
        super().__init__(office)
        self._admin = SettingsAdmin(self._cluster, self._history, name=self._name)
        self._settings = [
            *(Setting("max.message.bytes", topic=topic) for topic in topics),
            *(Setting(name, broker_id=broker_id) for broker_id in brokers for name in (CLEANER, MOVES)),
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


class DiskMover(Administrator):
    """`hurries_at`: the broker whose replicas it moves one after the other, None if it takes its time anywhere."""

    def __init__(self, office: Office, *, partitions: Sequence[TopicPartition], brokers: Sequence[int]) -> None:
        super().__init__(office)
        self.hurries_at: int | None = None
        self._admin = DiskAdmin(self._cluster, self._history, name=self._name)
        self._partitions = partitions
        self._brokers = brokers

    async def run(self) -> None:
        """Does so until the end."""
        source = self._source
        while not self.is_ending:
            if not self._cluster.brokers:
                await self._cluster.refresh()
            broker_id = source.choice(self._brokers) if self.hurries_at is None else self.hurries_at
            partition = source.choice(self._partitions)
            await self._admin.move(broker_id, partition, source.choice(DIRECTORIES))
            if source.random() < SECOND_THOUGHTS:
                await self._admin.move(broker_id, partition, source.choice(DIRECTORIES))
            if self.hurries_at is None:
                await self._pauses.pause()
            else:
                await asyncio.sleep(HURRIED_S)
