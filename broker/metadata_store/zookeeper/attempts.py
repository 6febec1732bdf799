"""The attempts of a session to connect: to which server, for how long, and what is logged when they fail.

(A) The servers are tried one after the other, in an order drawn at random. After each round of all of them there is
    a pause, which doubles up to a second. Names are resolved at each attempt.
(B) One server may take so long that all of them are tried within two thirds of a session time-out.
(C) The first failure of an outage is logged, and others when the reason changes.
(D) A server may have lost the data of the cluster, or have that of another one: a pinned entry (`pin` of
    MetadataStore) tells.
"""

from __future__ import annotations

import asyncio
import random

import structlog

from odradek.broker.metadata_store.interface import (
    ConnectionLost,
    FaultOf,
    MetadataStoreError,
    NoEntry,
    StoreDamaged,
)
from odradek.broker.metadata_store.session_metrics import SessionMetrics
from odradek.broker.metadata_store.zookeeper import codec
from odradek.broker.metadata_store.zookeeper.codec import Chroot, Granted
from odradek.broker.metadata_store.zookeeper.connection import Session, ZooKeeperConnection
from odradek.broker.metadata_store.zookeeper.session_security import SessionSecurity
from odradek.broker.settings.connect_string import Address, ConnectString

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0

log = structlog.get_logger("controller.store")


class Attempts:
    """`session` is what the connections call. `source` draws the order of the servers, and nonces."""

    def __init__(
        self,
        session: Session,
        servers: ConnectString,
        *,
        session_timeout_ms: int,
        max_in_flight: int,
        source: random.Random,
        security: SessionSecurity,
        metrics: SessionMetrics,
    ) -> None:
        self.problem = ""
        """Why the session has no connection, after a semicolon."""
        self._session = session
        self._servers = servers.servers
        self._chroot = Chroot(servers.chroot)
        self._session_timeout_ms = session_timeout_ms
        self._max_in_flight = max_in_flight
        self._source = source
        self._security = security
        self._metrics = metrics
        self._round: list[Address] | None = None
        """The servers that are still to be tried; None before the first one."""
        self._pause_s = FIRST_PAUSE_S
        self._unreachable: dict[Address, str] = {}
        """Why the servers could not be reached in this outage."""

    async def next_server(self) -> Address:
        """Returns the server to try next, after a pause if all were tried (A)."""
        if not self._round:
            if self._round is not None:
                await asyncio.sleep(self._pause_s)
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._round = list(self._servers)
            self._source.shuffle(self._round)
        return self._round.pop(0)

    def connection(self, server: Address, session_id: int, password: bytes, last_zxid: int) -> ZooKeeperConnection:
        """Returns a connection, not yet made, that asks for a session: a new one if the id is 0."""
        return ZooKeeperConnection(
            str(server),
            self._session,
            codec.connect_frame(session_id, password, self._session_timeout_ms, last_zxid),
            self._security.new_login(self._source),
            self._chroot,
            self._max_in_flight,
            self._metrics.answered,
        )

    async def word_of(self, server: Address, connection: ZooKeeperConnection) -> Granted | None:
        """Makes the connection; returns what the server says of the session, None if it says nothing (B)."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._session_timeout_ms / 1000 * 2 / 3 / len(self._servers)):
                await loop.create_connection(
                    lambda: connection, server.host, server.port, **self._security.tls_options(server.host)
                )
                granted = await connection.word()
        except (OSError, TimeoutError) as error:
            connection.abort(str(error) or "it takes too long")
            granted = None
        except BaseException:
            connection.abort("canceled")
            raise
        if granted is None:
            self.failed(server, connection)
        return granted

    def failed(self, server: Address, connection: ZooKeeperConnection, *, is_wrong: bool = False) -> None:
        """Notes an attempt that has failed (C). `is_wrong`: the server has not the data of the cluster."""
        self.problem = f"; {server}: {connection.reason}"
        if connection.failed_login:
            self._metrics.login_failed()
        if self._unreachable.get(server) != connection.reason:
            self._unreachable[server] = connection.reason
            report = log.error if is_wrong or connection.failed_login else log.warning
            report("no connection to ZooKeeper", server=str(server), reason=connection.reason)

    def succeeded(self) -> None:
        """The session has a connection."""
        self.problem = ""
        self._pause_s = FIRST_PAUSE_S
        self._unreachable.clear()

    async def fault_at(self, connection: ZooKeeperConnection, path: str, fault_of: FaultOf) -> str:
        """Returns what is wrong with the pinned entry at a server (D); nothing if the connection is lost."""
        answer = asyncio.get_running_loop().create_future()
        connection.send(codec.get_data(path, self._chroot), answer.set_result)
        match await answer:
            case ConnectionLost():
                return ""
            case NoEntry():
                return f"{path} is missing"
            case MetadataStoreError() as error:
                return str(error)
            case entry:
                try:
                    return fault_of(entry.data)
                except StoreDamaged as error:
                    return str(error)
