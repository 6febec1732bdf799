"""Transactional producers under one id: each takes it from the one before, which goes on until it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from random import Random

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.transactions import TransactionalProducer

RIVALS, RIVALS_GROUP = "id of the rivals", "rivals"
REIGN_S = (2.0, 6.0)
TRANSACT_EVERY_S = 0.25


class Rivals:
    """`new_producer` creates the producer of a name; `texts` returns the texts of its records. `run` returns soon after
    `is_ending` was set and `ending` is done."""

    def __init__(
        self,
        new_producer: Callable[[str], TransactionalProducer],
        texts: Callable[[str], Iterator[str]],
        source: Random,
        ending: asyncio.Future[None],
        *,
        name: str,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self.is_ending = False
        self.transactions = 0
        self._new_producer = new_producer
        self._texts = texts
        self._source = source
        self._ending = ending
        self._name = name
        self._partitions = partitions
        self._offset = 0

    async def run(self) -> None:
        """One producer after the other, until the end."""
        loop = asyncio.get_running_loop()
        reigning = []
        for number in count(1):
            if self.is_ending:
                break
            producer = self._new_producer(f"{self._name}.{number}")
            sending = loop.create_task(producer.run())
            reign = loop.create_task(self._reign(producer))
            reign.add_done_callback(partial(_cancel, sending))
            reigning.append(reign)
            await asyncio.wait([self._ending], timeout=self._source.uniform(*REIGN_S))
        await asyncio.wait(reigning)

    async def _reign(self, producer: TransactionalProducer) -> None:
        source, texts = self._source, self._texts(producer.name)
        await producer.initialise()
        while not self.is_ending and producer.is_initialised:
            await asyncio.sleep(source.expovariate(1 / TRANSACT_EVERY_S))
            chosen = source.sample(self._partitions, source.randint(1, min(3, len(self._partitions))))
            batches = {partition: [next(texts) for _ in range(source.randint(1, 4))] for partition in sorted(chosen)}
            self._offset += 1
            offsets = {self._partitions[0]: self._offset} if source.random() < 0.5 else {}
            await producer.transact(batches, commits=source.random() < 0.75, group=RIVALS_GROUP, offsets=offsets)
            self.transactions += 1


def _cancel(task: asyncio.Task[None], _ended: object) -> None:
    task.cancel()
