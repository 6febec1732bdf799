"""At most one watch at a time on a path of the metadata store: a watch is called once, and ends with its session.

Without it, a caller that reads a path again before the path changes would be called once for each reading.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from odradek.broker.metadata_store.interface import MetadataStore, Watch, WatchEvent

T = TypeVar("T")


class OneWatch:
    """`fired` is called with each event of a path that `read` has read."""

    def __init__(self, store: MetadataStore, path: str, fired: Callable[[WatchEvent], object]) -> None:
        self._store = store
        self._path = path
        self._fired = fired
        self._set_in = 0
        """The session epoch in which the watch was set; 0: it is not set."""

    async def read(self, call: Callable[[str, Watch | None], Awaitable[T]]) -> T:
        """Reads the path by `exists` or `children` of the store, and sets the watch unless it is set. Raises what
        `call` raises; the watch is not set then.
        """
        session_epoch = self._store.session_epoch
        watch = None if self._set_in == session_epoch else self._changed
        self._set_in = session_epoch  # before the answer, which may come after the event
        try:
            return await call(self._path, watch)
        except BaseException:
            self._set_in = 0
            raise

    def _changed(self, event: WatchEvent) -> None:
        self._set_in = 0
        self._fired(event)
