"""What administrators do during a simulation: topics come, grow and go, and replicas move.

brief-N     a topic that lives for some seconds, once or twice. A few stay until the end
parcels     a topic of two replicas that are moved from broker to broker, one or two partitions at a time. Some
            moves are cancelled or replaced before they have ended
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from random import Random
from typing import NamedTuple

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.reassignments import ReplicaAdmin
from tests.simulation.client.topics import TopicAdmin
from tests.simulation.history import History, Outcome, Request

OPERATOR = "operator"
"""The client that acts for faults: `World.as_operator`."""
PARCELS = "parcels"
BRIEF = "brief-"
"""How the names of the topics of `TopicKeeper` begin."""
PARCELS_SETTINGS = {"min.insync.replicas": "1"}
PARCELS_REPLICAS = 2
PAUSE_S = (0.8, 3.0)
AT_A_FAULT = 0.6
"""How often a pause ends when a fault comes."""
MOST_KEPT = 2
GROUPS_SETTLE_S = 12.0
"""Within this time groups have new targets when their members change no more: expressions are resolved every 10 s."""
ATTEMPTS = 20
LOOK_S = 0.5
LOOKS = 10


class Pauses:
    """The pauses of an administrator. `fault_coming` returns shortly before the next fault."""

    def __init__(self, source: Random, fault_coming: Callable[[], Awaitable[None]]) -> None:
        self._source = source
        self._fault_coming = fault_coming

    async def pause(self) -> None:
        """Waits for a while, or until a fault comes."""
        seconds = self._source.uniform(*PAUSE_S)
        try:
            async with asyncio.timeout(seconds):
                await (self._fault_coming() if self._source.random() < AT_A_FAULT else asyncio.sleep(seconds))
        except TimeoutError:
            return


class Office(NamedTuple):
    """What an administrator of this name works with."""

    name: str
    cluster: Cluster
    history: History
    source: Random
    pauses: Pauses


class Administrator(abc.ABC):
    """Changes something until the end: `run` returns soon after `is_ending` was set."""

    def __init__(self, office: Office) -> None:
        self.is_ending = False
        self._name, self._cluster, self._history, self._source, self._pauses = office

    @abc.abstractmethod
    async def run(self) -> None:
        """Does so until the end."""


class TopicKeeper(Administrator):
    """Creates, extends and deletes topics, with up to three replicas if there are so many brokers."""

    def __init__(self, office: Office, *, brokers: Sequence[int]) -> None:
        super().__init__(office)
        self._admin = TopicAdmin(self._cluster, self._history, name=self._name)
        self._brokers = brokers
        self._kept: dict[str, int] = {}
        """The topics that stay, with their largest number of partitions."""
        self._doubtful: dict[str, None] = {}
        """The topics whose deletion was not confirmed."""

    async def run(self) -> None:
        """Does so until the end. Then it deletes those that it could not delete, and those that stay grow once more:
        groups that are subscribed to them must see it, although their members change nothing any more.
        """
        for number in count(1):
            if self.is_ending:
                break
            topic = f"{BRIEF}{number}"
            for _ in range(self._source.randint(1, 2)):
                if self.is_ending or not await self._live(topic):
                    break
        for topic in self._doubtful:
            await self._delete(topic)
        await asyncio.sleep(GROUPS_SETTLE_S)
        for topic, partitions in self._kept.items():
            await self._admin.extend(topic, partitions + 1)

    async def _live(self, topic: str) -> bool:
        """One life of a topic. Returns whether it may live again: nothing is in doubt."""
        source, admin = self._source, self._admin
        partitions = source.randint(1, 2)
        replicas = min(source.randint(1, 3), len(self._brokers))
        created = await admin.create(topic, partitions, replicas)
        await self._pause()
        if created is Outcome.FAILED:
            return False
        if source.random() < 0.6:
            partitions += 1
            await admin.extend(topic, partitions)
            await self._pause()
        may_stay = created is Outcome.OK and len(self._kept) < MOST_KEPT and replicas > 1
        if may_stay and (source.random() < 0.2 or not self._kept):
            self._kept[topic] = partitions
            return False
        self._doubtful[topic] = None
        if source.random() < 0.4:
            for _ in range(source.randint(1, 2)):
                await self._move(topic)
            if source.random() < 0.5:
                await self._pause()
        if await admin.delete(topic) is Outcome.OK:
            del self._doubtful[topic]
        await self._pause()
        return created is Outcome.OK and topic not in self._doubtful

    async def _move(self, topic: str) -> None:
        admin = ReplicaAdmin(self._cluster, self._history, name=self._admin.name, topic=topic)
        replicas = self._source.sample(self._brokers, self._source.randint(1, len(self._brokers)))
        await admin.reassign({TopicPartition(topic, 0): replicas})

    async def _delete(self, topic: str) -> None:
        for _ in range(ATTEMPTS):
            if await self._admin.delete(topic) is not Outcome.UNKNOWN:
                return
            await self._cluster.back_off()

    async def _pause(self) -> None:
        if not self.is_ending:
            await self._pauses.pause()


class ReplicaMover(Administrator):
    """Moves the replicas of these partitions between brokers."""

    def __init__(self, office: Office, *, partitions: Sequence[TopicPartition], brokers: Sequence[int]) -> None:
        super().__init__(office)
        self._admin = ReplicaAdmin(self._cluster, self._history, name=self._name, topic=PARCELS)
        self.moving = asyncio.Lock()
        """Held while somebody reassigns the partitions."""
        self._partitions = partitions
        self._brokers = brokers

    async def run(self) -> None:
        """Does so until the end. Then it waits until no reassignment is under way."""
        source, admin = self._source, self._admin
        while not self.is_ending:
            async with self.moving:
                chosen = source.sample(self._partitions, source.randint(1, 2))
                await admin.reassign({partition: self._replicas() for partition in chosen})
                chance = source.random()
                if chance < 0.4:
                    await asyncio.sleep(source.uniform(0.0, 0.1))
                    is_cancelled = chance < 0.25
                    await admin.reassign({key: None if is_cancelled else self._replicas() for key in chosen})
            await self._pauses.pause()
            await self._see_to_end(LOOKS)
        seen = self._history.begin(Request(process=admin.name, what="see that no reassignment is under way"))
        if await self._see_to_end(ATTEMPTS * LOOKS):
            self._history.end(seen, Outcome.OK)

    def _replicas(self) -> list[int]:
        return self._source.sample(self._brokers, PARCELS_REPLICAS)

    async def _see_to_end(self, looks: int) -> bool:
        """Looks whether a reassignment is under way, until there is none, or for so many times. Returns whether there
        is none."""
        for _ in range(looks):
            if await self._admin.under_way() == []:
                return True
            await asyncio.sleep(LOOK_S)
        return False
