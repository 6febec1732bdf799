"""Requests that wait until a change is complete: Kafka's purgatories `topic` and `ElectLeader`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import DelayedElectLeader, DelayedOperation, DelayedOperationPurgatory, DelayedTopicChange

KnownLeader = Callable[[TopicPartition], int | None]


class RequestWaits:
    """Parks requests in two purgatories. Needs a running event loop. `known_leader`: the leader of a partition that
    this broker knows.
    """

    def __init__(
        self,
        topics: DelayedOperationPurgatory,
        elections: DelayedOperationPurgatory,
        known_leader: KnownLeader,
    ) -> None:
        self.topics = topics
        self.elections = elections
        self._known_leader = known_leader

    async def topic_change(self, change: asyncio.Task[Any], timeout_ms: int, topics: Sequence[str]) -> None:
        """Returns when the change is complete, or after `timeout_ms`. Parks under the topics' names; at least one is
        required.
        """
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        operation = DelayedTopicChange(timeout_ms, change.done, lambda: answered.set_result(None))
        await _parked(self.topics, operation, tuple(dict.fromkeys(topics)), change, answered)

    async def leaders_known(
        self, elected: Mapping[TopicPartition, int], announced: asyncio.Future[Any], timeout_ms: int
    ) -> list[Any]:
        """Returns when this broker knows the elected leaders, or after `timeout_ms`, the partitions whose leader it
        does not know. `announced` is done when this broker has been told.
        """
        answered: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        operation = DelayedElectLeader(timeout_ms, dict(elected), self._look_up, answered.set_result)
        await _parked(self.elections, operation, tuple(elected), announced, answered)
        return answered.result()

    def _look_up(self, partition: Any) -> int | None:
        return self._known_leader(partition)


async def _parked(
    purgatory: DelayedOperationPurgatory,
    operation: DelayedOperation,
    keys: Sequence[Hashable],
    event: asyncio.Future[Any],
    answered: asyncio.Future[Any],
) -> None:
    """Parks `operation`, which is tried again at `event`. Returns when it has answered."""

    def ended(_event: asyncio.Future[Any]) -> None:
        for key in keys:
            purgatory.completions.add(purgatory, key)

    event.add_done_callback(ended)
    purgatory.try_complete_else_watch(operation, keys)
    try:
        await answered
    finally:
        operation.abandon()
