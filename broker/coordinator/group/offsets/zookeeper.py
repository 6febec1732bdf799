"""Stores the offsets of OffsetCommit and OffsetFetch version 0 in the metadata store instead of a log.

The path is that of Kafka in ZooKeeper mode, `/consumers/GROUP/offsets/TOPIC/PARTITION`; the value is decimal text.
These offsets have no members, no metadata and no expiry, and are separate from those that later versions commit.

Source: Kafka's `KafkaZkClient` (setOrCreateConsumerOffset, getConsumerOffset), `ConsumerOffset`.
"""

from __future__ import annotations

from odradek.broker.metadata_store.interface import BadArguments, EntryExists, MetadataStore, NoEntry, StoreUnavailable
from odradek.broker.metadata_store.read_back import retry_until_connected
from odradek.protocol.errors import ErrorCode, ProtocolError

CONSUMERS = "/consumers"


class ZooKeeperOffsets:
    """All methods wait while the connection to the store is lost. They raise COORDINATOR_NOT_AVAILABLE if the store is
    unavailable, and INVALID_GROUP_ID if the group id cannot be part of a path.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def commit(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Returns once the offset is durable."""
        try:
            path, data = _path(group_id, topic, partition), str(offset).encode("ascii")
            await retry_until_connected(self._store, lambda: self._set(path, data))
        except StoreUnavailable as error:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        except BadArguments as error:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID, str(error)) from error

    async def committed(self, group_id: str, topic: str, partition: int) -> int | None:
        """Returns the committed offset, or None."""
        try:
            path = _path(group_id, topic, partition)
            entry = await retry_until_connected(self._store, lambda: self._store.get(path))
        except NoEntry:
            return None
        except StoreUnavailable as error:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        except BadArguments as error:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID, str(error)) from error
        return None if entry.data is None else int(entry.data)

    async def _set(self, path: str, data: bytes) -> None:
        """Has the same effect if it is called again after a call whose answer was lost."""
        try:
            await self._store.set(path, data)
        except NoEntry:
            await self._create(path, data)

    async def _create(self, path: str, data: bytes) -> None:
        """Creates the entry and its missing parents. Another task may be creating them at the same time."""
        parts = path.split("/")
        for depth in range(3, len(parts)):
            try:
                await self._store.create("/".join(parts[:depth]))
            except EntryExists:
                pass
        try:
            await self._store.create(path, data)
        except EntryExists:
            await self._store.set(path, data)


def _path(group_id: str, topic: str, partition: int) -> str:
    if not group_id:
        raise ProtocolError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    return f"{CONSUMERS}/{group_id}/offsets/{topic}/{partition}"
