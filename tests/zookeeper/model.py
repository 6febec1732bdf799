"""A ZooKeeper in memory that speaks the protocol, for tests: the ensemble of the shared metadata store, over the wire.
This file has what a server of ZooKeeper adds to it.

    (A) Requests of a session are carried out in the order of their arrival, each at once. The events of a change are
        sent before its reply.
    (B) A session lives for the time-out that was asked for, but at least two ticks and at most twenty. It is counted
        from the last frame of the session. When it ends, its connection is closed without a word; a client learns of it
        when it tries to continue the session.
    (C) A client that has seen a later transaction than the server is closed without a word; so is one that sends a
        frame above jute.maxbuffer.
    (D) Watches belong to a connection. SetWatches sets them again, and sends the events that were missed.
    (E) A change that fails has a transaction number, too.
    (F) A server may lag behind the others: it serves reads from an older tree, and sends no events of what it does not
        know, until it is asked to `sync`, makes a change or is brought up to date by `catch_up`. `lag`: all servers do
        so from now on. `lag_behind`: only new connections of known sessions find such a server, as it is now; it knows
        the session, and all that the client has seen. The number in a reply is that of the others.
    (G) With `users`, a connection may log in by DIGEST-MD5 (sasl.py). A failed login is answered with AUTHFAILED, and
        the connection is closed; the session lives on. If `requires_login`, nothing else is answered before it.
    (H) Entries keep the ACLs that they were created with. The scheme auth stands for who is logged in. Nobody is kept
        from anything.

Source: ZooKeeper's `ZooKeeperServer`, `PrepRequestProcessor`, `FinalRequestProcessor`, `DataTree`.
"""

from __future__ import annotations

import asyncio
import copy
import random
import ssl
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

from odradek.broker.background.stepwise import finished
from odradek.broker.metadata_store.interface import (
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
from odradek.broker.metadata_store.shared import ensemble
from odradek.broker.metadata_store.tree import MetadataTree, Transaction
from odradek.broker.metadata_store.watch_table import Kind, WatchTable
from odradek.protocol.framing import BadFrame, FrameSplitter
from tests.zookeeper import wire
from tests.zookeeper.sasl import DigestMd5Server, LoginFailed
from tests.zookeeper.wire import Acl, AclCreate, Reader


class InvalidAcl(MetadataStoreError):
    """The scheme auth, and nobody is logged in."""


LONGEST_FRAME = 0xFFFFF
EVENT_KINDS = {Change.CREATED: 1, Change.DELETED: 2, Change.CHANGED: 3, Change.CHILDREN: 4}
CODES: dict[type[MetadataStoreError], int] = {
    BadArguments: -8,
    NoEntry: -101,
    BadVersion: -103,
    EntryExists: -110,
    HasChildren: -111,
    InvalidAcl: -114,
}
NO_CHILDREN_FOR_EPHEMERALS = -108
AUTH_FAILED, LOGIN_REQUIRED = -115, -124
UNIMPLEMENTED = -6


class Session(ensemble.Session):
    """What the server knows of a session."""

    def __init__(self, session_id: int, password: bytes, timeout_s: float) -> None:
        super().__init__(session_id, timeout_s)
        self.password = password
        self.address = ""
        """Where its last connection came from."""
        self.connection: ServedConnection | None = None

    def disconnect(self) -> None:
        """See ensemble.Session."""
        if self.connection is not None:
            self.connection.close()


class Stored(NamedTuple):
    """What a server keeps on its disk."""

    tree: MetadataTree
    sessions: dict[int, Session]
    children_zxid: dict[str, int]
    acls: dict[str, list[Acl]]


class ZooKeeperModel(ensemble.Ensemble[Session]):
    """`source` draws session ids and passwords. The tick is ZooKeeper's tickTime; `longest_s`: maxSessionTimeout."""

    def __init__(
        self, *, tick_s: float = 0.05, shortest_s: float | None = None, source: random.Random | None = None
    ) -> None:
        super().__init__(tick_s=tick_s)
        self.shortest_s = 2 * tick_s if shortest_s is None else shortest_s
        self.longest_s = max(20 * tick_s, 60.0)
        self.connections: dict[ServedConnection, None] = {}
        self.refuses = False
        """Whether new connections are closed at once: the server is not there."""
        self.hangs = False
        """Whether everything that arrives is ignored: the process stands still."""
        self.behind: MetadataTree | None = None
        """What new connections of known sessions find (F)."""
        self.all_lag = False
        """Whether they find it even if the client has seen more (F)."""
        self.users: dict[str, str] = {}
        """The passwords of those who may log in (G)."""
        self.requires_login = False
        self.acls: dict[str, list[Acl]] = {}
        self.failed_logins = 0
        self._source = source or random.Random(1)
        self._children_zxid: dict[str, int] = {}

    # For those who start it and break it

    @asynccontextmanager
    async def served(
        self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[str]:
        """Listens; yields HOST:PORT."""
        server = await self.serve(host, port, tls)
        try:
            yield f"{host}:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            self.drop_connections()
            await server.wait_closed()
            self._stop_time()

    async def serve(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        """Listens."""
        more: dict[str, Any] = {} if tls is None else {"ssl": tls}
        return await asyncio.get_running_loop().create_server(lambda: ServedConnection(self), host, port, **more)

    def drop_connections(self, session_id: int | None = None) -> None:
        """Breaks the connections, or that of one session."""
        for connection in list(self.connections):
            if session_id is None or connection.session_id == session_id:
                connection.abort()

    def has(self, session_id: int) -> bool:
        """Whether a session is connected to this server."""
        return any(connection.session_id == session_id for connection in self.connections)

    def connection_of(self, session_id: int) -> ServedConnection:
        """The connection of a session that has one."""
        return next(connection for connection in self.connections if connection.session_id == session_id)

    def expire(self, session_id: int) -> None:
        """Ends a session at once."""
        session = self.sessions.get(session_id)
        if session is not None:
            finished(self.expiry(session))

    def lag(self) -> None:
        """From now on no server learns of the changes of others (F)."""
        self.lag_behind()
        self.all_lag = True
        for connection in self.connections:
            connection.older = self.behind

    def catch_up(self) -> None:
        """It learns of all changes."""
        self.behind, self.all_lag = None, False
        for connection in list(self.connections):
            connection.catch_up()

    def lag_behind(self) -> None:
        """What is the newest state now stays what new connections find (F)."""
        self.behind = copy.deepcopy(self.tree)

    def wipe(self) -> Stored:
        """Loses everything, as with an empty disk after a restart. Returns what it had."""
        self.drop_connections()
        self._stop_time()
        stored = Stored(self.tree, self.sessions, self._children_zxid, self.acls)
        self.restore(Stored(MetadataTree(), {}, {}, {}))
        return stored

    def restore(self, stored: Stored) -> None:
        """Goes on with what it had once. As after a restart, all sessions have their whole time again."""
        self.drop_connections()
        self.tree, self.sessions, self._children_zxid, self.acls = stored
        for session in self.sessions.values():
            session.connection = None
            self.let_time_run(session)

    def reading(self, session: Session, path: str) -> None:
        """A session is about to read what is at a path: for those who want to know."""

    def _stop_time(self) -> None:
        for session in self.sessions.values():
            session.stop_waiting()

    # Sessions

    def begin(self, timeout_ms: int) -> Session:
        timeout_s = min(max(timeout_ms / 1000, self.shortest_s), self.longest_s)
        session = Session(self._source.getrandbits(62) + 1, self._source.randbytes(16), timeout_s)
        self.sessions[session.session_id] = session
        return session

    def timed_out(self, session: Session) -> None:
        """See Ensemble."""
        finished(self.expiry(session))

    def watchers(self) -> Iterable[ServedConnection]:
        """See Ensemble."""
        return self.connections

    # Entries

    def apply(self, transaction: Transaction) -> None:
        """See Ensemble."""
        super().apply(transaction)
        for path, entry in transaction.entries.items():
            if entry is None:
                self._children_zxid.pop(path, None)
                self.acls.pop(path, None)
        for event in transaction.events:
            if event.change is Change.CHILDREN and self.tree.get(event.path) is not None:
                self._children_zxid[event.path] = transaction.number

    def children_zxid(self, path: str) -> int:
        """The last transaction that created or deleted a child (pzxid)."""
        entry = self.tree.get(path)
        assert entry is not None
        return self._children_zxid.get(path, entry.created)

    def stat(self, path: str, tree: MetadataTree) -> bytes:
        """Of an entry of this tree. Raises NoEntry."""
        entry = tree.get(path)
        if entry is None:
            raise NoEntry(path, "no such entry")
        return wire.stat(entry, tree.child_count(path), self._children_zxid.get(path, entry.created))


class ServedConnection(asyncio.Protocol):
    """The server's end of a connection."""

    def __init__(self, model: ZooKeeperModel) -> None:
        self._model = model
        self._frames = FrameSplitter(LONGEST_FRAME)
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._login: DigestMd5Server | None = None
        self.user: str | None = None
        self._watches: WatchTable[None] = WatchTable()
        self._late: list[bytes] | None = None
        self.older: MetadataTree | None = None
        """What its server knows, if it lags behind (F)."""

    @property
    def _tree(self) -> MetadataTree:
        """What reads find."""
        return self.older or self._model.tree

    def catch_up(self) -> None:
        """Its server learns of all changes, and sends the events (F)."""
        older, self.older = self.older, None
        if older is not None:
            data, children = sorted(self._watches.paths(Kind.DATA)), sorted(self._watches.paths(Kind.CHILDREN))
            self._watches.clear()
            there = [path for path in data if older.get(path) is not None]
            missing = [path for path in data if older.get(path) is None]
            self._set_watches(older.number, there, missing, children)

    @property
    def session_id(self) -> int:
        return 0 if self._session is None else self._session.session_id

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._model.refuses:
            self._transport.abort()
        else:
            self._model.connections[self] = None

    def connection_lost(self, error: Exception | None) -> None:
        self._model.connections.pop(self, None)
        if self._session is not None and self._session.connection is self:
            self._session.connection = None

    def abort(self) -> None:
        """Breaks the connection; nothing more is sent."""
        self._model.connections.pop(self, None)
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Closes the connection once everything is sent."""
        self._model.connections.pop(self, None)
        if self._transport is not None:
            self._transport.close()

    def hold(self) -> None:
        """From now on nothing gets through in either direction, and neither side notices."""
        self._late = []
        self._model.connections.pop(self, None)
        if self._session is not None:
            self._session.connection = None

    @property
    def holds(self) -> bool:
        """Whether something of the client is on its way."""
        return bool(self._late)

    def deliver(self) -> None:
        """What the client has sent arrives."""
        late, self._late = self._late or [], None
        self._model.connections[self] = None
        for data in late:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self._model.hangs:
            return
        if self._late is not None:
            self._late.append(data)
            return
        try:
            for frame in self._frames.feed(data):
                if self in self._model.connections:
                    self._received(frame)
        except BadFrame:
            self.abort()

    def _received(self, frame: bytes) -> None:
        if self._session is None:
            self._greet(wire.read_hello(frame))
            return
        if self._session.session_id not in self._model.sessions:
            self.close()
            return
        self._model.let_time_run(self._session)
        reader = Reader(frame)
        xid, code = reader.take("ii")
        if code == wire.SASL:
            self._log_in(xid, reader.buffer() or b"")
            return
        if self._model.requires_login and self.user is None:
            self.send(wire.reply(xid, 0, LOGIN_REQUIRED))
            self.close()
            return
        try:
            error, body = 0, self._carry_out(xid, code, reader)
        except MetadataStoreError as failure:
            error, body = code_of(failure), b""
        if body is not None:
            self.send(wire.reply(xid, self._model.tree.number, error, body))
        if code == wire.CLOSE:
            finished(self._model.expiry(self._session))

    def _log_in(self, xid: int, token: bytes) -> None:
        """See (G). A server without users responds with nothing, as ZooKeeper does."""
        model = self._model
        if not model.users:
            self.send(wire.reply(xid, 0, 0, wire.buffer(None)))
            return
        if self._login is None:
            self._login = DigestMd5Server(model.users)
        try:
            response = self._login.evaluate(token)
        except LoginFailed:
            model.failed_logins += 1
            self.send(wire.reply(xid, 0, AUTH_FAILED))
            self.close()
            return
        self.user = self._login.user
        self.send(wire.reply(xid, 0, 0, wire.buffer(response)))

    def send(self, data: bytes) -> None:
        """Sends a frame."""
        assert self._transport is not None
        self._transport.write(data)

    def _greet(self, hello: wire.Hello) -> None:
        model = self._model
        if hello.last_zxid > model.tree.number:
            self.close()
            return
        session = model.sessions.get(hello.session_id)
        if hello.session_id == 0:
            session = model.begin(hello.timeout_ms)
        elif session is None or session.password != hello.password:
            self.send(wire.welcome(0, 0, bytes(16)))
            self.close()
            return
        if session.connection is not None:
            session.connection.abort()
        if (
            hello.session_id != 0
            and model.behind is not None
            and (model.all_lag or hello.last_zxid <= model.behind.number)
        ):
            self.older = model.behind
        session.connection, self._session = self, session
        assert self._transport is not None
        session.address = self._transport.get_extra_info("peername")[0]
        model.let_time_run(session)
        self.send(wire.welcome(round(session.timeout_s * 1000), session.session_id, session.password))

    # Requests

    def _carry_out(self, xid: int, code: int, reader: Reader) -> bytes | None:
        """Returns the body of the reply. Raises MetadataStoreError."""
        if code in (wire.PING, wire.CLOSE):
            return b""
        if code == wire.SYNC:
            self.catch_up()
            return wire.text(reader.text())
        if code == wire.MULTI:
            return self._multi(wire.read_multi(reader))
        if code == wire.SET_WATCHES:
            self._set_watches(reader.take("q"), reader.texts(), reader.texts(), reader.texts())
            return b""
        if code == wire.GET_ACL:
            path = reader.text()
            return wire.acls(self._model.acls.get(path, [])) + self._model.stat(path, self._tree)
        if code in (wire.CREATE, wire.SET_DATA, wire.DELETE):
            return self._change([(code, wire.read_operation(code, reader))])[0][1]
        return self._read(code, reader.text(), bool(reader.take("B")))

    def _read(self, code: int, path: str, watched: bool) -> bytes:
        model = self._model
        assert self._session is not None, "it was greeted"
        model.reading(self._session, path)
        if code == wire.EXISTS and watched:
            self._watches.add(Kind.DATA, path, None)
        tree = self._tree
        stat = model.stat(path, tree)
        if code == wire.EXISTS:
            return stat
        entry = tree.get(path)
        assert entry is not None
        if code == wire.GET_DATA:
            if watched:
                self._watches.add(Kind.DATA, path, None)
            return wire.buffer(entry.data) + stat
        assert code in (wire.GET_CHILDREN, wire.GET_CHILDREN2), code
        if watched:
            self._watches.add(Kind.CHILDREN, path, None)
        return wire.names(tree.children(path)) + (stat if code == wire.GET_CHILDREN2 else b"")

    def _multi(self, operations: list[tuple[int, Operation | AclCreate]]) -> bytes:
        try:
            return wire.multi_results(self._change(operations))
        except MetadataStoreError as failure:
            codes = [0] * failure.index + [code_of(failure)]
            return wire.multi_errors(codes + [-2] * (len(operations) - len(codes)))

    def _change(self, operations: list[tuple[int, Operation | AclCreate]]) -> list[tuple[int, bytes]]:
        model = self._model
        self.catch_up()
        plain = [each.create if isinstance(each, AclCreate) else each for _, each in operations]
        try:
            acls = [self._acls(each) if isinstance(each, AclCreate) else [] for _, each in operations]
            transaction = finished(model.change(self.session_id, plain, most_bytes=sys.maxsize))
        except MetadataStoreError:
            model.tree.number += 1
            raise
        model.tree.number = transaction.number  # even if it has only checked
        results = []
        for (code, _), operation, acl, result in zip(operations, plain, acls, transaction.results, strict=True):
            if isinstance(operation, Create):
                model.acls[str(result)] = acl
                results.append((code, wire.text(str(result))))
            elif isinstance(operation, Set):
                assert isinstance(result, int)
                results.append((code, wire.stat(Entry(operation.data, result, 0, 0, 0, transaction.number), 0, 0)))
            else:
                assert isinstance(operation, Delete | Check)
                results.append((code, b""))
        return results

    def _acls(self, wanted: AclCreate) -> list[Acl]:
        """See (H)."""
        user = self.user
        if user is not None:
            return [acl._replace(scheme="sasl", id=user) if acl.scheme == "auth" else acl for acl in wanted.acls]
        if any(acl.scheme == "auth" for acl in wanted.acls):
            raise InvalidAcl(wanted.create.path, "nobody is logged in")
        return wanted.acls

    # Watches

    def see(self, event: WatchEvent) -> None:
        """See Watcher. A deletion is one event, whatever is watched."""
        if self.older is None and self._watches.take(event):
            self.send(wire.event(EVENT_KINDS[event.change], event.path))

    def _set_watches(self, since: int, data: Iterable[str], missing: Iterable[str], children: Iterable[str]) -> None:
        """See (D)."""
        tree = self._tree
        for path in data:
            entry = tree.get(path)
            change = Change.DELETED if entry is None else Change.CHANGED if entry.modified > since else None
            self._watch_again(path, change, Kind.DATA)
        for path in missing:
            self._watch_again(path, None if tree.get(path) is None else Change.CREATED, Kind.DATA)
        for path in children:
            if tree.get(path) is None:
                change = Change.DELETED
            else:
                change = Change.CHILDREN if self._model.children_zxid(path) > since else None
            self._watch_again(path, change, Kind.CHILDREN)

    def _watch_again(self, path: str, missed: Change | None, kind: Kind) -> None:
        if missed is None:
            self._watches.add(kind, path, None)
        else:
            self.send(wire.event(EVENT_KINDS[missed], path))


def code_of(error: MetadataStoreError) -> int:
    """ZooKeeper's code."""
    if isinstance(error, BadArguments) and "ephemeral" in error.reason:
        return NO_CHILDREN_FOR_EPHEMERALS
    return CODES[type(error)]
