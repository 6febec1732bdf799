"""The tree behind the embedded and the shared metadata store: entries in memory; operations are checked and applied. No
I/O, no waiting.

`stage` decides: it checks a list of operations against the tree and against the earlier operations of the list, and
returns a `Transaction` or raises the error of the first invalid operation. `stage_all` does so for a pipeline, where
each group sees the earlier groups that are valid. `apply` applies a transaction and cannot fail. In between, the caller
makes the transactions durable. A transaction holds the resulting state of each changed entry, so that applying it again
to an equal tree gives an equal tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.metadata_store.interface import (
    ANY_VERSION,
    LONGEST_CHANGE,
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
    Result,
    Set,
    WatchEvent,
    size_of,
    too_large,
)


class Transaction(NamedTuple):
    """The effect of one `multi`: its number, the resulting entry of each changed path (None: deleted), the results for
    the caller, and the events for watchers. If no entry has changed, the next transaction gets the same number.
    """

    number: int
    entries: dict[str, Entry | None]
    results: list[Result]
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
        self._entries: dict[str, Entry] = {"/": Entry(None, 0, 0, 0, 0, 0)}
        self._children: dict[str, dict[str, None]] = {"/": {}}
        """In the order of their creation, which is nearly sorted where names are numbered, and then quick to sort."""

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

    def child_count(self, path: str) -> int:
        """The number of the entry's children; 0 if there is no such entry."""
        return len(self._children.get(path, ()))

    def items(self) -> Iterator[tuple[str, Entry]]:
        """All paths and entries, each after its parent."""
        return iter(sorted(self._entries.items()))

    def ephemeral_paths(self, owner: int | None = None) -> list[str]:
        """The paths of a session's ephemeral entries; of all sessions if `owner` is None."""
        return sorted(
            path for path, entry in self._entries.items() if entry.ephemeral and (owner is None or entry.owner == owner)
        )

    def check(self) -> None:
        """Asserts what holds between two transactions: each entry has a parent, which knows it and is not ephemeral,
        and none is newer than the tree.
        """
        assert self._children.keys() == self._entries.keys(), "an entry has no children's names, or names have no entry"
        known = sum(map(len, self._children.values()))
        assert known == len(self._entries) - 1, f"{known} names for {len(self._entries) - 1} entries below the root"
        for path, entry in self._entries.items():
            assert entry.created <= entry.modified <= self.number, f"{path} is newer than transaction {self.number}"
            if path != "/":
                parent_path = parent_of(path)
                parent = self._entries.get(parent_path)
                assert parent is not None, f"{path} has no parent"
                assert not parent.ephemeral, f"{path} has an ephemeral parent"
                name = path[path.rindex("/") + 1 :]
                assert name in self._children[parent_path], f"{parent_path} does not know {name}"

    def stage(
        self, operations: Iterable[Operation], session_id: int, *, most_bytes: int = LONGEST_CHANGE
    ) -> Steps[Transaction]:
        """Checks `operations` of the session and computes the transaction. Raises the MetadataStoreError of the first
        invalid operation, or of the first one above `most_bytes`, with its `index`.

        No transaction may be applied between the steps.
        """
        return (yield from _Staging(self, session_id, Pace(), most_bytes).transaction(operations))

    def stage_all(
        self, groups: Sequence[Iterable[Operation]], session_id: int
    ) -> Steps[list[Transaction | MetadataStoreError]]:
        """Stages the groups of a pipeline. The transactions are to be applied in order, all of them or none."""
        staged: list[Transaction | MetadataStoreError] = []
        below, pace = self if len(groups) == 1 else _Layer(self), Pace()
        for operations in groups:
            staging = _Staging(below, session_id, pace)
            try:
                staged.append((yield from staging.transaction(operations)))
                if isinstance(below, _Layer):
                    below.add(staging)
            except MetadataStoreError as error:
                staged.append(error)
        return staged

    def apply(self, number: int, entries: Mapping[str, Entry | None]) -> None:
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
            siblings[path[path.rindex("/") + 1 :]] = None
            self._children[path] = {}
        self._entries[path] = entry

    def _remove(self, path: str) -> None:
        if self._entries.pop(path, None) is not None:
            del self._children[path]
            self._children[parent_of(path)].pop(path[path.rindex("/") + 1 :], None)


class _Entries(Protocol):
    """What a transaction is staged over."""

    @property
    def number(self) -> int: ...
    def get(self, path: str) -> Entry | None: ...
    def child_count(self, path: str) -> int: ...


class _Staging:
    """A transaction under construction: the changed entries, layered over the entries below."""

    def __init__(self, below: _Entries, session_id: int, pace: Pace, most_bytes: int = LONGEST_CHANGE) -> None:
        self.entries: dict[str, Entry | None] = {}
        self.results: list[Result] = []
        self.events: list[WatchEvent] = []
        self.child_counts: dict[str, int] = {}
        self._below = below
        self._number = below.number + 1
        self._session_id = session_id
        self._pace = pace
        self._most_bytes = most_bytes

    def transaction(self, operations: Iterable[Operation]) -> Steps[Transaction]:
        left = self._most_bytes
        for index, operation in enumerate(operations):
            try:
                left -= size_of(operation)
                if left < 0:
                    raise too_large(operation, self._most_bytes - left)
                self.stage(operation)
            except MetadataStoreError as error:
                error.index = index
                raise
            if self._pace.step_ends():
                yield
        return Transaction(self._number, self.entries, self.results, self.events)

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
        return self.entries[path] if path in self.entries else self._below.get(path)

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
            path = f"{path}{self._creations(parent_path, parent):010d}"
        if self._current(path) is not None:
            raise EntryExists(path, "already exists")
        self._touch_parent(parent_path, parent, 1)
        owner = self._session_id if operation.ephemeral else 0
        self._put_last(path, Entry(operation.data, 0, 0, owner, self._number, self._number))
        self.results.append(path)
        self.events.append(WatchEvent(Change.CREATED, path))

    def _set(self, operation: Set) -> None:
        entry = self._expect(operation)
        version = entry.version + 1
        self.entries[operation.path] = Entry(
            operation.data, version, entry.children_version, entry.owner, entry.created, self._number
        )
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
        return self._below.child_count(path) + self.child_counts.get(path, 0)

    def _creations(self, parent_path: str, parent: Entry) -> int:
        """How many children were ever created: the children version counts creations and deletions."""
        return (parent.children_version + self._children_left(parent_path)) // 2

    def _touch_parent(self, parent_path: str, parent: Entry, count: int) -> None:
        data, version, children_version, owner, created, modified = parent
        self.entries[parent_path] = Entry(data, version, children_version + 1, owner, created, modified)
        self.child_counts[parent_path] = self.child_counts.get(parent_path, 0) + count
        self.events.append(WatchEvent(Change.CHILDREN, parent_path))


class _Layer:
    """The staged groups of a pipeline so far, over the tree."""

    def __init__(self, tree: MetadataTree) -> None:
        self.number = tree.number
        self._tree = tree
        self._entries: dict[str, Entry | None] = {}
        self._child_counts: dict[str, int] = {}

    def get(self, path: str) -> Entry | None:
        return self._entries[path] if path in self._entries else self._tree.get(path)

    def child_count(self, path: str) -> int:
        return self._tree.child_count(path) + self._child_counts.get(path, 0)

    def add(self, staging: _Staging) -> None:
        if staging.entries:
            self.number += 1
        self._entries.update(staging.entries)
        for path, count in staging.child_counts.items():
            self._child_counts[path] = self._child_counts.get(path, 0) + count
