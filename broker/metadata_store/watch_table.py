"""The watches that are set in a metadata store, by path. Each is taken once, by the first matching change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from odradek.broker.metadata_store.interface import Change, WatchEvent

W = TypeVar("W")


class WatchTable(Generic[W]):
    """A watch is whatever the store calls at a change. `take` returns watches in the order in which they were set."""

    def __init__(self) -> None:
        self._of_entries: dict[str, list[W]] = {}
        self._of_children: dict[str, list[W]] = {}

    def watch_entry(self, path: str, watch: W) -> None:
        """Sets a watch for the creation, change or deletion of the entry."""
        self._of_entries.setdefault(path, []).append(watch)

    def watch_children(self, path: str, watch: W) -> None:
        """Sets a watch for a change of the set of children, or the deletion of the entry."""
        self._of_children.setdefault(path, []).append(watch)

    def take(self, events: Iterable[WatchEvent]) -> Iterator[tuple[W, WatchEvent]]:
        """Removes and returns the watches for a transaction's events, each with its event."""
        watched = [event for event in events if event.path in self._of_entries or event.path in self._of_children]
        for event in dict.fromkeys(watched):
            if event.change is not Change.CHILDREN:
                for watch in self._of_entries.pop(event.path, ()):
                    yield watch, event
            if event.change in (Change.CHILDREN, Change.DELETED):
                for watch in self._of_children.pop(event.path, ()):
                    yield watch, event

    def clear(self) -> None:
        """Removes all watches."""
        self._of_entries.clear()
        self._of_children.clear()
