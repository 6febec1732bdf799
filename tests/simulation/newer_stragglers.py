"""Producers of transactions version 2 that do what they must not, one after the other under one id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from random import Random

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.newer_transactions import NewerLateProducer

NEWER_STRAGGLERS = "id of the newer stragglers"
BEGIN_EVERY_S = 1.2


class NewerStragglers:
    """`new_producer` creates the producer of a name; `texts` returns the texts of its records. `run` returns after
    `is_ending` was set."""

    def __init__(
        self,
        new_producer: Callable[[str], NewerLateProducer],
        texts: Callable[[str], Iterator[str]],
        source: Random,
        *,
        name: str,
        partitions: Sequence[TopicPartition],
        group: str,
        offset: TopicPartition,
    ) -> None:
        self.is_ending = False
        self._new_producer = new_producer
        self._texts = texts
        self._source = source
        self._name = name
        self._partitions = partitions
        self._group = group
        self._offset = offset

    async def run(self) -> None:
        """One producer with one transaction after the other, until the end."""
        for number in count(1):
            await asyncio.sleep(self._source.expovariate(1 / BEGIN_EVERY_S))
            if self.is_ending:
                return
            name = f"{self._name}.{number}"
            producer = self._new_producer(name)
            sending = asyncio.get_running_loop().create_task(producer.run())
            await self._straggle(producer, self._texts(name))
            sending.cancel()

    async def _straggle(self, producer: NewerLateProducer, texts: Iterator[str]) -> None:
        source = self._source
        elsewhere, *chosen = source.sample(self._partitions, source.randint(2, min(3, len(self._partitions))))
        batches = {partition: [next(texts) for _ in range(source.randint(1, 3))] for partition in sorted(chosen)}
        way = source.choice(("the epoch before", "out of order", "nothing", "twice"))
        if way == "the epoch before":
            await producer.write_in_the_epoch_before(batches, next(texts), self._group, self._offset)
        elif way == "out of order":
            await producer.write_out_of_order(batches, elsewhere, next(texts))
        elif way == "nothing":
            await producer.end_nothing()
        else:
            await producer.end_twice(batches)
