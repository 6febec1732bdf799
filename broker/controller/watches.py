"""The watches of one term on entries of the metadata store. Each path has at most one, as a watch is called once.

entry = await store.exists(path, watches.of(path))      reads, and watches the path until its next change
watches.has(path)                                       False: the path has changed since, or was never read
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.metadata_store.interface import Watch, WatchEvent


class Watches:
    """`on_change` is called after each change of a watched path."""

    def __init__(self, on_change: Callable[[], object]) -> None:
        self._on_change = on_change
        self._watched: set[str] = set()

    def has(self, path: str) -> bool:
        """Whether the path is watched."""
        return path in self._watched

    def of(self, path: str) -> Watch | None:
        """Returns the watch of a path, or None if it is watched already."""
        if path in self._watched:
            return None
        self._watched.add(path)

        def fired(_event: WatchEvent) -> None:
            self._watched.discard(path)
            self._on_change()

        return fired
