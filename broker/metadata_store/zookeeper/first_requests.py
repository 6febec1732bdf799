"""The first requests of a session: they find out whether the server has the data of the cluster, and create the path
below which all entries of the cluster are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from odradek.broker.metadata_store.interface import (
    ConnectionLost,
    Create,
    EntryExists,
    FaultOf,
    MetadataStoreError,
    NoEntry,
    StoreDamaged,
    TooLarge,
)
from odradek.broker.metadata_store.zookeeper import codec
from odradek.broker.metadata_store.zookeeper.acls import AclsOf
from odradek.broker.metadata_store.zookeeper.codec import Chroot, Request
from odradek.broker.metadata_store.zookeeper.connection import ZooKeeperConnection

ROOT = Chroot("")


async def fault_at(connection: ZooKeeperConnection, chroot: Chroot, path: str, fault_of: FaultOf) -> str:
    """Reads the entry that the store is pinned to (`MetadataStore.pin`) and returns what is wrong with it; an empty
    string if nothing is. Raises ConnectionLost.
    """
    response = asyncio.get_running_loop().create_future()
    connection.send(codec.get_data(path, chroot), response.set_result)
    match await response:
        case ConnectionLost() as lost:
            raise lost
        case NoEntry():
            return f"{path} is missing"
        case MetadataStoreError() as error:
            return str(error)
        case entry:
            try:
                return fault_of(entry.data)
            except StoreDamaged as damage:
                return str(damage)


async def create_chroot(path: str, acls_of: AclsOf, send: Callable[[Request], Awaitable[Any]]) -> None:
    """Creates `path` and the paths above it, as Kafka does at the start. Returns when the server has responded to at
    least one request, so it serves this session. `send` returns a request's result. Raises MetadataStoreError.
    """
    position = 0
    while position < len(path):
        end = path.find("/", position + 1)
        position = len(path) if end < 0 else end
        request = codec.multi([Create(path[:position])], ROOT, acls_of)
        assert not isinstance(request, TooLarge), "a path is short"
        result = await send(request)
        if isinstance(result, MetadataStoreError) and not isinstance(result, EntryExists):
            raise result
    response = await send(codec.sync(ROOT))
    if isinstance(response, MetadataStoreError):
        raise response
