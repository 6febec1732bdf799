"""The watches of a session with ZooKeeper, which are set again on each new connection.

ZooKeeper knows three kinds: of an entry that exists (data), of one that does not (missing), and of an entry's children.
It sends one event for a path and kind, however many watches are set; an event calls all of them. One deletion is one
event for the watches of the entry and of its children.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from odradek.broker.metadata_store.interface import Change, Watch, WatchEvent


class Kind(Enum):
    """What a watch waits for."""

    DATA = "data"
    MISSING = "missing"
    CHILDREN = "children"


_CALLED = {
    Change.CREATED: (Kind.DATA, Kind.MISSING),
    Change.CHANGED: (Kind.DATA, Kind.MISSING),
    Change.DELETED: (Kind.DATA, Kind.MISSING, Kind.CHILDREN),
    Change.CHILDREN: (Kind.CHILDREN,),
}


class Watches:
    """Each watch is taken once."""

    def __init__(self) -> None:
        self._watches: dict[Kind, dict[str, list[Watch]]] = {kind: {} for kind in Kind}

    def add(self, kind: Kind, path: str, watch: Watch) -> None:
        """The server knows of the watch: the reply to the read that sets it has come."""
        self._watches[kind].setdefault(path, []).append(watch)

    def take(self, event: WatchEvent) -> Iterator[Watch]:
        """Removes and returns the watches for an event, in the order in which they were set."""
        for kind in _CALLED[event.change]:
            yield from self._watches[kind].pop(event.path, ())

    def paths(self, kind: Kind) -> list[str]:
        """The watched paths of a kind."""
        return list(self._watches[kind])

    def clear(self) -> None:
        """Removes all watches: their session has ended."""
        for watches in self._watches.values():
            watches.clear()
