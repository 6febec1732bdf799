"""A metadata store in memory that several brokers of one process share: an ensemble (`ensemble.py`), and the ways to
it. Each broker has a session of its own (`session.py`), which can be cut off, or ended, at any time.

Calls are carried out one after the other, in the order of their arrival; each is atomic. As with ZooKeeper:

    (A) The calls of a session arrive in order, and its responses and events arrive in order (`connection.py`). The
        events of a change are sent before its response.
    (B) A cut breaks the connection. Calls that have arrived are carried out; their responses are lost. Calls that have
        not arrived are lost; with `lost_answers`, a random number of them arrive first. Calls made during the cut fail
        at once; with `lost_answers`, every other change is carried out all the same. The random source decides alone,
        so a seed repeats a run.
    (C) A session that is without a connection for `session_timeout_ms` ends: its ephemeral entries are deleted, and its
        watches are dropped. Until then its watches are kept, and their events are sent when it is connected again.
    (D) Where the session's process has ended (a new session of its name begins without a `close`), it ends in the same
        way: nobody connects again.
    (E) A process that is stopped for a while (SIGSTOP) sends no heartbeats: its connection stays, and so do its calls
        on their way, but its session's time runs out.

The store runs on one event loop; each broker may have its own, in the same thread. Nothing is stored on disk, and time
is the event loop's alone.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from functools import partial
from typing import Any

from odradek.broker.background.stepwise import Steps
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.frozen_store import FrozenStore
from odradek.broker.metadata_store.interface import Create, Entry, MetadataStoreError, NoEntry, WatchEvent
from odradek.broker.metadata_store.shared.connection import (
    Attach,
    Call,
    ClientSide,
    Connection,
    EndSession,
    Event,
    Multi,
    ReadChildren,
    ReadEntries,
    ReadEntry,
    Request,
    Response,
    WatchSet,
)
from odradek.broker.metadata_store.shared.ensemble import Ensemble, Session
from odradek.broker.metadata_store.shared.session import SharedSession
from odradek.broker.metadata_store.tree import MetadataTree, Transaction
from odradek.broker.metadata_store.watch_table import Kind, WatchTable


def no_delay(_name: str) -> float:
    """Messages arrive in the next turn of the event loop."""
    return 0.0


class _Session(Session):
    """A session at the store's side. `unsent` are events that wait for a connection."""

    def __init__(self, session_id: int, store: SharedStore, client: ClientSide) -> None:
        super().__init__(session_id, store.session_timeout_ms / 1000)
        self.client = client
        self.watches: WatchTable[WatchSet] = WatchTable()
        self.unsent: list[Event] = []
        self.connection: Connection | None = None
        self.is_silent = False
        self._store = store

    def see(self, event: WatchEvent) -> None:
        """See Watcher."""
        for watch in self.watches.take(event):
            if self.connection is not None:
                self.connection.down.send(Event(watch, event))
            else:
                self.unsent.append(Event(watch, event))

    def disconnect(self) -> None:
        """See Session."""
        if self.connection is not None:
            self._store.break_connection(self.connection)


class _Way:
    """The way between a broker's session and the store."""

    def __init__(self, store: SharedStore, name: str, before: _Way | None) -> None:
        self.name = name
        self.is_cut: bool = before is not None and before.is_cut
        self.lost_answers: random.Random | None = None if before is None else before.lost_answers
        self.connection: Connection | None = None
        self.client = SharedSession(self, store.connection_timeout_ms)
        self._store = store

    def connect(self) -> Connection | None:
        """See Link."""
        self.connection = None if self.is_cut else self._store.new_connection(self.client, self.name)
        return self.connection

    def let_go(self, connection: Connection) -> None:
        """See Link."""
        self._store.break_connection(connection)

    def attempt(self, session_id: int, request: Request) -> None:
        """See Link."""
        if self.lost_answers is not None and isinstance(request, Multi) and self.lost_answers.random() < 0.5:
            self._store.carry_out_unanswered(session_id, request)


class SharedStore(Ensemble[_Session]):
    """`delay` returns, for the name of a session, how many seconds its next message takes, in either direction.
    `connection_timeout_ms`: how long opening a session may take, by default as long as a session lives without a
    connection. `loop` is the store's event loop, by default the one that runs. `tree` is what it begins with. Nobody is
    elected as the controller before the entries `before_elections` exist for the first time.
    """

    def __init__(
        self,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int | None = None,
        delay: Callable[[str], float] = no_delay,
        loop: asyncio.AbstractEventLoop | None = None,
        tree: MetadataTree | None = None,
        before_elections: Iterable[str] = (),
    ) -> None:
        self._context = copy_context()
        super().__init__(tree, loop=loop, context=self._context)
        self.session_timeout_ms = session_timeout_ms
        self.connection_timeout_ms = session_timeout_ms if connection_timeout_ms is None else connection_timeout_ms
        self._delay = delay
        self._before_elections = frozenset(before_elections)
        self._candidates: list[tuple[Connection, Call]] = []
        """Those who wait until they may be elected."""
        self._last_session_id = 0
        self._ways: dict[str, _Way] = {}
        self._jobs: deque[tuple[Steps[Any], Callable[[Any], None]]] = deque()

    # For those who start brokers and break them

    def session(self, name: str) -> SharedSession:
        """Returns a session for the broker `name`, to be opened by it; an earlier one ends by itself (D).

        A cut of this name remains until `heal`.
        """
        before = self._ways.get(name)
        self._ways[name] = _Way(self, name, before)
        if before is not None:
            before.is_cut, before.lost_answers = True, None
            self._break_way(before)
        return self._ways[name].client

    def cut(self, name: str, *, lost_answers: random.Random | None = None) -> None:
        """Cuts the broker `name` off (B)."""
        way = self._ways[name]
        way.is_cut, way.lost_answers = True, lost_answers
        self._break_way(way)

    def heal(self, name: str) -> None:
        """Ends a cut: the session connects again."""
        way = self._ways[name]
        way.is_cut, way.lost_answers = False, None
        if way.client.is_open:
            way.client.loop.call_soon(way.client.connect, context=way.client.context)

    def silence(self, name: str) -> None:
        """The process of the broker `name` is stopped from now on (E)."""
        for session in self._sessions_of(name):
            session.is_silent = True
            self._let_time_run(session)

    def end_silence(self, name: str) -> None:
        """The process of the broker `name` runs again."""
        for session in self._sessions_of(name):
            session.is_silent = False
            if session.connection is not None:
                session.stop_waiting()

    def expire(self, name: str) -> None:
        """Ends the session of the broker `name` at once, whether it is cut off or not (C)."""
        for session in self._sessions_of(name):
            self.expire_session(session.session_id)

    def _sessions_of(self, name: str) -> list[_Session]:
        return [session for session in self.sessions.values() if session.client is self._ways[name].client]

    def entry(self, path: str) -> Entry | None:
        """Returns what the store has at `path` now, to those who look on without a session."""
        return self.tree.get(path)

    def children(self, path: str) -> list[str]:
        """Returns the names of the entry's children; nothing if there is no such entry."""
        return [] if self.tree.get(path) is None else self.tree.children(path)

    @property
    def is_idle(self) -> bool:
        """Whether all changes that have arrived are carried out."""
        return not self._jobs

    def freeze(self) -> FrozenStore:
        """Returns the content of this instant, as an embedded store would leave it that closed now."""
        return FrozenStore(self.tree, 0)

    # For the sessions

    def expire_session(self, session_id: int) -> None:
        """Ends a session at once. Has no effect if it has ended."""
        if session_id in self.sessions:
            self._begin(self.expiry(self.sessions[session_id]), _ignore)

    def new_connection(self, client: ClientSide, name: str) -> Connection:
        """Returns a connection to which no session is attached yet."""
        return Connection(client, self._arrived, partial(self._delay, name), self._context, self.loop)

    def break_connection(self, connection: Connection, lost_answers: random.Random | None = None) -> None:
        """Breaks a connection (B) and lets the session's time run out (C)."""
        if connection.is_broken:
            return
        connection.is_broken = True
        events = [message for message in connection.down.close() if isinstance(message, Event)]
        calls = connection.up.close()
        session = self.sessions.get(connection.session_id)
        if session is not None and session.connection is connection:
            session.connection = None
            session.unsent = events
            self._let_time_run(session)
        for call in calls[: 0 if lost_answers is None else lost_answers.randint(0, len(calls))]:
            self._arrived(connection, call)
        client = connection.client
        client.loop.call_soon(client.disconnected, connection, context=client.context)

    def _let_time_run(self, session: _Session) -> None:
        """From now on, unless it runs already."""
        if session.time_out is None:
            self.let_time_run(session)

    def carry_out_unanswered(self, session_id: int, change: Multi) -> None:
        """Carries out a change of a session that is cut off."""
        self._begin(self._change(session_id, change), _ignore)

    # One call after the other

    def _arrived(self, connection: Connection, call: Call) -> None:
        if self._before_elections and isinstance(call.request, Multi) and _elects(call.request):
            self._candidates.append((connection, call))
            return
        self._begin(self._carry_out(connection, call.request), partial(self._respond, connection, call))

    def _begin(self, job: Steps[Any], done: Callable[[Any], None]) -> None:
        self._jobs.append((job, done))
        if len(self._jobs) == 1:
            self._work()

    def _work(self) -> None:
        """Works until there is nothing to do, or until a long change lets others run."""
        while self._jobs:
            job, done = self._jobs[0]
            try:
                next(job)
            except StopIteration as end:
                result = end.value
            except MetadataStoreError as error:
                result = error
            else:
                self.loop.call_soon(self._work, context=self._context)
                return
            self._jobs.popleft()
            done(result)

    def _respond(self, connection: Connection, call: Call, result: Any) -> None:
        if connection.is_broken:
            return
        connection.down.send(Response(call, result))
        session = self.sessions.get(connection.session_id)
        if session is not None and session.unsent:
            for event in session.unsent:
                connection.down.send(event)
            session.unsent = []

    def _carry_out(self, connection: Connection, request: Request) -> Steps[Any]:
        if isinstance(request, Attach):
            return self._attach(connection, request.session_id)
        if isinstance(request, Multi):
            return (yield from self._change(connection.session_id, request))
        if isinstance(request, EndSession):
            return (yield from self.end(self.session_of(connection.session_id)))
        return self._read(self.session_of(connection.session_id), request)

    def _attach(self, connection: Connection, session_id: int) -> int:
        session = self.sessions.get(session_id)
        if connection.is_broken or (session is None and session_id != 0):
            return 0
        if session is None:
            self._last_session_id += 1
            session = self.sessions[self._last_session_id] = _Session(self._last_session_id, self, connection.client)
        session.stop_waiting()
        session.is_silent = False
        session.connection = connection
        connection.session_id = session.session_id
        return session.session_id

    def _read(self, session: _Session, request: ReadEntry | ReadEntries | ReadChildren) -> Any:
        if isinstance(request, ReadEntries):
            return [self.tree.get(path) for path in request.paths]
        if isinstance(request, ReadChildren):
            names = self.tree.children(request.path)
            if request.watch is not None:
                session.watches.add(Kind.CHILDREN, request.path, request.watch)
            return names
        entry = self.tree.get(request.path)
        if entry is None and request.must_exist:
            raise NoEntry(request.path, "no such entry")
        if request.watch is not None:
            session.watches.add(Kind.DATA, request.path, request.watch)
        return entry

    def _change(self, session_id: int, change: Multi) -> Steps[Any]:
        return (yield from self.change(session_id, change.operations)).results

    def apply(self, transaction: Transaction) -> None:
        """See Ensemble."""
        super().apply(transaction)
        if self._before_elections and all(map(self.tree.get, self._before_elections)):
            self._before_elections = frozenset()
            candidates, self._candidates = self._candidates, []
            for connection, call in candidates:
                self._arrived(connection, call)

    def watchers(self) -> Iterable[_Session]:
        """See Ensemble."""
        return self.sessions.values()

    def timed_out(self, session: _Session) -> None:
        """See Ensemble."""
        self._begin(self._expire_unless_connected(session), _ignore)

    def _expire_unless_connected(self, session: _Session) -> Steps[None]:
        if session.connection is None or session.is_silent:
            yield from self.expiry(session)

    def _break_way(self, way: _Way) -> None:
        if way.connection is not None:
            self.break_connection(way.connection, way.lost_answers)


def _elects(change: Multi) -> bool:
    return any(isinstance(each, Create) and each.path == znodes.CONTROLLER for each in change.operations)


def _ignore(_result: Any) -> None:
    pass
