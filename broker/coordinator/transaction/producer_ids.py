"""Allocates producer ids that are unique within the cluster, across restarts.

Ids are allocated in blocks of 1000. A block is reserved by a compare-and-set of `/latest_producer_id_block` in the
metadata store, and is durable before its first id is used. The rest of a block is lost when the process ends.

Source: Kafka's `ZkProducerIdManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from odradek.broker.controller import znodes
from odradek.broker.controller.metadata_store import BadVersion, MetadataStore, StoreUnavailable
from odradek.protocol.errors import ErrorCode, ProtocolError

BLOCK_SIZE = 1000
LAST_ID = 2**63 - 1

log = structlog.get_logger("producer_ids")


class ProducerIds:
    """Allocates producer ids for the broker `broker_id`."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._end = 0
        self._taking = asyncio.Lock()

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
        """Returns a new id >= 0. Raises COORDINATOR_LOAD_IN_PROGRESS (clients retry) while the metadata store is
        unavailable.
        """
        if self._next >= self._end:
            async with self._taking:
                if self._next >= self._end:
                    await self._take_block()
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _take_block(self) -> None:
        try:
            while not await self._try_to_take_block():
                pass
        except StoreUnavailable as error:
            log.warning("producer id block not reserved", reason=str(error))
            message = f"No producer ids are available at the moment: {error}"
            raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message) from error

    async def _try_to_take_block(self) -> bool:
        """Returns False if another broker has changed the entry since it was read."""
        entry = await self._store.get(znodes.PRODUCER_ID_BLOCK)
        first = znodes.parse_producer_id_block(entry.data)[1] + 1 if entry.data else 0
        last = first + BLOCK_SIZE - 1
        if last > LAST_ID:
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been allocated")
        data = znodes.encode_producer_id_block(self._broker_id, first, last)
        try:
            await self._store.set(znodes.PRODUCER_ID_BLOCK, data, entry.version)
        except BadVersion:
            return False
        self._next, self._end = first, last + 1
        log.info("producer id block reserved", first=first, last=last)
        return True
