"""An ensemble of ZooKeeper's servers in memory: a tree of entries, the sessions that change it, and what watches it. It
knows no messages: `shared_store.py` serves it over pipes within the process, the tests' model of ZooKeeper over the
wire.

    (A) Changes are made one after the other, each as a whole. `apply` shows a change to the watchers, event by event;
        the client that asked for it gets its response later.
    (B) Time runs for a session from when its client was last heard. When it has run out, at the next tick if there are
        ticks, the session ends, unless the client was heard meanwhile.
    (C) At the end of a session its ephemeral entries are deleted. If its client has not asked for the end, the
        connection is broken then.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextvars import Context
from typing import Generic, Protocol, TypeVar

import structlog

from odradek.broker.background.stepwise import Steps
from odradek.broker.metadata_store.interface import (
    LONGEST_CHANGE,
    Delete,
    Operation,
    StoreUnavailable,
    WatchEvent,
)
from odradek.broker.metadata_store.tree import MetadataTree, Transaction

log = structlog.get_logger("controller.store")


class Watcher(Protocol):
    """What keeps watches: a session, or a connection of one."""

    def see(self, event: WatchEvent) -> None:
        """Takes the watches for an event, and sends it."""


class Session(ABC):
    """`last_heard` is a time of the event loop."""

    def __init__(self, session_id: int, timeout_s: float) -> None:
        self.session_id = session_id
        self.timeout_s = timeout_s
        self.last_heard = 0.0
        self.time_out: asyncio.TimerHandle | None = None
        """What looks whether the time has run out (B); None while it does not run."""

    def stop_waiting(self) -> None:
        """Its time does not run any more."""
        if self.time_out is not None:
            self.time_out.cancel()
            self.time_out = None

    @abstractmethod
    def disconnect(self) -> None:
        """Breaks its connection, if it has one (C)."""


S = TypeVar("S", bound=Session)


class Ensemble(ABC, Generic[S]):
    """`tree` is what it begins with. `loop` is its event loop, by default the one that runs; `context` is that of its
    timers, by default the one that starts them. `tick_s=0`: there are no ticks (B).
    """

    def __init__(
        self,
        tree: MetadataTree | None = None,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        context: Context | None = None,
        tick_s: float = 0.0,
    ) -> None:
        self.tree = MetadataTree() if tree is None else tree
        self.sessions: dict[int, S] = {}
        self._timer_context = context
        self.tick_s = tick_s
        self._given_loop = loop
        self._first_tick: float | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Its event loop."""
        return self._given_loop or asyncio.get_running_loop()

    @abstractmethod
    def watchers(self) -> Iterable[Watcher]:
        """Returns those that may have watches, in the order in which they see an event."""

    @abstractmethod
    def timed_out(self, session: S) -> None:
        """A session's time has run out (B)."""

    def session_of(self, session_id: int) -> S:
        """Raises StoreUnavailable if the session has ended."""
        session = self.sessions.get(session_id)
        if session is None:
            raise StoreUnavailable("", "the session has ended")
        return session

    # Changes

    def change(
        self, session_id: int, operations: Iterable[Operation], *, most_bytes: int = LONGEST_CHANGE
    ) -> Steps[Transaction]:
        """Makes a change of a session. Raises MetadataStoreError. No other change may be made between the steps (A)."""
        self.session_of(session_id)
        transaction = yield from self.tree.stage(operations, session_id, most_bytes=most_bytes)
        if transaction.entries:
            self.apply(transaction)
        return transaction

    def apply(self, transaction: Transaction) -> None:
        """Makes a change that is staged (A)."""
        self.tree.apply(transaction.number, transaction.entries)
        for event in transaction.events:
            for watcher in list(self.watchers()):
                watcher.see(event)

    # The ends of sessions

    def end(self, session: S) -> Steps[None]:
        """Ends a session (C). Has no effect if it has ended."""
        session.stop_waiting()
        if self.sessions.pop(session.session_id, None) is None:
            return
        paths = self.tree.ephemeral_paths(session.session_id)
        log.info("metadata store session ended", session=session.session_id, ephemeral_entries=paths)
        if paths:
            self.apply((yield from self.tree.stage(map(Delete, paths), session.session_id)))

    def expiry(self, session: S) -> Steps[None]:
        """Ends a session whose client has not asked for it (C)."""
        yield from self.end(session)
        session.disconnect()

    def let_time_run(self, session: S) -> None:
        """The client of a session was heard, and may not be heard again (B)."""
        session.last_heard = self.loop.time()
        if self._first_tick is None:
            self._first_tick = session.last_heard
        if session.time_out is None:
            self._wait_for(session)

    def _wait_for(self, session: S) -> None:
        end, heard = self._end_of(session), session.last_heard
        session.time_out = self.loop.call_at(end, self._look_at, session, heard, context=self._timer_context)

    def _look_at(self, session: S, heard: float) -> None:
        """`heard`: when the client had last been heard at the last look. Clocks may be coarser than the end."""
        session.time_out = None
        if session.last_heard == heard or self.loop.time() >= self._end_of(session):
            self.timed_out(session)
        else:
            self._wait_for(session)

    def _end_of(self, session: S) -> float:
        """When the session ends, if its client is not heard any more (B)."""
        end = session.last_heard + session.timeout_s
        if not self.tick_s or self._first_tick is None:
            return end
        return self._first_tick + self.tick_s * math.ceil((end - self._first_tick) / self.tick_s)
