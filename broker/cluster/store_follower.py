"""Follows what brokers change in the metadata store below some paths: settings, ACLs.

    (A) A notice is a sequential entry. A broker that changes something adds one in the same transaction, if other
        brokers share the store. Every broker watches the path, and reads what a new notice names.
    (B) Notices that this broker has known for EXPIRATION_MS are removed, by whichever broker comes first.
    (C) Everything is read in one session: at the start, and again after a lost session, in which changes may have been
        missed.
    (D) The broker that makes a change applies it before the change returns. It holds `applying` from before its write,
        whose event comes first, until the notice is noted, so each change is applied once.
    (E) If the store is unavailable, the next connection tries again.
    (F) A change below one path makes this broker look below all of them. It watches each path only once at a time: or
        else changes below two paths in turn would each double what the next one leads to.

Source: Kafka's `ZkNodeChangeNotificationListener`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import takewhile

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.metadata_store.interface import (
    Create,
    Delete,
    MetadataStore,
    MetadataStoreError,
    NoEntry,
    Operation,
    Result,
    SessionState,
    Watch,
    WatchEvent,
)
from odradek.broker.metadata_store.one_watch import OneWatch
from odradek.broker.metadata_store.read_back import retry_until_connected
from odradek.timer import Clock

EXPIRATION_MS = 15 * 60 * 1000
REMOVED_AT_ONCE = 100

Read = Callable[[], Awaitable[None]]
ApplyNotices = Callable[[Sequence[str]], Awaitable[None]]
"""Takes the paths of notices, oldest first. Reads and applies what they name."""


class StoreFollower:
    """`roots`: for each path with notices, what applies them, `at_once` of them. `read_everything` calls `watch` before
    it reads; `read_missing` reads what the store has not given so far. All of them may raise MetadataStoreError (E).
    """

    def __init__(
        self,
        store: MetadataStore,
        what: str,
        roots: Mapping[str, ApplyNotices],
        *,
        read_everything: Read,
        read_missing: Read | None = None,
        at_once: int = 1,
        clock: Clock,
        spawn: Spawn,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self.applying = asyncio.Lock()
        """See (D)."""
        self._store = store
        self._what = what
        self._roots = roots
        self._read_everything = read_everything
        self._read_missing = read_missing
        self._at_once = at_once
        self._spawn = spawn
        self._log = log
        self._notices = {root: _Notices(store, root, self.changed, clock) for root in roots}
        self.has_loaded = False
        self._read_in_session = 0
        """The session epoch in which everything was read."""
        store.add_session_listener(self._session_changed)

    async def load(self) -> None:
        """Reads everything, in one session (C). Raises StoreDamaged, and StoreUnavailable if the store is closed."""
        while self._read_in_session != self._store.session_epoch:
            await retry_until_connected(self._store, self._read_in_one_session)
        self.has_loaded = True

    async def watch(self) -> None:
        """Counts all notices as applied, because everything is read after this; then watches for more. Raises
        MetadataStoreError.
        """
        for notices in self._notices.values():
            await notices.skip()

    def notice(self, creation: Create) -> list[Operation]:
        """Returns what a change writes besides, last of all: its notice, if other brokers share the store (A)."""
        return [creation] if self._store.is_shared else []

    def wrote(self, results: Sequence[Result]) -> None:
        """Notes the notice of a change that this broker applies now (D). `results`: those of its operations."""
        root, _, name = str(results[-1]).rpartition("/")
        if root in self._notices:
            self._notices[root].applied(name)

    async def _read_in_one_session(self) -> None:
        session_epoch = self._store.session_epoch
        await self._read_everything()
        self._read_in_session = session_epoch

    def changed(self, _event: WatchEvent) -> None:
        """Reads what has changed: a watch."""
        self._spawn(self._follow(), f"changes of {self._what}")

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self.has_loaded:
            self._spawn(self._follow(), f"{self._what} after a lost connection")

    async def _follow(self) -> None:
        async with self.applying:
            try:
                if self._read_in_session != self._store.session_epoch:
                    await self._read_in_one_session()
                    return
                if self._read_missing is not None:
                    await self._read_missing()
                for root, notices in self._notices.items():
                    await self._apply_new(root, notices)
            except MetadataStoreError as error:
                self._log.warning(f"changes of {self._what} not read", reason=str(error))

    async def _apply_new(self, root: str, notices: _Notices) -> None:
        """Applies the changes that this broker has not applied yet (A), and removes old notices (B)."""
        names = await notices.new()
        for start in range(0, len(names), self._at_once):
            some = names[start : start + self._at_once]
            await self._roots[root]([f"{root}/{name}" for name in some])
            for name in some:
                notices.applied(name)
        await notices.remove_expired()


class _Notices:
    """The notices below `path`: which of them are new to this broker, and when they go."""

    def __init__(self, store: MetadataStore, path: str, changed: Watch, clock: Clock) -> None:
        self._path = path
        self._store = store
        self._watch = OneWatch(store, path, changed)  # (F)
        self._clock = clock
        self._applied: dict[str, int] = {}
        """Those that have been applied, and when this broker saw them first, oldest first."""

    async def skip(self) -> None:
        """Counts all as applied; then watches for more. Raises MetadataStoreError."""
        for name in await self._watch.read(self._store.children):
            self._applied.setdefault(name, self._clock.now_ms())

    async def new(self) -> list[str]:
        """Returns the names of those that have not been applied, oldest first, and watches for more. Forgets those that
        are gone. Raises MetadataStoreError.
        """
        names = await self._watch.read(self._store.children)
        present = set(names)
        self._applied = {name: seen_ms for name, seen_ms in self._applied.items() if name in present}
        return [name for name in names if name not in self._applied]

    def applied(self, name: str) -> None:
        """Notes that this broker has applied a notice."""
        self._applied[name] = self._clock.now_ms()

    async def remove_expired(self) -> None:
        """Removes old notices (B). Raises MetadataStoreError."""
        expired_ms = self._clock.now_ms() - EXPIRATION_MS
        expired = list(takewhile(lambda name: self._applied[name] <= expired_ms, self._applied))
        for start in range(0, len(expired), REMOVED_AT_ONCE):
            some = expired[start : start + REMOVED_AT_ONCE]
            for outcome in await self._store.pipeline([[Delete(f"{self._path}/{name}")] for name in some]):
                if isinstance(outcome, MetadataStoreError) and not isinstance(outcome, NoEntry):
                    raise outcome
