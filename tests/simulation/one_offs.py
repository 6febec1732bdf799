"""Transactional producers that run one transaction and are gone. Their ids rest until they expire, or nearly; then the
next producer takes them: as new ids, or in the next epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from random import Random

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.late_producer import LateProducer

ONE_OFF_IDS = tuple(f"id of one-off {number}" for number in range(5))
COME_EVERY_S = 2.5
SETTINGS = {
    "transactional.id.expiration.ms": "8000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1500",
}
"""An id returns after about twelve seconds."""


class OneOffs:
    """`new_producer` creates the producer of a name for an id; `texts` returns the texts of its records. `run` returns
    after `is_ending` was set."""

    def __init__(
        self,
        new_producer: Callable[[str, str], LateProducer],
        texts: Callable[[str], Iterator[str]],
        source: Random,
        *,
        name: str,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self.is_ending = False
        self._new_producer = new_producer
        self._texts = texts
        self._source = source
        self._name = name
        self._partitions = partitions

    async def run(self) -> None:
        """One after the other, until the end. The one before of the same id asks once more."""
        before: dict[str, LateProducer] = {}
        for number in count(1):
            await asyncio.sleep(self._source.expovariate(1 / COME_EVERY_S))
            if self.is_ending:
                return
            name = f"{self._name}.{number}"
            transactional_id = ONE_OFF_IDS[number % len(ONE_OFF_IDS)]
            producer = self._new_producer(name, transactional_id)
            sending = asyncio.get_running_loop().create_task(producer.run())
            partition = self._source.choice(self._partitions)
            await producer.transact({partition: [next(self._texts(name))]}, commits=self._source.random() < 0.75)
            if transactional_id in before and producer.is_initialised:
                await before[transactional_id].add_when_replaced(partition)
            before[transactional_id] = producer
            sending.cancel()
