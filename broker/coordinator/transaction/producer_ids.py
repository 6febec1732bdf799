"""Gives out producer ids that are unique within the cluster, across restarts.

The controller gives this broker blocks of ids, each only once. When nine tenths of a block are used, the next block is
requested, so that no producer waits for the controller. The rest of a block is lost when the process ends.

Source: Kafka's `RPCProducerIdManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.cluster.active_controller import NoController
from odradek.protocol.errors import ErrorCode, ProtocolError

PART_LEFT = 10
"""The next block is requested when the tenth part of the current one is left."""

log = structlog.get_logger("producer_ids")

TakeBlock = Callable[[], Awaitable[range]]
"""Returns ids that nobody else gets. Raises NoController and ProtocolError."""


class ProducerIds:
    """Gives out the ids of the blocks that `take_block` returns."""

    def __init__(self, take_block: TakeBlock, spawn: Spawn) -> None:
        self._take_block = take_block
        self._spawn = spawn
        self._ids = range(0)
        self._few = 0
        self._next_ids = range(0)
        self._taking: asyncio.Task[ProtocolError | None] | None = None

    async def give(self, use: Callable[[int | ProtocolError], object]) -> None:
        """Calls `use` once, with a new id or with the error that `next` raises."""
        try:
            found: int | ProtocolError = await self.next()
        except ProtocolError as error:
            found = error
        except Exception:
            log.exception("producer id not allocated")
            found = ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            use(found)
        except Exception:
            log.exception("producer id callback failed")
            use(ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR))

    async def next(self) -> int:
        """Returns a new id >= 0. Raises COORDINATOR_LOAD_IN_PROGRESS (clients retry) if the controller gives none."""
        while not self._ids:
            if self._next_ids:
                self._ids, self._next_ids = self._next_ids, range(0)
                self._few = len(self._ids) // PART_LEFT
            else:
                await self._block_taken()
        producer_id, self._ids = self._ids[0], self._ids[1:]
        if len(self._ids) <= self._few and not self._next_ids:
            self._begin_to_take()
        return producer_id

    def _begin_to_take(self) -> asyncio.Task[ProtocolError | None]:
        """Requests the next block, unless that is under way."""
        if self._taking is None:
            self._taking = self._spawn(self._take(), "a block of producer ids")
        return self._taking

    async def _block_taken(self) -> None:
        """Waits for the request. All that wait for the same request get its error."""
        taking = self._begin_to_take()
        await asyncio.wait([taking])
        error = taking.result()
        if error is not None:
            raise error

    async def _take(self) -> ProtocolError | None:
        try:
            self._next_ids = await self._take_block()
        except (NoController, ProtocolError) as error:
            log.warning("producer ids not allocated", reason=str(error))
            message = f"No producer ids are available at the moment: {error}"
            return ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)
        finally:
            self._taking = None
        log.info("producer ids allocated", first=self._next_ids.start, size=len(self._next_ids))
        return None
