"""What waits to be sent to one other broker: questions about transactions, or transaction markers.

Items that wait together go into one request, and one request is in flight at a time. The response names an item only by
its key (a transactional id or a producer id), so a request has one item of a key; later ones wait. Several items
together have at most PARTITIONS_PER_REQUEST partitions; one item may have more.

Source: Kafka's `InterBrokerSendThread`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from odradek.broker.background.tasks import Spawn

PARTITIONS_PER_REQUEST = 1000

K = TypeVar("K", bound=Hashable)
Item = TypeVar("Item")


class PeerQueue(Generic[K, Item]):
    """`measure(item)` returns an item's key and its number of partitions; `send(items)` sends one request with these
    items and returns when they are answered. It must not raise.
    """

    def __init__(
        self,
        name: str,
        spawn: Spawn,
        measure: Callable[[Item], tuple[K, int]],
        send: Callable[[dict[K, Item]], Awaitable[None]],
    ) -> None:
        self._name = name
        self._spawn = spawn
        self._measure = measure
        self._send = send
        self._waiting: deque[Item] = deque()
        self._is_sending = False

    def add(self, item: Item) -> None:
        """Sends the item with the next request."""
        self._waiting.append(item)
        if not self._is_sending:
            self._is_sending = True
            self._spawn(self._send_all(), self._name)

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._send(self._take())
        finally:
            self._is_sending = False

    def _take(self) -> dict[K, Item]:
        """Takes the items of the next request: the first ones, without a second one of a key."""
        taken: dict[K, Item] = {}
        left: deque[Item] = deque()
        partitions = 0
        for item in self._waiting:
            key, size = self._measure(item)
            if key in taken or (taken and partitions + size > PARTITIONS_PER_REQUEST):
                left.append(item)
            else:
                taken[key] = item
                partitions += size
        self._waiting = left
        return taken
