"""Transactional producers that run one transaction and are gone. Their ids rest until they expire, or nearly; then the
next producer takes them: as new ids, or in the next epoch. Some leave their transaction open, with offsets: the last of
such a producer, in each log that it has written to, is a marker of the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from random import Random

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.late_producer import OPEN_FOR_MS, LateProducer
from tests.simulation.client.transactions import TRANSACTION_TIMEOUT_MS

ONE_OFFS_GROUP = "one-offs"
ONE_OFF_IDS = tuple(f"id of one-off {number}" for number in range(5))
COME_EVERY_S = 2.5
LEFT_OPEN = 0.2
SETTINGS = {
    "transactional.id.expiration.ms": "8000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1500",
}
"""An id returns after about twelve seconds."""


class OneOffs:
    """`new_producer` creates the producer of a name for an id, with a transaction timeout in ms; `texts` returns the
    texts of its records. `run` returns after `is_ending` was set."""

    def __init__(
        self,
        new_producer: Callable[[str, str, int], LateProducer],
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
            is_left = self._source.random() < LEFT_OPEN
            producer = self._new_producer(name, transactional_id, OPEN_FOR_MS if is_left else TRANSACTION_TIMEOUT_MS)
            sending = asyncio.get_running_loop().create_task(producer.run())
            partition = self._source.choice(self._partitions)
            batches = {partition: [next(self._texts(name))]}
            if is_left:
                await producer.leave_open(batches, ONE_OFFS_GROUP, {partition: 1})
            else:
                await producer.transact(batches, commits=self._source.random() < 0.75)
            if transactional_id in before and producer.is_initialised:
                await before[transactional_id].add_when_replaced(partition)
            before[transactional_id] = producer
            sending.cancel()
