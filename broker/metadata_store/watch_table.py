"""The watches of a session, or of an embedded store, by path. Each is taken once, by the first matching change.

A client of ZooKeeper sets its watches again on each new connection, and says then whether an entry was there or was
`MISSING`. Elsewhere a watch of an entry is `DATA` in both cases. One event takes all watches of its path and kind; the
deletion of an entry also takes those of its children.
"""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeVar

from odradek.broker.metadata_store.interface import Change, WatchEvent

W = TypeVar("W")


class Kind(Enum):
    """What a watch waits for."""

    DATA = "data"
    MISSING = "missing"
    CHILDREN = "children"


class WatchTable(Generic[W]):
    """A watch is whatever its owner calls at a change."""

    def __init__(self) -> None:
        self._data: dict[str, list[W]] = {}
        self._missing: dict[str, list[W]] = {}
        self._children: dict[str, list[W]] = {}
        self._by_kind = {Kind.DATA: self._data, Kind.MISSING: self._missing, Kind.CHILDREN: self._children}

    def add(self, kind: Kind, path: str, watch: W) -> None:
        """Sets a watch."""
        self._by_kind[kind].setdefault(path, []).append(watch)

    def take(self, event: WatchEvent) -> list[W]:
        """Removes and returns the watches for an event: those of a kind in the order in which they were set."""
        taken: list[W] = []
        if event.change is not Change.CHILDREN:
            taken += self._data.pop(event.path, ())
            taken += self._missing.pop(event.path, ())
        if event.change is Change.CHILDREN or event.change is Change.DELETED:
            taken += self._children.pop(event.path, ())
        return taken

    def paths(self, kind: Kind) -> list[str]:
        """The watched paths of a kind."""
        return list(self._by_kind[kind])

    def clear(self) -> None:
        """Removes all watches."""
        for watches in self._by_kind.values():
            watches.clear()
