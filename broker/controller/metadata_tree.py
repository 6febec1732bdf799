"""The tree behind the embedded metadata store: entries in memory; operations are checked and applied. No I/O, no
waiting.

`stage` decides: it checks a list of operations against the tree and against the earlier operations of the list, and
returns a `Transaction` or raises the error of the first invalid operation. `apply` applies a transaction and cannot
fail. In between, the caller makes the transaction durable. A transaction holds the resulting state of each changed
entry, so that applying it again to an equal tree gives an equal tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.controller.metadata_store import (
    ANY_VERSION,
    BadArguments,
    BadVersion,
    Change,
    Check,
    Create,
    Delete,
    Entry,
    EntryExists,
    HasChildren,
    MetadataStoreError,
    NoEntry,
    Operation,
    Set,
    WatchEvent,
)


class Transaction(NamedTuple):
    """The effect of one `multi`: its number, the resulting entry of each changed path (None: deleted), the results for
    the caller, and the events for watchers.
    """

    number: int
    entries: dict[str, Entry | None]
    results: list[str | int | None]
    events: list[WatchEvent]


def parent_of(path: str) -> str:
    """The parent path; `/` for `/a`."""
    return path[: path.rindex("/")] or "/"


def check_path(path: str) -> None:
    """Raises BadArguments unless `path` is `/` or `/name/name...` without empty names."""
    if path != "/" and (not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path):
        raise BadArguments(path, "not a valid path")


class MetadataTree:
    """Entries by path. `number` is the number of the last applied transaction."""

    def __init__(self) -> None:
        self.number = 0
        self._entries: dict[str, Entry] = {"/": Entry(None, 0, 0, False, 0)}
        self._children: dict[str, set[str]] = {"/": set()}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, path: str) -> Entry | None:
        """The entry at `path`, or None."""
        return self._entries.get(path)

    def children(self, path: str) -> list[str]:
        """The names of the entry's children, sorted. Raises NoEntry."""
        if path not in self._entries:
            raise NoEntry(path, "no such entry")
        return sorted(self._children[path])

    def items(self) -> Iterator[tuple[str, Entry]]:
        """All paths and entries, each after its parent."""
        return iter(sorted(self._entries.items()))

    def ephemeral_paths(self) -> list[str]:
        """The paths of all ephemeral entries."""
        return sorted(path for path, entry in self._entries.items() if entry.ephemeral)

    def stage(self, operations: Iterable[Operation]) -> Steps[Transaction]:
        """Checks `operations` and computes the transaction. Raises the MetadataStoreError of the first invalid
        operation, with its `index`.

        No transaction may be applied between the steps.
        """
        staging = _Staging(self)
        pace = Pace()
        for index, operation in enumerate(operations):
            try:
                staging.stage(operation)
            except MetadataStoreError as error:
                error.index = index
                raise
            if pace.step_ends():
                yield
        return Transaction(self.number + 1, staging.entries, staging.results, staging.events)

    def apply(self, number: int, entries: dict[str, Entry | None]) -> None:
        """Puts a transaction's entries in place. Raises NoEntry for a path without a parent, which only a damaged file
        contains.
        """
        for path, entry in entries.items():
            if entry is None:
                self._remove(path)
            else:
                self._put(path, entry)
        self.number = number

    def _put(self, path: str, entry: Entry) -> None:
        if path not in self._entries:
            siblings = self._children.get(parent_of(path))
            if siblings is None:
                raise NoEntry(path, "its parent does not exist")
            siblings.add(path[path.rindex("/") + 1 :])
            self._children[path] = set()
        self._entries[path] = entry

    def _remove(self, path: str) -> None:
        if self._entries.pop(path, None) is not None:
            del self._children[path]
            self._children[parent_of(path)].discard(path[path.rindex("/") + 1 :])


class _Staging:
    """A transaction under construction: the changed entries, layered over the tree."""

    def __init__(self, tree: MetadataTree) -> None:
        self.entries: dict[str, Entry | None] = {}
        self.results: list[str | int | None] = []
        self.events: list[WatchEvent] = []
        self._tree = tree
        self._child_counts: dict[str, int] = {}

    def stage(self, operation: Operation) -> None:
        check_path(operation.path)
        if isinstance(operation, Create):
            self._create(operation)
        elif isinstance(operation, Set):
            self._set(operation)
        elif isinstance(operation, Delete):
            self._delete(operation)
        else:
            self._expect(operation)
            self.results.append(None)

    def _current(self, path: str) -> Entry | None:
        return self.entries[path] if path in self.entries else self._tree.get(path)

    def _expect(self, operation: Set | Delete | Check) -> Entry:
        entry = self._current(operation.path)
        if entry is None:
            raise NoEntry(operation.path, "no such entry")
        if operation.version not in (ANY_VERSION, entry.version):
            raise BadVersion(operation.path, f"version is {entry.version}, not {operation.version}")
        return entry

    def _create(self, operation: Create) -> None:
        path = operation.path
        if path == "/":
            raise EntryExists(path, "the root always exists")
        parent_path = parent_of(path)
        parent = self._current(parent_path)
        if parent is None:
            raise NoEntry(path, "its parent does not exist")
        if parent.ephemeral:
            raise BadArguments(path, "an ephemeral entry cannot have children")
        if operation.sequential:
            path = f"{path}{parent.children_version:010d}"
        if self._current(path) is not None:
            raise EntryExists(path, "already exists")
        self._touch_parent(parent_path, parent, 1)
        self._put_last(path, Entry(operation.data, 0, 0, operation.ephemeral, self._tree.number + 1))
        self.results.append(path)
        self.events.append(WatchEvent(Change.CREATED, path))

    def _set(self, operation: Set) -> None:
        entry = self._expect(operation)
        version = entry.version + 1
        self.entries[operation.path] = entry._replace(data=operation.data, version=version)
        self.results.append(version)
        self.events.append(WatchEvent(Change.CHANGED, operation.path))

    def _delete(self, operation: Delete) -> None:
        path = operation.path
        self._expect(operation)
        if path == "/":
            raise BadArguments(path, "the root cannot be deleted")
        if self._children_left(path):
            raise HasChildren(path, "has children")
        parent_path = parent_of(path)
        parent = self._current(parent_path)
        assert parent is not None, "an entry's parent exists"
        self._touch_parent(parent_path, parent, -1)
        self._put_last(path, None)
        self.results.append(None)
        self.events.append(WatchEvent(Change.DELETED, path))

    def _put_last(self, path: str, entry: Entry | None) -> None:
        """Keeps `entries` in an applicable order: created after the parent, deleted after the children."""
        self.entries.pop(path, None)
        self.entries[path] = entry

    def _children_left(self, path: str) -> int:
        existing = len(self._tree.children(path)) if self._tree.get(path) is not None else 0
        return existing + self._child_counts.get(path, 0)

    def _touch_parent(self, parent_path: str, parent: Entry, count: int) -> None:
        self.entries[parent_path] = parent._replace(children_version=parent.children_version + 1)
        self._child_counts[parent_path] = self._child_counts.get(parent_path, 0) + count
        self.events.append(WatchEvent(Change.CHILDREN, parent_path))
