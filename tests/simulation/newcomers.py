"""Idempotent producers that begin all the time and do nothing: each needs a producer id that nobody has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from random import Random

from odradek.broker.controller import producer_id_blocks
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.producers import InitProducerIdRequest
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import History, Outcome
from tests.simulation.transaction_history import Identified

BEGIN_EVERY_S = 0.3
IDS_PER_BLOCK = 10
"""Instead of a thousand: a broker needs a new block every few seconds."""


@contextlib.contextmanager
def small_blocks() -> Iterator[None]:
    """Lets the controllers give out small blocks of producer ids."""
    before = producer_id_blocks.BLOCK_SIZE
    producer_id_blocks.BLOCK_SIZE = IDS_PER_BLOCK
    try:
        yield
    finally:
        producer_id_blocks.BLOCK_SIZE = before


class Newcomers:
    """`run` returns after `is_ending` was set."""

    def __init__(self, cluster: Cluster, history: History, source: Random, *, name: str) -> None:
        self.is_ending = False
        self._cluster = cluster
        self._history = history
        self._source = source
        self._name = name

    async def run(self) -> None:
        """One producer after the other, until the end."""
        await self._cluster.refresh()
        while not self.is_ending:
            await asyncio.sleep(self._source.expovariate(1 / BEGIN_EVERY_S))
            await self._begin()

    async def _begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
        asked = self._history.begin(Identified(process=self._name))
        try:
            answer = await self._cluster.ask_any(request)
        except (NotSent, Unanswered) as error:
            self._history.end(asked, Outcome.UNKNOWN, str(error))
            return
        asked.producer_id = answer.producer_id
        code = ErrorCode.of(answer.error_code)
        self._history.end(asked, Outcome.OK if code is ErrorCode.NONE else Outcome.FAILED, code.name)
