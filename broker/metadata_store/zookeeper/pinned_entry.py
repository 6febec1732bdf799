"""Checks that a server has the data of the cluster, by the entry that the store is pinned to (MetadataStore.pin)."""

from __future__ import annotations

import asyncio

from odradek.broker.metadata_store.interface import ConnectionLost, FaultOf, MetadataStoreError, NoEntry, StoreDamaged
from odradek.broker.metadata_store.zookeeper import codec
from odradek.broker.metadata_store.zookeeper.codec import Chroot
from odradek.broker.metadata_store.zookeeper.connection import ZooKeeperConnection


async def fault_at(connection: ZooKeeperConnection, chroot: Chroot, path: str, fault_of: FaultOf) -> str:
    """Returns what is wrong with the entry at a server, an empty string for nothing. Raises ConnectionLost."""
    answer = asyncio.get_running_loop().create_future()
    connection.send(codec.get_data(path, chroot), answer.set_result)
    match await answer:
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
