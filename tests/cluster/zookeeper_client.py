"""A session with ZooKeeper for a test without an event loop: the broker's own client, in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Entry, MetadataStoreError, Watch
from odradek.broker.metadata_store.read_back import retry_until_connected
from tests.zookeeper.stores import store_at

T = TypeVar("T")


class ZooKeeperClient:
    """Calls wait for a connection."""

    def __init__(self, connect: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._store = store_at(connect)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def open(self) -> None:
        """Begins the session."""
        self._run(self._store.open())

    def close(self) -> None:
        """Ends the session."""
        self._run(self._store.close())

    def exists(self, path: str, watch: Watch | None = None) -> Entry | None:
        """See MetadataStore. The watch is called in another thread."""
        return self._run(retry_until_connected(self._store, lambda: self._store.exists(path, watch)))

    def get(self, path: str) -> Entry:
        """See MetadataStore."""
        return self._run(retry_until_connected(self._store, lambda: self._store.get(path)))

    def children(self, path: str) -> list[str]:
        """See MetadataStore."""
        return self._run(retry_until_connected(self._store, lambda: self._store.children(path)))

    def write(self, path: str, data: bytes) -> bool:
        """Creates an entry or changes it, without another attempt. Returns whether that has succeeded."""
        try:
            if self._run(self._store.exists(path)) is None:
                self._run(self._store.create(path, data))
            else:
                self._run(self._store.set(path, data))
        except MetadataStoreError:
            return False
        return True

    def registrations(self) -> dict[int, int]:
        """The brokers, and the transaction in which each was registered: its broker epoch."""
        ids = map(int, self.children(znodes.BROKER_IDS))
        found = {broker_id: self.exists(znodes.broker_path(broker_id)) for broker_id in ids}
        return {broker_id: entry.created for broker_id, entry in found.items() if entry is not None}


@contextlib.contextmanager
def zookeeper_client(connect: str) -> Iterator[ZooKeeperClient]:
    """A session. `connect` as in zookeeper.connect."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="ZooKeeper client")
    thread.start()
    client = ZooKeeperClient(connect, loop)
    try:
        client.open()
        yield client
    finally:
        client.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
