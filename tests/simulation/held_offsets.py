"""Offsets of a group that nobody else uses. They expire after some seconds, but not while a transaction has new ones of
the same partitions: until it ends, those that are in effect stay, and those of other partitions go."""

from __future__ import annotations

import asyncio
from itertools import count
from random import Random

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offsets import OffsetCommitRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import GROUP, Cluster
from tests.simulation.client.member import committed_offsets
from tests.simulation.client.offsets_producer import OffsetsProducer
from tests.simulation.client.transactions import commit_codes, commit_topics, txn_commit_request
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import Commit, History, Outcome, Transaction

HOLDER, HELD_GROUP = "id of who holds offsets", "held"
PAUSE_S = 2.0
RETENTION_MS = 6000
HELD_WITHIN_S = 1.5
"""After the commit, or the clock of another coordinator might say that its time is over."""
HELD_FOR_S = (8.5, 11.0)
ARRIVES_WITHIN_S = 10.0
ATTEMPTS = 3
HELD_TIMEOUT_MS = 25_000


class HeldOffsets:
    """`held` and `other` are partitions of one topic. `producer` has no other client. `run` returns after `is_ending`
    was set."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        producer: OffsetsProducer,
        source: Random,
        *,
        held: TopicPartition,
        other: TopicPartition,
    ) -> None:
        self.is_ending = False
        self._cluster = cluster
        self._history = history
        self._producer = producer
        self._source = source
        self._held = held
        self._other = other

    async def run(self) -> None:
        """One transaction after the other, until the end."""
        sending = asyncio.get_running_loop().create_task(self._producer.run())
        for number in count(1, step=2):
            await asyncio.sleep(self._source.expovariate(1 / PAUSE_S))
            if self.is_ending:
                break
            await self._hold(number)
        sending.cancel()

    async def _hold(self, number: int) -> None:
        """Commits offset `number`, and the next one in a transaction."""
        transaction = await self._producer.begin_with(HELD_GROUP)
        if transaction is None:
            return
        ends_at = asyncio.get_running_loop().time() + HELD_WITHIN_S
        topics = commit_topics({self._held: number, self._other: number})
        plain = OffsetCommitRequest(group_id=HELD_GROUP, retention_time_ms=RETENTION_MS, topics=topics)
        is_there = await self._commit(self._begin(number), plain)
        holding = txn_commit_request(self._producer, HELD_GROUP, {self._held: number + 1})
        is_held = await self._commit(self._begin(number + 1, transaction), holding)
        if is_there and is_held and asyncio.get_running_loop().time() < ends_at:
            await asyncio.sleep(self._source.uniform(*HELD_FOR_S))
            await self._ask()
        await self._producer.finish(transaction, commits=self._source.random() < 0.5)

    async def _ask(self) -> None:
        """Asks for the offset in effect, at most some times."""
        found = None
        for _ in range(ATTEMPTS):
            if found is None:
                found = await committed_offsets(
                    self._cluster, self._history, self._producer.name, HELD_GROUP, [self._held], require_stable=False
                )

    def _begin(self, offset: int, transaction: Transaction | None = None) -> Commit:
        name, offsets = self._producer.name, {self._held: offset}
        return self._history.begin(Commit(process=name, group=HELD_GROUP, offsets=offsets, transaction=transaction))

    async def _commit(self, commit: Commit, request: Message) -> bool:
        """Asks once. Returns whether the coordinator says that the offsets are committed. If it says nothing, the
        request may still be on its way: returns when it has arrived."""
        try:
            answer = await self._cluster.ask_coordinator(GROUP, HELD_GROUP, request)
        except (NotSent, Unanswered) as error:
            self._history.end(commit, Outcome.UNKNOWN, str(error))
            await asyncio.sleep(ARRIVES_WITHIN_S)
            return False
        code = ErrorCode.of(max(commit_codes(answer), key=bool))
        if code is not ErrorCode.NONE:
            self._cluster.forget_coordinator(GROUP, HELD_GROUP)
        self._history.end(commit, Outcome.OK if code is ErrorCode.NONE else Outcome.UNKNOWN, code.name)
        return code is ErrorCode.NONE
