"""The metadata store for topics, settings and ids: the asynchronous interface, its operations and its errors.

The model is ZooKeeper's, so that ZooKeeper can implement it: a tree of entries under slash-separated paths, each with
data (bytes or None), a version that grows with every `set`, and a children version that grows with every child created
or deleted.

    A   Changes are compare-and-set: `Set`, `Delete` and `Check` name the expected version, or `ANY_VERSION`.
    B   `multi` applies all of its operations or none. It fails with the error of the first invalid operation; the
        error's `index` is the position of the operation.
    C   A call that has returned is durable. A call that raised `StoreUnavailable` may or may not have been applied.
        `ConnectionLost`, one of its kinds, says that the response is missing: the store connects again by itself, and
        `read_back.py` finds out what became of the call.
    D   An ephemeral entry lives as long as the session that created it, its `owner`, and has no children.
    E   A sequential entry's name ends with the number of children ever created below its parent before, in ten digits.
    F   A watch is called once, after the first matching change: of the entry (created, changed, deleted) if it was set
        by `get` or `exists`, of the set of children if it was set by `children`. A session's watches are called in
        the order of the changes, and before the response of any later call, also of the call that made the change.
    G   `session_epoch` counts the sessions. When it changes, earlier ephemeral entries are gone and all watches are
        lost: code that depends on them registers with `add_session_listener` and starts over. Watches survive a lost
        connection: the changes that were missed are reported after it.
    H   The calls of a session are applied in the order in which they were made, also those that do not wait for each
        other.
    I   A `multi` of more than LONGEST_CHANGE, as `size_of` counts its operations, fails with TooLarge. ZooKeeper ends
        the connection of a client that sends much more, so the limit is the same for all stores.

Paths and values are Apache Kafka's own (`znodes.py`). Source: ZooKeeper's programmer's guide; Kafka's `KafkaZkClient`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import ClassVar, NamedTuple

import structlog

from odradek.broker.background.stepwise import Pace
from odradek.broker.metadata_store.session_metrics import SessionMetrics

ANY_VERSION = -1
LONGEST_CHANGE = 900_000
"""The most bytes of a `multi` (I). ZooKeeper takes 1,048,575 (jute.maxbuffer), with the path of the chroot before each
path."""
LONGEST_ENTRY = 890_000
"""The most data of an entry. The rest of a change is for paths and for what is written with the entry."""
OPERATION_BYTES = 64
"""An operation takes at most this many bytes besides its path and data."""

log = structlog.get_logger("controller.store")


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


def size_of(operation: Operation) -> int:
    """How many bytes an operation counts as (I)."""
    data = operation.data if isinstance(operation, (Create, Set)) else None
    return OPERATION_BYTES + len(operation.path) + (len(data) if data else 0)


class Entry(NamedTuple):
    """One entry as read. `owner` is the id of the session that an ephemeral entry belongs to, 0 for all others.
    `created` and `modified` are the numbers of the transactions that created it and last replaced its data, which grow
    over the store's whole lifetime (czxid, mzxid).
    """

    data: bytes | None
    version: int
    children_version: int
    owner: int
    created: int
    modified: int

    @property
    def ephemeral(self) -> bool:
        """Whether the entry ends with a session (D)."""
        return self.owner != 0


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
    """The argument of a session listener: a session has started or is connected again, the connection is lost, or the
    session and its ephemeral entries are gone.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


Watch = Callable[[WatchEvent], None]
FaultOf = Callable[[bytes | None], str]
"""Returns what is wrong with data, or an empty string. Raises StoreDamaged."""
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


class TooLarge(MetadataStoreError):
    """The change is larger than the store takes at once (I). Nothing of it was applied; `path` is the entry that is too
    much.
    """


def too_large(operation: Operation, size: int) -> TooLarge:
    """The error of a `multi` that has `size` bytes up to and with this operation."""
    return TooLarge(
        operation.path,
        f"a change of {size} bytes or more, {size_of(operation)} of them here, is above the limit of {LONGEST_CHANGE}",
    )


class StoreUnavailable(MetadataStoreError):
    """The store cannot accept changes now: the disk fails, the session is gone, or the store is closed."""


class ConnectionLost(StoreUnavailable):
    """The connection broke before the response arrived, or there is none at the moment. The store connects again."""


def has_lost_connection(error: BaseException | None) -> bool:
    """Whether an operation failed, or what it caused, only because the connection has ended, and the session maybe:
    whatever waits for the next one is no error of the store.
    """
    return isinstance(error, ConnectionLost) or (error is not None and isinstance(error.__cause__, ConnectionLost))


class StoreDamaged(MetadataStoreError):
    """The content on disk is damaged; the message names file, line and byte."""


Result = str | int | None
"""The result of one operation: the path for Create, the new version for Set, None for Delete and Check."""

Outcome = list[Result] | MetadataStoreError
"""What became of one group of a pipeline."""


async def listed(groups: Iterable[Iterable[Operation]], *first: Operation, cost: int = 1) -> list[list[Operation]]:
    """Returns each group's operations, after `first`. They may be encoded only when they are iterated over, so this
    takes steps, between which other tasks run; `cost` is that of one operation, in items of a step.
    """
    found: list[list[Operation]] = []
    pace = Pace()
    for group in groups:
        operations = list(first)
        for operation in group:
            operations.append(operation)
            if pace.step_ends(cost):
                await asyncio.sleep(0)
        found.append(operations)
    return found


class MetadataStore(ABC):
    """A session with a store. Before `open` and after `close`, all methods raise `StoreUnavailable`."""

    is_shared: ClassVar[bool]
    """Whether other brokers may read the entries and change them. If not, there can be no other broker."""
    is_outside: ClassVar[bool] = False
    """Whether servers of their own keep the entries, which are there before the brokers of a cluster and after them."""

    def __init__(self) -> None:
        self.session_epoch = 0
        """The number of sessions so far: 0 before `open`, then 1, incremented with every session (G)."""
        self.session_id = 0
        """The owner of this session's ephemeral entries, which no other session ever has; 0 while there is none."""
        self.granted_timeout_ms = 0
        """How long a session lives without a connection, as the store has granted it; 0 if it has not said so."""
        self.session_metrics: SessionMetrics | None = None
        """What the session counts; None if it is within this process."""
        self._session_listeners: list[SessionListener] = []
        self._pinned: tuple[str, FaultOf] | None = None
        """See `pin`."""

    def add_session_listener(self, listener: SessionListener) -> None:
        """Registers `listener`, which is called at every change of the session's state."""
        self._session_listeners.append(listener)

    def pin(self, path: str, fault_of: FaultOf) -> None:
        """From now on, a new session begins only at a server with the right entry at `path`: `fault_of` returns an
        empty string for its data. Any other server has lost the data of the cluster, or belongs to another one. Until
        the right server is found, the last session stays suspended. Has no effect unless the store `is_outside`.
        """
        self._pinned = path, fault_of

    def _notify(self, state: SessionState) -> None:
        """Calls the listeners; an error of one is logged, and the others are called all the same."""
        for listener in list(self._session_listeners):
            try:
                listener(state)
            except Exception:
                log.exception("session listener failed", state=state.value)

    @abstractmethod
    async def open(self) -> None:
        """Starts a session. Raises StoreDamaged or StoreUnavailable."""

    @abstractmethod
    async def close(self) -> None:
        """Ends the session and deletes its ephemeral entries. Its watches are not called any more."""

    async def abandon(self) -> None:
        """As `close`, of a store whose data are to be removed: what it keeps need not be in order."""
        await self.close()

    @abstractmethod
    async def connected(self) -> None:
        """Returns when there is a session and a connection. Raises StoreUnavailable if the store is closed."""

    @abstractmethod
    async def get(self, path: str, watch: Watch | None = None) -> Entry:
        """Returns the entry at `path`. Raises NoEntry, without setting the watch."""

    @abstractmethod
    async def exists(self, path: str, watch: Watch | None = None) -> Entry | None:
        """Returns the entry at `path` or None; sets the watch in both cases."""

    @abstractmethod
    async def entries(self, paths: Sequence[str]) -> list[Entry | None]:
        """Returns the entries at many paths, None for those that do not exist, with one round trip for all."""

    @abstractmethod
    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Returns the names (not paths) of the children, sorted. Raises NoEntry."""

    @abstractmethod
    async def pipeline(self, groups: Sequence[Iterable[Operation]]) -> list[Outcome]:
        """Applies each group as `multi` does, one after the other, without waiting for a response in between.

        Each group fails alone. Raises no MetadataStoreError: every group that was not (known to be) applied has one as
        its outcome.
        """

    async def multi(self, operations: Iterable[Operation]) -> list[Result]:
        """Applies the operations atomically (B); a long list is checked in steps, between which other tasks run.
        Returns the results in order.
        """
        (outcome,) = await self.pipeline([operations])
        if isinstance(outcome, MetadataStoreError):
            raise outcome
        return outcome

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Creates one entry and returns its path. Raises EntryExists, NoEntry, BadArguments."""
        (created,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, str)
        return created

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> int:
        """Replaces the data and returns the new version. Raises NoEntry, BadVersion."""
        (new_version,) = await self.multi([Set(path, data, version)])
        assert isinstance(new_version, int)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes one entry. Raises NoEntry, BadVersion, HasChildren."""
        await self.multi([Delete(path, version)])
