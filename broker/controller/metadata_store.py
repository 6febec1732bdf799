"""Where topics, settings and ids are kept: the asynchronous interface, its operations and its errors.

The model is ZooKeeper's, so that ZooKeeper can stand behind it: a tree of entries under slash-separated paths, each
with data (bytes or None), a version that grows with every `set`, and a children version that grows with every child
created or deleted.

    A   Changes are compare-and-set: `Set`, `Delete` and `Check` name the version they expect, or `ANY_VERSION`.
    B   `multi` applies all of its operations or none. It fails with the first operation's error, whose `index` says
        which.
    C   A call that returned is durable. A call that raised `StoreUnavailable` may or may not have been applied.
    D   An ephemeral entry lives as long as the session that made it and has no children.
    E   A sequential entry gets the parent's children version, ten digits, behind its name.
    F   A watch is called once, after the first change that concerns it: of the entry (created, changed, deleted) when
        it was left by `get` or `exists`, of the set of children when it was left by `children`.
    G   `session_epoch` counts the sessions. When it has changed, ephemeral entries of before are gone and all watches
        are lost: whoever depends on them registers with `add_session_listener` and starts over.

Paths and values are Apache Kafka's own (`znodes.py`). Source: ZooKeeper's programmer's guide; Kafka's
`KafkaZkClient`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class Create(NamedTuple):
    """Makes an entry; its parent must exist. `sequential` appends the parent's counter (E), `ephemeral` binds it to
    the session (D).
    """

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """Replaces an entry's data if its version is the one expected."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Removes an entry without children if its version is the one expected."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Changes nothing; fails the `multi` it stands in unless the entry exists in the version expected."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check


class Entry(NamedTuple):
    """One entry as read. `created` is the number of the transaction that made it: it grows over the store's whole
    life (czxid).
    """

    data: bytes | None
    version: int
    children_version: int
    ephemeral: bool
    created: int


class Change(Enum):
    """What happened to a watched path."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class WatchEvent(NamedTuple):
    """What a watch is called with."""

    change: Change
    path: str


class SessionState(Enum):
    """What a session listener is called with: a session began, answers are missing, the session and its ephemerals
    are gone.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


Watch = Callable[[WatchEvent], None]
SessionListener = Callable[[SessionState], None]


class MetadataStoreError(Exception):
    """Anything a store refuses. `path` is the entry concerned; `index` the operation's place in its `multi` (0
    outside of one).
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason
        self.index = 0


class NoEntry(MetadataStoreError):
    """The entry, or the parent of one to be created, does not exist."""


class EntryExists(MetadataStoreError):
    """An entry to be created exists already."""


class BadVersion(MetadataStoreError):
    """The entry's version is not the one expected."""


class HasChildren(MetadataStoreError):
    """An entry to be deleted has children."""


class BadArguments(MetadataStoreError):
    """A path that is none, or a child under an ephemeral entry."""


class StoreUnavailable(MetadataStoreError):
    """The store cannot take changes now: its disk refuses them, its session is gone, or it is closed."""


class StoreDamaged(MetadataStoreError):
    """What is on disk is not what was written; the message names file, line and byte."""


class MetadataStore(Protocol):
    """A session with a store. All methods raise `StoreUnavailable` before `open` and after `close`."""

    @property
    def session_epoch(self) -> int:
        """The number of sessions so far: 0 before `open`, then 1, and one more with every session (G)."""

    def add_session_listener(self, listener: SessionListener) -> None:
        """Calls `listener` at every change of the session's state from now on."""

    async def open(self) -> None:
        """Begins a session. Raises StoreDamaged or StoreUnavailable."""

    async def close(self) -> None:
        """Ends the session: its ephemeral entries go."""

    async def get(self, path: str, watch: Watch | None = None) -> Entry:
        """The entry at `path`. Raises NoEntry (and leaves no watch then)."""

    async def exists(self, path: str, watch: Watch | None = None) -> Entry | None:
        """The entry at `path` or None; a watch is left either way."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names (not paths) of the children, sorted. Raises NoEntry."""

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Makes one entry and returns its path. Raises EntryExists, NoEntry, BadArguments."""

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> int:
        """Replaces data and returns the new version. Raises NoEntry, BadVersion."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Removes one entry. Raises NoEntry, BadVersion, HasChildren."""

    async def multi(self, operations: Iterable[Operation]) -> list[str | int | None]:
        """All or nothing (B); others have their turn while many are checked. Results in order: the path for Create, the
        new version for Set, None for Delete and Check.
        """
