"""A session with ZooKeeper: a MetadataStore over one connection after the other.

    state       calls                       leaves it
    ----------  --------------------------  ------------------------------------------------------------------------
    closed      StoreUnavailable            `open`
    connected   sent, answered in order     the connection ends: all open calls raise ConnectionLost; SUSPENDED
    suspended   ConnectionLost              a server continues the session: CONNECTED; or it says that the session has
                                            ended: LOST, then a new session begins: `session_epoch` grows, CONNECTED

    (A) While there is no connection, the servers are tried again and again (`connector.py`).
    (B) Only a server ends a session. Without a verdict the session stays suspended, however long that lasts.
    (C) On a new connection of a session, the watches are set again first, with the last transaction that the session
        has seen: changes that were missed are called then. Then the server catches up with the others (`sync`), so that
        nothing is read that is older than what another server has shown.
    (D) A change above the limit fails with TooLarge before it is sent: ZooKeeper would end the connection.
    (E) `close` ends the session at the server, if it responds within CLOSE_S; else its time-out does.
    (F) A long pipeline is encoded in steps, between which other tasks run. If the connection is lost in between, so is
        the rest of the pipeline, even if there is another connection by then: no group is applied before an earlier
        one that is sent again.
    (G) A pinned session (`pin`) ends only at the word of a server that has the data of the cluster. A server that has
        lost the data says of every session that it has ended. This is logged as an error, and the server is tried again
        like one that cannot be reached. So no broker acts on an empty ZooKeeper. When the data is restored, the session
        goes on, or a new one begins.

Source: ZooKeeper's `ClientCnxn`; Kafka's `ZooKeeperClient`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import structlog

from odradek.broker.background.stepwise import Pace, others_between
from odradek.broker.background.tasks import Spawn
from odradek.broker.metadata_store.interface import (
    ConnectionLost,
    Entry,
    MetadataStore,
    MetadataStoreError,
    NoEntry,
    Operation,
    Outcome,
    SessionState,
    StoreUnavailable,
    Watch,
    WatchEvent,
    listed,
)
from odradek.broker.metadata_store.read_back import retry_until_connected
from odradek.broker.metadata_store.session_metrics import SessionMetrics
from odradek.broker.metadata_store.watch_table import Kind, WatchTable
from odradek.broker.metadata_store.zookeeper import codec
from odradek.broker.metadata_store.zookeeper.codec import Chroot, Granted, Request
from odradek.broker.metadata_store.zookeeper.connection import ZooKeeperConnection, connection_lost
from odradek.broker.metadata_store.zookeeper.connector import Connector
from odradek.broker.metadata_store.zookeeper.first_requests import create_chroot, fault_at
from odradek.broker.metadata_store.zookeeper.session_security import INSECURE, SessionSecurity
from odradek.broker.settings.connect_string import Address, ConnectString
from odradek.timer import Clock, SystemClock

NO_PASSWORD = bytes(16)
CLOSE_S = 1.0
"""How long `close` waits for a response."""
ENCODING_COST = 3
"""The cost of encoding an operation, in items of a step."""

log = structlog.get_logger("controller.store")


class ZooKeeperStore(MetadataStore):
    """`session_timeout_ms` is asked for; the servers may grant another. `open` waits for a connection for at most
    `connection_timeout_ms`, and creates the chroot if `creates_chroot`. `spawn` runs the task that connects. `source`
    draws the order of the servers, and nonces. `clock` says for the log since when there is no connection.
    """

    is_shared = True
    is_outside = True

    def __init__(
        self,
        servers: ConnectString,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        max_in_flight: int,
        spawn: Spawn,
        source: random.Random,
        security: SessionSecurity = INSECURE,
        creates_chroot: bool = True,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self.session_metrics: SessionMetrics = SessionMetrics()
        self._servers = servers
        self._chroot = Chroot(servers.chroot)
        self._session_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms
        self._max_in_flight = max_in_flight
        self._spawn = spawn
        self._source = source
        self._security = security
        self._made_chroot = servers.chroot if creates_chroot else ""
        self._is_open = False
        self._is_connected = False
        self._password = NO_PASSWORD
        self._last_zxid = 0
        self._watches: WatchTable[Watch] = WatchTable()
        self._connection: ZooKeeperConnection | None = None
        self._looks = False
        """Whether a server grants a session only so that its entry can be read (G)."""
        self._lost_at = 0.0
        """When the last connection of the session ended."""
        self._connector = Connector(
            servers.servers,
            session_timeout_ms,
            security,
            source,
            self.session_metrics,
            self._new_connection,
            clock or SystemClock(),
        )
        self._connecting: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        """Set while the session is connected or closed. `connected` waits for it."""
        self._sending = asyncio.Lock()
        """Held while a long call is sent, in steps."""

    # Life

    async def open(self) -> None:
        """See MetadataStore. Has no effect if the session is open."""
        if self._is_open:
            return
        self._is_open = True
        self._settled = asyncio.Event()
        self.session_metrics.opened()
        self._connecting = self._spawn(self._connector.run(self._begins_anew), "ZooKeeper session")
        try:
            async with asyncio.timeout(self._connection_timeout_ms / 1000):
                await self.connected()
                await retry_until_connected(
                    self, lambda: create_chroot(self._made_chroot, self._security.acls_of, self._send)
                )
        except TimeoutError as error:
            await self._end("not open")
            addresses, waited = ", ".join(map(str, self._servers.servers)), f"{self._connection_timeout_ms} ms"
            reason = f"no connection to ZooKeeper at {addresses} in {waited}{self._connector.problem}"
            raise StoreUnavailable("", reason) from error
        except BaseException:
            await self._end("not open")
            raise

    async def close(self) -> None:
        """See MetadataStore (E)."""
        if not self._is_open:
            return
        connection = self._attached()
        if connection is not None:
            self._is_open = False
            await self._closed(connection)
        await self._end("closed")

    async def connected(self) -> None:
        """See MetadataStore."""
        while not self._is_connected:
            self._check_open()
            await self._settled.wait()

    # Calls

    async def get(self, path: str, watch: Watch | None = None) -> Entry:
        """See MetadataStore."""
        entry: Entry = await self._read(
            codec.get_data(path, self._chroot, watched=watch is not None), watch, found=Kind.DATA
        )
        return entry

    async def exists(self, path: str, watch: Watch | None = None) -> Entry | None:
        """See MetadataStore. ZooKeeper's `exists` returns no data, but sets a watch where nothing is."""
        while True:
            try:
                return await self.get(path, watch)
            except NoEntry:
                if watch is None:
                    return None
            request = codec.exists(path, self._chroot, watched=True)
            try:
                await self._read(request, watch, found=None, missing=Kind.MISSING)
            except NoEntry:
                return None
            # It has been created meanwhile: the watch at the server is one of its data, and is set again by `get`.

    async def entries(self, paths: Sequence[str]) -> list[Entry | None]:
        """See MetadataStore."""
        async with self._sending:
            responses = [
                self._send(codec.get_data(path, self._chroot)) async for path in others_between(paths, ENCODING_COST)
            ]
        found = [await response for response in responses]
        for each in found:
            if isinstance(each, MetadataStoreError) and not isinstance(each, NoEntry):
                raise each
        return [None if isinstance(each, NoEntry) else each for each in found]

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See MetadataStore."""
        names: list[str] = await self._read(
            codec.get_children(path, self._chroot, watched=watch is not None), watch, found=Kind.CHILDREN
        )
        return names

    async def pipeline(self, groups: Sequence[Iterable[Operation]]) -> list[Outcome]:
        """See MetadataStore (D, F)."""
        responses: list[asyncio.Future[Any]] = []
        pace = Pace()
        async with self._sending:
            lists, began_on = await listed(groups), self._attached()
            for operations in lists:
                responses.append(
                    self._multi(operations) if self._attached() is began_on else _settled(connection_lost())
                )
                if pace.step_ends(ENCODING_COST * len(operations)):
                    await asyncio.sleep(0)
        return [await response for response in responses]

    def _attached(self) -> ZooKeeperConnection | None:
        """The connection of the session, if there is one."""
        return self._connection if self._is_connected else None

    def _multi(self, operations: Sequence[Operation]) -> asyncio.Future[Any]:
        if not self._is_open:
            return _settled(_not_open())
        if not operations:
            return _settled([])
        request = codec.multi(operations, self._chroot, self._security.acls_of)
        return self._send(request) if isinstance(request, Request) else _settled(request)

    async def _read(
        self, request: Request, watch: Watch | None, *, found: Kind | None, missing: Kind | None = None
    ) -> Any:
        """Raises the response if it is an error. The response sets the watch, of the kind `found` or, if there is no
        entry, of the kind `missing`; None for none. If the caller was canceled before, the watch is not set.
        """
        if self._sending.locked():
            async with self._sending:
                pass  # calls are sent in the order in which they were made
        response = asyncio.get_running_loop().create_future()

        def answered(result: Any) -> None:
            kind = missing if isinstance(result, NoEntry) else None if isinstance(result, Exception) else found
            if watch is not None and kind is not None and not response.done():
                self._watches.add(kind, request.path, watch)
            _settle(response, result)

        self._begin(request, answered)
        result = await response
        if isinstance(result, MetadataStoreError):
            raise result
        return result

    def _send(self, request: Request) -> asyncio.Future[Any]:
        """Returns a future whose result is the response, which may be an error. The caller may drop the future."""
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._begin(request, partial(_settle, response))
        return response

    def _begin(self, request: Request, answered: Callable[[Any], None]) -> None:
        connection = self._attached()
        if not self._is_open:
            answered(_not_open())
        elif connection is None:
            asyncio.get_running_loop().call_soon(answered, connection_lost())
        else:
            connection.send(request, answered)

    def _check_open(self) -> None:
        if not self._is_open:
            raise _not_open()

    # Connections

    def _new_connection(self, server: Address) -> ZooKeeperConnection:
        session = (0, NO_PASSWORD, 0) if self._looks else (self.session_id, self._password, self._newest_seen())
        session_id, password, last_zxid = session
        hello = codec.connect_frame(session_id, password, self._session_timeout_ms, last_zxid)
        self._connection = ZooKeeperConnection(
            str(server),
            self,
            hello,
            self._security.new_login(self._source),
            self._chroot,
            self._max_in_flight,
            self.session_metrics.answered,
        )
        return self._connection

    async def _begins_anew(self, server: Address) -> bool:
        """A server says that the session has ended. Returns whether a new one has begun there (G)."""
        if self._pinned is None:
            self._expired()
            return False
        path, fault_of = self._pinned
        self._looks = True
        try:
            connection = self._new_connection(server)
            granted = await self._connector.verdict_of(server, connection)
            fault = "" if granted is None else await fault_at(connection, self._chroot, path, fault_of)
        except ConnectionLost:
            return False
        finally:
            self._looks = False
        if fault:
            await self._closed(connection)
            connection.abort(f"{fault}: it does not have the data of this cluster; restore ZooKeeper's data")
            self._connector.note_failure(server, connection, is_wrong=True)
        elif granted is not None and connection is self._connection:
            self._expired()
            self._attach(connection, granted)
            return True
        return False

    async def _closed(self, connection: ZooKeeperConnection) -> None:
        """Ends the session at the server, and waits for its response (E)."""
        ended = asyncio.get_running_loop().create_future()
        connection.send(codec.close_session(), partial(_settle, ended))
        await asyncio.wait([ended], timeout=CLOSE_S)

    def _newest_seen(self) -> int:
        """The last transaction that the session has seen: a server that lags behind it refuses the connection (C). Not
        when the session must have ended: servers that have lost all data would refuse for ever, and never say so.
        """
        is_over = asyncio.get_running_loop().time() - self._lost_at > self.granted_timeout_ms / 1000
        return 0 if is_over else self._last_zxid

    def _expired(self) -> None:
        log.warning("ZooKeeper session ended", session=f"0x{self.session_id:x}")
        self._forget_session()
        self.session_metrics.expired()
        self._notify(SessionState.LOST)

    def _forget_session(self) -> None:
        self.session_id, self._password, self._last_zxid = 0, NO_PASSWORD, 0
        self._watches.clear()

    def granted(self, granted: Granted) -> None:
        """See Session: the server's word on the session."""
        assert self._connection is not None
        self._connector.granted(granted)
        if granted.timeout_ms > 0 and not self._looks:
            self._attach(self._connection, granted)

    def _attach(self, connection: ZooKeeperConnection, granted: Granted) -> None:
        self.granted_timeout_ms = granted.timeout_ms
        if granted.session_id != self.session_id:
            self.session_id, self._password = granted.session_id, granted.password
            self.session_epoch += 1
        for request in self._set_watches():
            connection.send_set_watches(request)
        connection.send(codec.sync(self._chroot), lambda _result: None)
        self._is_connected = True
        self._connector.attached()
        self.session_metrics.connected(logged_in=self._security.credentials is not None)
        log.info(
            "connected to ZooKeeper",
            server=connection.server,
            session=f"0x{granted.session_id:x}",
            timeout_ms=granted.timeout_ms,
        )
        self._notify(SessionState.CONNECTED)
        self._settled.set()

    def _set_watches(self) -> list[Request]:
        paths = self._watches.paths
        return codec.set_watches(
            self._last_zxid, self._chroot, paths(Kind.DATA), paths(Kind.MISSING), paths(Kind.CHILDREN)
        )

    def event(self, event: WatchEvent) -> None:
        """See Session: calls the watches."""
        if not self._is_open:
            return
        for watch in self._watches.take(event):
            try:
                watch(event)
            except Exception:
                log.exception("watch failed", path=event.path)

    def lost(self, connection: ZooKeeperConnection, reason: str) -> None:
        """See Session: the connection has ended."""
        if connection is not self._connection:
            return
        self._connection = None
        was_connected, self._is_connected = self._is_connected, False
        if was_connected:
            self._last_zxid = max(self._last_zxid, connection.last_zxid)
            self._lost_at = asyncio.get_running_loop().time()
        self._connector.lost(connection)
        if was_connected and self._is_open:
            self._settled.clear()
            self.session_metrics.disconnected()
            log.warning("connection to ZooKeeper lost", server=connection.server, reason=reason)
            self._notify(SessionState.SUSPENDED)

    async def _end(self, reason: str) -> None:
        """Forgets the session; ZooKeeper has ended it or will."""
        self._is_open = self._is_connected = False
        self.session_metrics.closed()
        connection, self._connection = self._connection, None
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
            self._connecting = None
        had_session = self.session_id != 0
        self._forget_session()
        if connection is not None:
            connection.abort(reason)
            await connection.over.wait()
        self._settled.set()
        if had_session:
            self._notify(SessionState.LOST)


def _settle(response: asyncio.Future[Any], result: Any) -> None:
    if not response.done():
        response.set_result(result)


def _settled(result: Any) -> asyncio.Future[Any]:
    response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    response.set_result(result)
    return response


def _not_open() -> StoreUnavailable:
    return StoreUnavailable("", "the metadata store is unavailable: the session is not open")
