"""Connects a session with ZooKeeper's servers, again after each connection that ends.

    (A) The servers are tried one after the other, in an order drawn at random. After each round of all of them there is
        a pause, which doubles up to a second. Names are resolved at each attempt.
    (B) With a login, each connection begins with it. A server that does not accept it is logged as an error, and tried
        again like one that cannot be reached: the session goes on when the login succeeds.
    (C) A server that says that the session has ended ends this attempt. The session decides what comes next.

Source: ZooKeeper's `StaticHostProvider`; Kafka's `ZooKeeperClient`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import structlog

from odradek.broker.logging.lasting_failure import LastingFailure
from odradek.broker.metadata_store.session_metrics import SessionMetrics
from odradek.broker.metadata_store.zookeeper.codec import Granted
from odradek.broker.metadata_store.zookeeper.connection import ZooKeeperConnection
from odradek.broker.metadata_store.zookeeper.session_security import SessionSecurity
from odradek.broker.settings.connect_string import Address
from odradek.timer import Clock

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0

log = structlog.get_logger("controller.store")

OnExpired = Callable[[Address], Awaitable[bool]]
"""Receives the server; returns whether there is another session, connected to this server."""


class Connector:
    """`new_connection` returns the next connection of the session, to a server. `source` draws the order (A)."""

    def __init__(
        self,
        servers: Sequence[Address],
        session_timeout_ms: int,
        security: SessionSecurity,
        source: random.Random,
        metrics: SessionMetrics,
        new_connection: Callable[[Address], ZooKeeperConnection],
        clock: Clock,
    ) -> None:
        self._servers = servers
        self._attempt_s = session_timeout_ms / 1000 * 2 / 3 / len(servers)
        """How long one server may take: all of them are tried within two thirds of a session time-out."""
        self._security = security
        self._source = source
        self._metrics = metrics
        self._new_connection = new_connection
        self.problem = ""
        """Why the last attempt failed, as the end of a sentence."""
        self._verdict: asyncio.Future[Granted | None] | None = None
        """What the server says to the handshake under way; None if the connection ends first."""
        self._lost = asyncio.Event()
        self._outage = LastingFailure(clock)

    async def run(self, on_expired: OnExpired) -> None:
        """Connects until it is canceled. `on_expired` is called when a server says that the session has ended (C)."""
        pause_s = FIRST_PAUSE_S
        while True:
            servers = list(self._servers)
            self._source.shuffle(servers)
            for server in servers:
                if await self._is_attached(server, on_expired):
                    pause_s = FIRST_PAUSE_S
                    await self._lost.wait()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def granted(self, granted: Granted) -> None:
        """The server's word on the session has come."""
        if self._verdict is not None and not self._verdict.done():
            self._verdict.set_result(granted)

    def attached(self) -> None:
        """The session has a connection."""
        self.problem = ""
        self._outage.over()

    def lost(self, connection: ZooKeeperConnection) -> None:
        """The latest connection has ended."""
        if self._verdict is not None and not self._verdict.done():
            self._verdict.set_result(None)
        self.problem = f"; {connection.server}: {connection.reason}"
        self._lost.set()

    async def _is_attached(self, server: Address, on_expired: OnExpired) -> bool:
        """Connects to one server. Returns whether the session has a connection now."""
        granted = await self.verdict_of(server, self._new_connection(server))
        if granted is None or granted.timeout_ms > 0:
            return granted is not None
        return await on_expired(server)

    async def verdict_of(self, server: Address, connection: ZooKeeperConnection) -> Granted | None:
        """Returns the server's word on the session; None if there is none, which is logged."""
        loop = asyncio.get_running_loop()
        self._lost.clear()
        self._verdict = loop.create_future()
        granted = None
        try:
            async with asyncio.timeout(self._attempt_s):
                options = self._security.tls_options(server.host)
                await loop.create_connection(lambda: connection, server.host, server.port, **options)
                granted = await self._verdict
        except (OSError, TimeoutError) as error:
            connection.abort(str(error) or "it takes too long")
        except BaseException:
            connection.abort("canceled")
            raise
        if granted is None:
            self.note_failure(server, connection)
        elif granted.timeout_ms <= 0:
            connection.abort("the session has ended")
        return granted

    def note_failure(self, server: Address, connection: ZooKeeperConnection, *, is_wrong: bool = False) -> None:
        """Logs the failures of an outage, each once, and one of them every minute. `is_wrong`: the server is there."""
        if connection.failed_login:
            self._metrics.login_failed()
        line = log.error if is_wrong or connection.failed_login else log.warning
        reason = connection.reason
        self._outage.met(line, (server, reason), "no connection to ZooKeeper", server=str(server), reason=reason)
