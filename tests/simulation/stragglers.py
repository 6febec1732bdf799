"""Transactional producers that do what they must not, one after the other under one id.

OlderStragglers   write where and when they may not
NewerStragglers   are of transactions version 2: write in an earlier epoch or out of order, and end what has ended
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import ClassVar, Generic, TypeVar

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.late_producer import OPEN_FOR_MS, Batches, LateProducer
from tests.simulation.client.newer_transactions import NewerLateProducer
from tests.simulation.client.transactions import TRANSACTION_TIMEOUT_MS

STRAGGLERS, NEWER_STRAGGLERS = "id of the stragglers", "id of the newer stragglers"
LONGEST_PAUSE_S = 0.02
"""Before the end of a transaction whose records may be on their way."""

P = TypeVar("P", bound=LateProducer)


class Stragglers(ABC, Generic[P]):
    """`new_producer` creates the producer of a name with a transaction timeout in ms; `texts` returns the texts of its
    records. The offsets that are written too late are those of `group`. `run` returns after `is_ending` was set."""

    begin_every_s: ClassVar[float]

    def __init__(
        self,
        new_producer: Callable[[str, int], P],
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
            await asyncio.sleep(self._source.expovariate(1 / self.begin_every_s))
            if self.is_ending:
                return
            name = f"{self._name}.{number}"
            await self._straggle(name, self._texts(name))

    @abstractmethod
    async def _straggle(self, name: str, texts: Iterator[str]) -> None:
        """Does one thing that must not be, as the producer of this name."""

    def _drawn(self, texts: Iterator[str]) -> tuple[TopicPartition, Batches]:
        """A partition that is not in the transaction, and the texts for those that are."""
        source = self._source
        elsewhere, *chosen = source.sample(self._partitions, source.randint(2, min(3, len(self._partitions))))
        batches = {partition: [next(texts) for _ in range(source.randint(1, 3))] for partition in sorted(chosen)}
        return elsewhere, batches


@contextmanager
def _sending(producer: LateProducer) -> Iterator[None]:
    sending = asyncio.get_running_loop().create_task(producer.run())
    try:
        yield
    finally:
        sending.cancel()


class OlderStragglers(Stragglers[LateProducer]):
    """See the head of this file."""

    begin_every_s = 1.5

    async def _straggle(self, name: str, texts: Iterator[str]) -> None:
        source = self._source
        way = source.choice(("elsewhere", "after a refusal", "at the end", "after the end", "after the timeout"))
        timeout_ms = OPEN_FOR_MS if way == "after the timeout" else TRANSACTION_TIMEOUT_MS
        producer = self._new_producer(name, timeout_ms)
        elsewhere, batches = self._drawn(texts)
        with _sending(producer):
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


class NewerStragglers(Stragglers[NewerLateProducer]):
    """See the head of this file."""

    begin_every_s = 1.2

    async def _straggle(self, name: str, texts: Iterator[str]) -> None:
        producer = self._new_producer(name, TRANSACTION_TIMEOUT_MS)
        elsewhere, batches = self._drawn(texts)
        way = self._source.choice(("the epoch before", "out of order", "nothing", "twice"))
        with _sending(producer):
            if way == "the epoch before":
                await producer.write_in_the_epoch_before(batches, next(texts), self._group, self._offset)
            elif way == "out of order":
                await producer.write_out_of_order(batches, elsewhere, next(texts))
            elif way == "nothing":
                await producer.end_nothing()
            else:
                await producer.end_twice(batches)
