"""Allocates blocks of producer ids to brokers (AllocateProducerIds).

A block is reserved by a compare-and-set of `/latest_producer_id_block`, and is durable before its first id is used. A
block whose answer is lost is not given to anybody else: its ids are never used.

Source: Kafka's `KafkaController.processAllocateProducerIds`, `ZkProducerIdManager`.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from odradek.broker.controller.controller_context import ControllerContext
from odradek.broker.controller.fenced_store import FencedStore
from odradek.broker.controller.partition_changes import storage_error
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import (
    BadVersion,
    Create,
    MetadataStoreError,
    NoEntry,
    Set,
    has_lost_connection,
)
from odradek.protocol.errors import ErrorCode, ProtocolError

BLOCK_SIZE = 1000
LAST_ID = 2**63 - 1

log = structlog.get_logger("controller")


class ProducerIdBlock(NamedTuple):
    """The ids from `first` on, `size` of them."""

    first: int
    size: int


class ProducerIdBlocks:
    """Allocates blocks to the brokers in `context`."""

    def __init__(self, store: FencedStore, context: ControllerContext) -> None:
        self._store = store
        self._context = context

    async def allocate(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """Returns a block that nobody else gets. Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH,
        KAFKA_STORAGE_ERROR.
        """
        broker = self._context.brokers.get(broker_id)
        if broker is None:
            raise ProtocolError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered")
        if broker.epoch != broker_epoch:
            raise ProtocolError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} has registered again")
        while True:
            block = await self._try_to_allocate(broker_id)
            if block is not None:
                log.info("producer ids allocated", broker=broker_id, first=block.first, size=block.size)
                return block

    async def _try_to_allocate(self, broker_id: int) -> ProducerIdBlock | None:
        """Returns None if another broker has changed the entry since it was read."""
        try:
            entry = await self._store.exists(znodes.PRODUCER_ID_BLOCK)
            first = 0 if entry is None or not entry.data else znodes.parse_producer_id_block(entry.data)[1] + 1
            last = first + BLOCK_SIZE - 1
            if last > LAST_ID:
                raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been allocated")
            data = znodes.encode_producer_id_block(broker_id, first, last)
            path = znodes.PRODUCER_ID_BLOCK
            await self._store.multi([Create(path, data) if entry is None else Set(path, data, entry.version)])
        except (BadVersion, NoEntry):
            return None
        except MetadataStoreError as error:
            line = log.info if has_lost_connection(error) else log.error
            line("producer ids not allocated", broker=broker_id, reason=str(error))
            raise storage_error(error) from error
        return ProducerIdBlock(first, BLOCK_SIZE)
