"""How much memory the frames may take that a proxy must have as a whole before they go on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

ROOM_BYTES = 64 * 1024 * 1024


class Room:
    """Frames get room in the order in which they ask for it. One that is larger than all of it waits for all of it."""

    def __init__(self, size: int = ROOM_BYTES) -> None:
        self._size = size
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_short(self) -> bool:
        """Whether frames wait for room."""
        return bool(self._waiting)

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Waits until there is room for a frame of `size` bytes, and takes it."""
        if self._waiting or not self._fits(size):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._leave(size)
                else:
                    self._waiting.remove((size, turn))
                raise
        else:
            self._taken += size
        try:
            yield
        finally:
            self._leave(size)

    def _fits(self, size: int) -> bool:
        return self._taken == 0 or self._taken + size <= self._size

    def _leave(self, size: int) -> None:
        self._taken -= size
        while self._waiting and self._fits(self._waiting[0][0]):
            wanted, turn = self._waiting.popleft()
            self._taken += wanted
            if not turn.done():
                turn.set_result(None)
            else:
                self._taken -= wanted
