"""Offsets as version 0 of OffsetCommit and OffsetFetch keep them: not in a log, but in the metadata store.

They stand where Kafka in ZooKeeper mode has them, `/consumers/GROUP/offsets/TOPIC/PARTITION`, as decimal text. They
know no members, no metadata and no expiry, and have nothing to do with what later versions commit.

Source: Kafka's `KafkaZkClient` (setOrCreateConsumerOffset, getConsumerOffset), `ConsumerOffset`.
"""

from __future__ import annotations

from odradek.broker.controller.metadata_store import BadArguments, EntryExists, MetadataStore, NoEntry, StoreUnavailable
from odradek.protocol.errors import ErrorCode, ProtocolError

CONSUMERS = "/consumers"


class ZooKeeperOffsets:
    """All methods raise COORDINATOR_NOT_AVAILABLE while the store takes no requests, INVALID_GROUP_ID for a group id
    that cannot stand in a path."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def commit(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Returns when it is durable."""
        try:
            await self._set(_path(group_id, topic, partition), str(offset).encode("ascii"))
        except StoreUnavailable as error:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        except BadArguments as error:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID, str(error)) from error

    async def committed(self, group_id: str, topic: str, partition: int) -> int | None:
        """None where there is none."""
        try:
            entry = await self._store.get(_path(group_id, topic, partition))
        except NoEntry:
            return None
        except StoreUnavailable as error:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        except BadArguments as error:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID, str(error)) from error
        return None if entry.data is None else int(entry.data)

    async def _set(self, path: str, data: bytes) -> None:
        try:
            await self._store.set(path, data)
        except NoEntry:
            await self._create(path, data)

    async def _create(self, path: str, data: bytes) -> None:
        """With what is missing above it; another may be doing the same."""
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
