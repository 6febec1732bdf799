"""The metadata store for topics, settings and ids: the asynchronous interface, its operations and its errors.

The model is ZooKeeper's, so that ZooKeeper can implement it: a tree of entries under slash-separated paths, each with
data (bytes or None), a version that grows with every `set`, and a children version that grows with every child created
or deleted.

    A   Changes are compare-and-set: `Set`, `Delete` and `Check` name the expected version, or `ANY_VERSION`.
    B   `multi` applies all of its operations or none. It fails with the error of the first invalid operation; the
        error's `index` is the position of the operation.
    C   A call that has returned is durable. A call that raised `StoreUnavailable` may or may not have been applied.
    D   An ephemeral entry lives as long as the session that created it and has no children.
    E   A sequential entry's name ends with the parent's children version, in ten digits.
    F   A watch is called once, after the first matching change: of the entry (created, changed, deleted) if it was set
        by `get` or `exists`, of the set of children if it was set by `children`.
    G   `session_epoch` counts the sessions. When it changes, earlier ephemeral entries are gone and all watches are
        lost: code that depends on them registers with `add_session_listener` and starts over.

Paths and values are Apache Kafka's own (`znodes.py`). Source: ZooKeeper's programmer's guide; Kafka's `KafkaZkClient`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class Create(NamedTuple):
    """Creates an entry; its parent must exist. `sequential` appends the parent's counter (E), `ephemeral` binds the
    entry to the session (D).
    """

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """Replaces an entry's data if its version matches."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Deletes an entry without children if its version matches."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Changes nothing; fails its `multi` unless the entry exists with the expected version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check


class Entry(NamedTuple):
    """One entry as read. `created` is the number of the transaction that created it, which grows over the store's whole
    lifetime (czxid).
    """

    data: bytes | None
    version: int
    children_version: int
    ephemeral: bool
    created: int


class Change(Enum):
    """The kind of change to a watched path."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class WatchEvent(NamedTuple):
    """The argument of a watch."""

    change: Change
    path: str


class SessionState(Enum):
    """The argument of a session listener: a session has started, responses are missing, or the session and its
    ephemeral entries are gone.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


Watch = Callable[[WatchEvent], None]
SessionListener = Callable[[SessionState], None]


class MetadataStoreError(Exception):
    """The base of all errors of a store. `path` is the entry concerned; `index` is the operation's position in its
    `multi` (0 outside a `multi`).
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason
        self.index = 0


class NoEntry(MetadataStoreError):
    """The entry, or the parent of an entry to be created, does not exist."""


class EntryExists(MetadataStoreError):
    """The entry to be created already exists."""


class BadVersion(MetadataStoreError):
    """The entry's version is not the expected one."""


class HasChildren(MetadataStoreError):
    """The entry to be deleted has children."""


class BadArguments(MetadataStoreError):
    """The path is not valid, or the parent is an ephemeral entry."""


class StoreUnavailable(MetadataStoreError):
    """The store cannot accept changes now: the disk fails, the session is gone, or the store is closed."""


class StoreDamaged(MetadataStoreError):
    """The content on disk is damaged; the message names file, line and byte."""


class MetadataStore(Protocol):
    """A session with a store. Before `open` and after `close`, all methods raise `StoreUnavailable`."""

    @property
    def session_epoch(self) -> int:
        """The number of sessions so far: 0 before `open`, then 1, incremented with every session (G)."""

    def add_session_listener(self, listener: SessionListener) -> None:
        """Registers `listener`, which is called at every change of the session's state."""

    async def open(self) -> None:
        """Starts a session. Raises StoreDamaged or StoreUnavailable."""

    async def close(self) -> None:
        """Ends the session and deletes its ephemeral entries."""

    async def get(self, path: str, watch: Watch | None = None) -> Entry:
        """Returns the entry at `path`. Raises NoEntry, without setting the watch."""

    async def exists(self, path: str, watch: Watch | None = None) -> Entry | None:
        """Returns the entry at `path` or None; sets the watch in both cases."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Returns the names (not paths) of the children, sorted. Raises NoEntry."""

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Creates one entry and returns its path. Raises EntryExists, NoEntry, BadArguments."""

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> int:
        """Replaces the data and returns the new version. Raises NoEntry, BadVersion."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes one entry. Raises NoEntry, BadVersion, HasChildren."""

    async def multi(self, operations: Iterable[Operation]) -> list[str | int | None]:
        """Applies the operations atomically (B); a long list is checked in steps, between which other tasks run.
        Returns the results in order: the path for Create, the new version for Set, None for Delete and Check.
        """
