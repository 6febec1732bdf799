"""A topic that a fault creates and deletes, as an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.administration import ATTEMPTS, BRIEF, OPERATOR
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.reassignments import ReplicaAdmin
from tests.simulation.client.topics import TopicAdmin
from tests.simulation.history import Outcome

if TYPE_CHECKING:
    from tests.simulation.world import World


class BriefTopic:
    """It has one partition. A fault deletes it in the end, whatever came of its creation."""

    def __init__(self, world: World, name: str) -> None:
        self.name = f"{BRIEF}{name}"
        self.partition = TopicPartition(self.name, 0)
        self._world = world

    async def create(self, *, on: Sequence[int] = (), replicas: int = 1) -> None:
        """Creates it, with its replicas `on` these brokers."""

        async def create(cluster: Cluster) -> None:
            await self._admin(cluster).create(self.name, 1, replicas, on=on)

        await self._world.as_operator(create)

    async def reassign(self, replicas: Sequence[int]) -> None:
        """Moves it."""

        async def reassign(cluster: Cluster) -> None:
            admin = ReplicaAdmin(cluster, self._world.history, name=OPERATOR, topic=self.name)
            await admin.reassign({self.partition: replicas})

        await self._world.as_operator(reassign)

    def ask_to_delete(self) -> None:
        """Asks once, and does not wait."""

        async def ask(cluster: Cluster) -> None:
            await self._admin(cluster).delete(self.name)

        self._world.as_operator(ask)

    async def delete(self) -> None:
        """Asks until it is known that the topic is gone, or was not there."""

        async def delete(cluster: Cluster) -> None:
            for _ in range(ATTEMPTS):
                if await self._admin(cluster).delete(self.name) is not Outcome.UNKNOWN:
                    return
                await cluster.back_off()

        await self._world.as_operator(delete)

    def _admin(self, cluster: Cluster) -> TopicAdmin:
        return TopicAdmin(cluster, self._world.history, name=OPERATOR)
