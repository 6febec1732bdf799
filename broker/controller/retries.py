"""Calls of the metadata store that are repeated while the connection is lost.

`read_back.py` does the same for a single change, and finds out whether it was applied. Source: Kafka's `KafkaZkClient`
(`retryRequestUntilConnected`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from odradek.broker.controller.metadata_store import ConnectionLost, MetadataStore

T = TypeVar("T")


async def retry_until_connected(store: MetadataStore, call: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of `call`. After ConnectionLost, waits for the connection and calls again, possibly in another
    session: a call that changes something must read first whether it has been done.

    Raises StoreUnavailable if the store is closed, and what else `call` raises.
    """
    while True:
        try:
            return await call()
        except ConnectionLost:
            await store.connected()
