"""Transactional producers that write where and when they may not, one after the other under one id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from random import Random

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.late_producer import OPEN_FOR_MS, LateProducer
from tests.simulation.client.transactions import TRANSACTION_TIMEOUT_MS

STRAGGLERS = "id of the stragglers"
BEGIN_EVERY_S = 1.5
LONGEST_PAUSE_S = 0.02
"""Before the end of a transaction whose records may be on their way."""


class Stragglers:
    """`new_producer` creates the producer of a name with a transaction timeout in ms; `texts` returns the texts of its
    records. The offsets that are written too late are those of `group`. `run` returns after `is_ending` was set."""

    def __init__(
        self,
        new_producer: Callable[[str, int], LateProducer],
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
            await self._straggle(f"{self._name}.{number}")

    async def _straggle(self, name: str) -> None:
        source, texts = self._source, self._texts(name)
        way = source.choice(("elsewhere", "after a refusal", "at the end", "after the end", "after the timeout"))
        producer = self._new_producer(name, OPEN_FOR_MS if way == "after the timeout" else TRANSACTION_TIMEOUT_MS)
        sending = asyncio.get_running_loop().create_task(producer.run())
        elsewhere, *chosen = source.sample(self._partitions, source.randint(2, min(3, len(self._partitions))))
        batches = {partition: [next(texts) for _ in range(source.randint(1, 3))] for partition in sorted(chosen)}
        if way == "elsewhere":
            await producer.write_elsewhere(batches, elsewhere, [next(texts) for _ in range(4)])
        elif way == "after a refusal":
            await producer.write_after_refusal(batches, elsewhere, [next(texts), next(texts)])
        elif way == "at the end":
            await producer.end_at_once(batches, source.uniform(0.0, LONGEST_PAUSE_S))
        elif way == "after the end":
            await producer.write_after_end(batches, self._group, self._offset, next(texts))
        else:
            await producer.write_after_timeout(batches, elsewhere, self._group, self._offset, next(texts))
        sending.cancel()
