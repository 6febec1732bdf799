"""Clients that send the controller what only brokers may send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import History, Operation, Outcome


class Proposable(NamedTuple):
    """A partition as the store has it, with the epochs of its brokers' registrations."""

    partition: TopicPartition
    replicas: Sequence[int]
    in_sync: Sequence[int]
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    broker_epochs: dict[int, int]


class Impostor:
    """`read` returns all partitions of the store. `run` returns soon after `is_ending` was set."""

    def __init__(
        self, cluster: Cluster, history: History, source: Random, read: Callable[[], list[Proposable]], *, name: str
    ) -> None:
        self.is_ending = False
        self.name = name
        self._cluster = cluster
        self._history = history
        self._source = source
        self._read = read

    async def _ask_controller(self, asked: Operation, request: Any) -> None:
        """Asks the controller, and notes its answer: FAILED with any error code."""
        await self._cluster.refresh()
        try:
            response = await self._cluster.ask_broker(self._cluster.controller_id, request)
        except (NotSent, Unanswered) as error:
            self._history.end(asked, Outcome.UNKNOWN, str(error))
            return
        topics = getattr(response, "topics", ())
        codes = [response.error_code, *(each.error_code for topic in topics for each in topic.partitions)]
        code = ErrorCode.of(max(codes, key=bool))
        self._history.end(asked, Outcome.FAILED if code else Outcome.OK, code.name)
