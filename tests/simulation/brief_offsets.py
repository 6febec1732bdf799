"""Commits offsets that expire after some seconds, in a group without members that nobody else uses, and asks for them.

The commits name their retention time, as those of old clients do: offsets.retention.minutes is longer than a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import GROUP, Cluster
from tests.simulation.client.transactions import commit_codes, commit_topics
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import History, Outcome
from tests.simulation.transaction_history import BriefAnswer, BriefCommit

BRIEF_GROUP = "brief"
RETENTION_MS = (6000, 9000)
COMMIT_EVERY_S = (24.0, 30.0)
ASK_EVERY_S = 1.0


class BriefOffsets:
    """`writer` returns the coordinator, if it can write. `run` returns after `is_ending` was set."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        source: Random,
        writer: Callable[[], object],
        *,
        name: str,
        partition: TopicPartition,
    ) -> None:
        self.is_ending = False
        self._cluster = cluster
        self._history = history
        self._source = source
        self._writer = writer
        self._name = name
        self._partition = partition

    async def run(self) -> None:
        """Commits now and then, and asks all the time, until the end."""
        loop = asyncio.get_running_loop()
        offset, commit_at = 0, 0.0
        while not self.is_ending:
            await asyncio.sleep(self._source.expovariate(1 / ASK_EVERY_S))
            if loop.time() >= commit_at:
                offset += 1
                await self._commit(offset)
                commit_at = loop.time() + self._source.uniform(*COMMIT_EVERY_S)
            else:
                await self._ask()

    async def _commit(self, offset: int) -> None:
        retention_ms = self._source.randint(*RETENTION_MS)
        commit = self._history.begin(
            BriefCommit(
                process=self._name,
                group=BRIEF_GROUP,
                partition=self._partition,
                offset=offset,
                retention_us=retention_ms * 1000,
            )
        )
        request = OffsetCommitRequest(
            group_id=BRIEF_GROUP, retention_time_ms=retention_ms, topics=commit_topics({self._partition: offset})
        )
        try:
            answer = await self._cluster.ask_coordinator(GROUP, BRIEF_GROUP, request)
        except (NotSent, Unanswered) as error:
            self._history.end(commit, Outcome.UNKNOWN, str(error))
            return
        code = ErrorCode.of(commit_codes(answer)[0])
        if code is not ErrorCode.NONE:
            self._cluster.forget_coordinator(GROUP, BRIEF_GROUP)
        self._history.end(commit, Outcome.OK if code is ErrorCode.NONE else Outcome.UNKNOWN, code.name)

    async def _ask(self) -> None:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(
            name=self._partition.topic, partition_indexes=[self._partition.partition]
        )
        request = OffsetFetchRequest(group_id=BRIEF_GROUP, topics=[topic])
        asked = self._history.begin(BriefAnswer(process=self._name, group=BRIEF_GROUP, partition=self._partition))
        try:
            answer = await self._cluster.ask_coordinator(GROUP, BRIEF_GROUP, request)
        except (NotSent, Unanswered) as error:
            self._history.end(asked, Outcome.UNKNOWN, str(error))
            return
        found = answer.topics[0].partitions[0] if answer.topics else None
        code = ErrorCode.of(answer.error_code or (found.error_code if found is not None else 0))
        if code is not ErrorCode.NONE or found is None:
            self._cluster.forget_coordinator(GROUP, BRIEF_GROUP)
            self._history.end(asked, Outcome.UNKNOWN, code.name)
            return
        asked.offset, asked.writer = found.committed_offset, self._writer()
        self._history.end(asked, Outcome.OK)
