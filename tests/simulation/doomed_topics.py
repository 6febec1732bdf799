"""Topics that are deleted while they are in use: while offsets of their partitions are committed to groups, and while a
transaction has a partition of theirs and offsets of it. The coordinators must do without the partitions, and without
their offsets, which nobody may find again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from random import Random

from odradek.protocol.messages.offsets import OffsetCommitRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import GROUP, Cluster
from tests.simulation.client.topics import TopicAdmin
from tests.simulation.client.transactions import Refused, TransactionalProducer, commit_topics
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import Outcome

DOOMED = "id of doomed topics"
DOOMED_GROUP = "doomed"
PARTITIONS = 2
LIVE_EVERY_S = 3.0
COMMIT_EVERY_S = 0.03
ATTEMPTS = 20


class DoomedProducer(TransactionalProducer):
    """Start `run` as a task."""

    async def use(
        self, partitions: Sequence[TopicPartition], delete: Callable[[], Awaitable[object]], *, early: bool
    ) -> None:
        """Begins a transaction with the partitions and offsets of them, and ends it when `delete` has returned, or
        (`early`) while it is under way."""
        transaction = await self.begin()
        try:
            await self._add_partitions(partitions)
            await self._add_offsets(transaction, DOOMED_GROUP, dict.fromkeys(partitions, 1))
        except Refused as error:
            self.history.end(transaction, Outcome.FAILED, str(error))
            self._is_initialised = False
            await delete()
            return
        deletion = asyncio.ensure_future(delete())
        if not early:
            await deletion
        transaction.commits = True
        await self._finish(transaction)
        await deletion


class DoomedTopics:
    """`prefix`: how the names of the topics begin. `run` returns after `is_ending` was set."""

    def __init__(
        self,
        cluster: Cluster,
        admin: TopicAdmin,
        producer: DoomedProducer,
        source: Random,
        *,
        prefix: str,
        replicas: int,
    ) -> None:
        self.is_ending = False
        self._cluster = cluster
        self._admin = admin
        self._producer = producer
        self._source = source
        self._prefix = prefix
        self._replicas = replicas

    async def run(self) -> None:
        """One topic after the other, until the end."""
        sending = asyncio.get_running_loop().create_task(self._producer.run())
        for number in count(1):
            await asyncio.sleep(self._source.expovariate(1 / LIVE_EVERY_S))
            if self.is_ending:
                break
            await self._live(f"{self._prefix}{number}")
        sending.cancel()

    async def _live(self, topic: str) -> None:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        if await self._admin.create(topic, PARTITIONS, self._replicas) is Outcome.FAILED:
            return
        committing = asyncio.get_running_loop().create_task(self._commit(partitions))
        await self._producer.use(partitions, partial(self._delete, topic), early=self._source.random() < 0.5)
        await asyncio.sleep(self._source.uniform(0.0, 10 * COMMIT_EVERY_S))
        committing.cancel()

    async def _delete(self, topic: str) -> None:
        for _ in range(ATTEMPTS):
            if await self._admin.delete(topic) is not Outcome.UNKNOWN:
                return
            await self._cluster.back_off()

    async def _commit(self, partitions: Sequence[TopicPartition]) -> None:
        """Commits offsets of the partitions again and again. From their deletion on, they are refused."""
        request = OffsetCommitRequest(group_id=DOOMED_GROUP, topics=commit_topics(dict.fromkeys(partitions, 1)))
        while True:
            try:
                await self._cluster.ask_coordinator(GROUP, DOOMED_GROUP, request)
            except (NotSent, Unanswered):
                await self._cluster.back_off()
            await asyncio.sleep(COMMIT_EVERY_S)
