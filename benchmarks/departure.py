"""Notes when ZooKeeper has deleted a broker's entry: from then on, the others can know that it has gone."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from kazoo.client import KazooClient

GIVE_UP_S = 60


class Departure:
    """The deletion of one ephemeral entry."""

    def __init__(self) -> None:
        self._deleted = threading.Event()
        self._at = 0.0

    def note(self, _event: object = None) -> None:
        """Called by the watch."""
        self._at = time.perf_counter()
        self._deleted.set()

    def at(self) -> float:
        """Returns the time of `time.perf_counter`. Raises TimeoutError."""
        if not self._deleted.wait(GIVE_UP_S):
            raise TimeoutError(f"ZooKeeper has not ended the broker's session in {GIVE_UP_S} s")
        return self._at


@contextlib.contextmanager
def departure_of(broker_id: int, zookeeper: str) -> Iterator[Departure]:
    """Watches a registered broker of the ZooKeeper at HOST:PORT, which is to be killed in the block."""
    client = KazooClient(zookeeper)
    client.start(GIVE_UP_S)
    try:
        departure = Departure()
        if client.exists(f"/brokers/ids/{broker_id}", departure.note) is None:
            raise LookupError(f"broker {broker_id} is not registered")
        yield departure
    finally:
        client.stop()
        client.close()
