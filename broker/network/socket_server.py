"""The listeners, the connections they accept, and what all connections share.

A single periodic `sweep` replaces a timer per connection. rounds.py has what connections share while requests are
handled.

Limits: `max_request_bytes` (socket.request.max.bytes), `idle_ms` (connections.max.idle.ms), `max_connections`,
`max_connections_per_ip` with overrides by address, `connection_descriptors`. A connection above a limit is closed as
soon as it is accepted, unless another one, whose client has not logged in, makes room (logins.py).

A listener with TLS puts tls_transport.py between its sockets and its connections; others know nothing of it.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import math
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from odradek.broker.logging.client_warnings import ClientWarnings
from odradek.broker.network.arrivals import TOO_MANY, Arrivals, Listening
from odradek.broker.network.connection import ENDING, Connection
from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.file_reading import FileReading
from odradek.broker.network.file_sending import FileSending, NewSending, RunInThread
from odradek.broker.network.hang_ups import hung_up
from odradek.broker.network.logins import Logins
from odradek.broker.network.queued_bytes import Queues
from odradek.broker.network.rounds import Dispatch, NetworkCounters, Rounds
from odradek.broker.network.shares import Shares
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_context import ConnectionInfo
from odradek.broker.settings.listeners import SASL_PROTOCOLS, TLS_PROTOCOLS, Listener
from odradek.timer import Clock

if TYPE_CHECKING:
    from odradek.broker.network.handshakes import Handshakes
    from odradek.broker.network.listener_tls import ListenerTls

CUT_OFF_AFTER_MS = 1000
EVERY_INTERFACE = ["0.0.0.0", "::"]  # nosec B104 # only for a listener whose host is empty
PROTOCOL = (
    *("connection_made", "connection_lost", "get_buffer", "buffer_updated", "eof_received"),
    *("pause_writing", "resume_writing"),
)
"""The methods of asyncio.BufferedProtocol."""
Admit = Callable[[ConnectionInfo], None]
Wrap = Callable[[Connection], asyncio.BufferedProtocol]
"""Makes of a connection what the loop takes."""
_NOBODY: Mapping[str, Admit] = MappingProxyType({})
NO_TLS: Mapping[str, ListenerTls] = MappingProxyType({})
BoundSockets = Mapping[str, Sequence[socket.socket]]
"""Listening sockets, by the name of their listener."""
NO_SOCKETS: BoundSockets = MappingProxyType({})
NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class BindError(Exception):
    """A listener cannot bind its address: in use, or not allowed. The message is for users."""


class SocketServer:
    def __init__(
        self,
        *,
        clock: Clock,
        dispatch: Dispatch,
        drain_completions: Callable[[], object],
        run_in_thread: RunInThread,
        limits: ConnectionLimits,
        client_warnings: ClientWarnings,
        tls: Mapping[str, ListenerTls] = NO_TLS,
        admit: Mapping[str, Admit] = _NOBODY,
        ended: Callable[[ConnectionInfo], object] | None = None,
    ) -> None:
        """`drain_completions` completes the operations that the handled requests released. It is called at the end of
        every callback.

        `limits` may be replaced while the server runs; new limits apply from then on. `tls`: of the listeners that have
        it, by name. `admit` has, by the names of listeners with SASL, what is called with each new connection: it
        replaces the dispatch. A listener that lacks one of them is not bound. `ended` is called with each connection
        that has ended.
        """
        self.rounds = Rounds(clock, dispatch, drain_completions, limits)
        self.run_in_thread = run_in_thread
        self.connections: dict[Connection, None] = {}
        self.blocked: dict[Connection, None] = {}
        """Connections that are not read now, or were not at the last sweep."""
        self.not_read_by: dict[Connection, int] = {}
        """Connections whose clients take responses more slowly than they are produced, the longest first, with the
        unsent bytes of each at the last sweep."""
        self._closing: dict[Connection, None] = {}
        self.admit = admit
        self.queues: Queues[Connection] = Queues(lambda: self.limits, self._end_queued)
        self.logins: Logins[Connection] = Logins(lambda: self.limits.login_timeout_ms)
        self._ended = ended
        self._client_warnings = client_warnings
        self._tls = tls
        self.handshakes: Handshakes | None = None
        """Of TLS; None without a listener that has it."""
        self._servers: list[asyncio.Server] = []
        self._acceptors: list[_Acceptor] = []
        """For each server."""
        self.arrivals: Arrivals | None = None
        """None if the network is simulated: it has no sockets."""
        self._by_address: dict[str, int] = {}
        self._next_idle_look_ms = clock.now_ms() + limits.idle_ms
        self._stopping = False
        self._all_gone: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def counters(self) -> NetworkCounters:
        return self.rounds.counters

    @property
    def limits(self) -> ConnectionLimits:
        """The current limits; new limits apply from the time they are set."""
        return self.rounds.limits

    @limits.setter
    def limits(self, limits: ConnectionLimits) -> None:
        self.rounds.limits = limits

    # --- listening ----------------------------------------------------------------------------------------------

    async def bind(self, addresses: Iterable[Listener], bound: BoundSockets = NO_SOCKETS) -> list[Endpoint]:
        """Binds the addresses without accepting connections yet; or takes over the `bound` sockets, of which the caller
        closes its own. Raises BindError and then leaves none bound.
        """
        self._loop = asyncio.get_running_loop()
        self.rounds.call_soon = self._loop.call_soon
        try:
            return [await self._bind(address, bound.get(address.name, ())) for address in addresses]
        except BindError:
            for server in self._servers:
                server.close()
            raise

    def duplicated_sockets(self) -> BoundSockets:
        """Returns the listening sockets for another server. They accept connections until the caller closes them, too,
        even if this server stops."""
        found: dict[str, list[socket.socket]] = {}
        for accept, server in zip(self._acceptors, self._servers, strict=True):
            found.setdefault(accept.endpoint.name, []).extend(
                socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets
            )
        return found

    async def start(self) -> None:
        """Starts to accept connections."""
        for accept, server in zip(self._acceptors, self._servers, strict=True):
            [listening] = server.sockets
            if not hasattr(listening, "fileno"):
                await server.start_serving()
                continue
            has_tls = accept.endpoint.security_protocol in TLS_PROTOCOLS
            self.arrivals = self.arrivals or Arrivals(self, asyncio.get_running_loop())
            self.arrivals.listen(Listening(listening.fileno(), listening.family, accept, has_tls))

    def abandon(self) -> None:
        """Closes what has arrived and is no connection yet, on an event loop that has ended."""
        if self.arrivals is not None:
            self.arrivals.abandon()

    async def stop_accepting(self) -> None:
        """Closes the listening sockets; open connections stay."""
        if self.arrivals is not None:
            self.arrivals.stop()
        for server in self._servers:
            server.close()

    async def stop(self, grace_ms: int) -> None:
        """Answers parked requests and ends every connection. Aborts those that take longer than grace_ms.

        Let the parked requests expire before this call."""
        self._stopping = True
        await self.stop_accepting()
        if self.arrivals is not None:
            await self.arrivals.all_begun()
        for connection in list(self.connections):
            connection.end_when_answered()
        if self.connections:
            self._all_gone = asyncio.Event()
            cut = asyncio.get_running_loop().call_later(grace_ms / 1000, self._cut_off_all)
            await self._all_gone.wait()
            cut.cancel()
        self._servers.clear()
        self._acceptors.clear()

    def _size_buffers(self, server: asyncio.Server) -> None:
        """Sets the buffer sizes of the listening sockets, which accepted sockets inherit."""
        sizes = (
            (socket.SO_RCVBUF, self.limits.receive_buffer_bytes),
            (socket.SO_SNDBUF, self.limits.send_buffer_bytes),
        )
        for listening in server.sockets:
            for option, size in sizes:
                if size >= 0:
                    listening.setsockopt(socket.SOL_SOCKET, option, size)

    async def _bind(self, address: Listener, sockets: Sequence[socket.socket]) -> Endpoint:
        loop = asyncio.get_running_loop()
        port = address.port
        bound = 0
        failure: OSError | None = None
        for where in sockets or await self._hosts(address):
            endpoint = Endpoint(address.name, address.security_protocol, address.host, port, None, 0)
            accept = self._acceptor(endpoint, loop)
            try:
                server = await self._create_server(loop, accept, where, port)
            except OSError as error:
                failure = error
                if error.errno in NO_SUCH_ADDRESS:
                    continue
                raise BindError(_bind_failure(address, error)) from error
            self._servers.append(server)
            self._acceptors.append(accept)
            self._size_buffers(server)
            port = port or server.sockets[0].getsockname()[1]
            endpoint = Endpoint(
                address.name,
                address.security_protocol,
                address.host,
                port,
                socket.gethostname() if address.advertised_host == "" else address.advertised_host,
                address.advertised_port or port,
            )
            accept.endpoint = endpoint
            bound += 1
        if not bound:
            raise BindError(_bind_failure(address, failure)) from failure
        return endpoint

    async def _create_server(
        self, loop: asyncio.AbstractEventLoop, accept: _Acceptor, where: str | socket.socket, port: int
    ) -> asyncio.Server:
        """Listens on a host, or on a duplicate of a socket that is bound already. Raises OSError."""
        if isinstance(where, str):
            return await loop.create_server(accept, where, port, start_serving=False)
        return await loop.create_server(accept, sock=where.dup(), start_serving=False)

    def _acceptor(self, endpoint: Endpoint, loop: asyncio.AbstractEventLoop) -> _Acceptor:
        if endpoint.security_protocol in TLS_PROTOCOLS:
            return _Acceptor(self, endpoint, FileReading, self._tls_transport(self._tls[endpoint.name]))
        checks_classes = isinstance(loop, asyncio.BaseEventLoop)
        return _Acceptor(self, endpoint, FileSending, _BufferedProtocol if checks_classes else _as_it_is)

    def _tls_transport(self, tls: ListenerTls) -> Wrap:
        """Returns what puts TLS under a connection. A broker without TLS does not import it."""
        from odradek.broker.network.handshakes import Handshakes
        from odradek.broker.network.tls_transport import TlsTransport

        handshakes = self.handshakes = self.handshakes or Handshakes(self, self.rounds.clock)
        return lambda connection: TlsTransport(connection, tls, handshakes)

    async def _hosts(self, address: Listener) -> list[str]:
        """Resolves a host name to distinct addresses. Binding them one by one gives all of them the same port."""
        if not address.host:
            return EVERY_INTERFACE
        if is_address(address.host):
            return [address.host]
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise BindError(f"listener {address.name}: cannot resolve the host {address.host!r}: {error}") from error
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))

    # --- called by connections ----------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        info = connection.info
        peer = connection.transport.get_extra_info("peername")
        host, port = (str(peer[0]), int(peer[1])) if peer else ("", 0)
        self.counters.accepted += 1
        info.comes_from(host, port)
        info.number = self.counters.accepted
        connection.last_active_ms = now_ms = self.rounds.clock.now_ms()
        self.connections[connection] = None
        self.logins.begin(connection, now_ms)
        from_there = self._by_address.get(host, 0) + 1
        self._by_address[host] = from_there
        limits = self.limits
        if from_there > limits.max_connections_per_ip_overrides.get(host, limits.max_connections_per_ip):
            self.refuse(connection, "too many connections from one address", limit="max.connections.per.ip")
        elif len(self.connections) > limits.max_connections:
            self.refuse(self.logins.give_way() or connection, TOO_MANY, limit="max.connections")
        elif self._stopping:
            connection.end()

    def lost(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        self.counters.closed += 1
        del self.connections[connection]
        self.blocked.pop(connection, None)
        self.not_read_by.pop(connection, None)
        self._closing.pop(connection, None)
        self.queues.release(connection)
        self.logins.end(connection)
        host = connection.info.client_host
        left = self._by_address[host] - 1
        if left:
            self._by_address[host] = left
        else:
            del self._by_address[host]
        if self._ended is not None:
            self._ended(connection.info)
        if self._all_gone is not None and not self.connections:
            self._all_gone.set()

    def closing(self, connection: Connection) -> None:
        connection.close_by_ms = self.rounds.clock.now_ms() + CUT_OFF_AFTER_MS
        self._closing[connection] = None

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        assert self._loop is not None
        self._loop.call_soon(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        assert self._loop is not None
        self._loop.call_later(delay_s, callback, *args)

    def warn(self, event: str, info: ConnectionInfo, **details: Any) -> None:
        self._client_warnings.warn(event, client=info.client_host, connection=info.connection_id, **details)

    def refuse(self, connection: Connection, event: str, **details: Any) -> None:
        """Aborts a connection that is above a limit."""
        self.counters.refused += 1
        self.warn(event, connection.info, **details)
        connection.cut_off()

    def make_room(self) -> bool:
        """Ends a connection whose client has not logged in (logins.py), so that its descriptor becomes free. Returns
        False if there is none.
        """
        stranger = self.logins.give_way()
        if stranger is not None:
            self.refuse(stranger, TOO_MANY, limit="RLIMIT_NOFILE", open=len(self.connections))
        return stranger is not None

    def turned_away(self, host: str, event: str, count: int) -> None:
        """Counts and logs connections above a limit that were closed before they began."""
        self.counters.accepted += count
        self.counters.closed += count
        self.counters.refused += count
        limit = {"limit": "RLIMIT_NOFILE"} if event == TOO_MANY else {}
        self._client_warnings.warn(event, client=host, refused=count, open=len(self.connections), **limit)

    def _end_queued(self, connection: Connection, size: int) -> None:
        self.warn("client holds memory with unfinished requests", connection.info, queued_bytes=size)
        connection.cut_off()

    # --- sweeping -----------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Ends connections that are closed by the client but not read, that take too long to close or to agree on TLS,
        whose clients read too little or send too much, and that are idle. Runs twice a second."""
        now_ms = self.rounds.clock.now_ms()
        if self.blocked:
            for connection in self._hung_up():
                connection.end()
        if self._closing:
            for connection in [c for c in self._closing if c.close_by_ms <= now_ms]:
                connection.cut_off()
        for transport in self.handshakes.overdue() if self.handshakes is not None else ():
            self.warn("TLS handshake takes too long", transport.connection.info)
            transport.connection.cut_off()
        if self.not_read_by:
            self._bound_unread_bytes()
        for connection in self.logins.overdue(now_ms):
            if not connection.blocked & ENDING:  # a login that has failed may wait longer for its answer
                self.warn("login takes too long", connection.info)
                connection.cut_off()
        self.queues.check()
        if now_ms >= self._next_idle_look_ms and self.limits.idle_ms >= 0:
            self._expire_idle(now_ms)

    def idle_until_ms(self) -> float:
        """Returns when a sweep will have something to do if nothing happens before; 0 for the next one."""
        handshakes = self.handshakes
        if self.blocked or self._closing or self.not_read_by or not self.queues.is_empty or self.logins:
            return 0
        if handshakes is not None and len(handshakes):
            return 0
        return self._next_idle_look_ms if self.limits.idle_ms >= 0 else math.inf

    def _bound_unread_bytes(self) -> None:
        """Aborts connections until the unread bytes are within the limit: first those that have taken nothing since the
        last sweep, then, above twice the limit, any; in both cases those of the address with most unread bytes first.

        Only bytes in memory count, not slices of files."""
        limit = self.limits.max_unread_bytes_of_all
        sizes = ((connection, connection.transport.get_write_buffer_size()) for connection in self.not_read_by)
        unread = {connection: size for connection, size in sizes if size}
        idle: Shares[Connection] = Shares()
        others: Shares[Connection] = Shares()
        for connection, size in unread.items():
            share = idle if size == self.not_read_by[connection] else others
            share.use(connection, connection.client_host, size)
        self.not_read_by = unread
        total = idle.total + others.total
        for connection in chain(idle.drained(), others.drained() if total > 2 * limit else ()):
            if total <= limit:
                break
            total -= unread[connection]
            self.warn("client does not read responses", connection.info, unread_bytes=unread[connection])
            connection.cut_off()

    def _expire_idle(self, now_ms: int) -> None:
        oldest_ms = now_ms
        for connection in list(self.connections):
            active_ms = connection.active_ms(now_ms)
            if now_ms - active_ms < self.limits.idle_ms:
                oldest_ms = min(oldest_ms, active_ms)
            elif not connection.close_by_ms:
                self.counters.expired += 1
                connection.expire()
        self._next_idle_look_ms = oldest_ms + max(self.limits.idle_ms, 1)

    def _hung_up(self) -> list[Connection]:
        """Returns the blocked connections that clients have closed."""
        by_descriptor = {_descriptor_of(connection): connection for connection in self.blocked}
        return [by_descriptor[each] for each in hung_up(each for each in by_descriptor if each >= 0)]

    def _cut_off_all(self) -> None:
        for connection in list(self.connections):
            connection.cut_off()


class _Acceptor:
    """Creates the protocol of each accepted connection. The port is known only after binding."""

    __slots__ = ("_admit", "_new_sending", "_server", "_wrap", "endpoint")

    def __init__(self, server: SocketServer, endpoint: Endpoint, new_sending: NewSending, wrap: Wrap) -> None:
        self._server = server
        self._new_sending = new_sending
        self._wrap = wrap
        self._admit = server.admit[endpoint.name] if endpoint.security_protocol in SASL_PROTOCOLS else None
        self.endpoint = endpoint

    def __call__(self) -> asyncio.BufferedProtocol:
        connection = Connection(self._server, self.endpoint, self._new_sending)
        if self._admit is not None:
            self._admit(connection.info)
        return self._wrap(connection)


def _as_it_is(connection: Connection) -> asyncio.BufferedProtocol:
    """uvloop calls the methods of a protocol without checking its class."""
    return cast(asyncio.BufferedProtocol, connection)


class _BufferedProtocol(asyncio.BufferedProtocol):
    """Wraps a connection for asyncio's own loop, which checks the class: a compiled class has no interpreted base."""

    def __init__(self, connection: Connection) -> None:
        for name in PROTOCOL:
            setattr(self, name, getattr(connection, name))


def _descriptor_of(connection: Connection) -> int:
    """Returns the socket's descriptor, or -1 if there is none: the socket is closed or simulated."""
    peer = connection.transport.get_extra_info("socket")
    return -1 if peer is None else int(peer.fileno())


def is_address(host: str) -> bool:
    """Whether `host` is an IPv4 or IPv6 address, which needs no lookup."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _bind_failure(address: Listener, error: OSError | None) -> str:
    where = f"{address.host or '*'}:{address.port}"
    if error is not None and error.errno == errno.EADDRINUSE:
        return f"listener {address.name}: port {address.port} is already in use ({where})"
    if error is not None and error.errno == errno.EACCES:
        return f"listener {address.name}: not allowed to listen on {where}"
    reason = "no address" if error is None else error.strerror or str(error)
    return f"listener {address.name}: cannot listen on {where}: {reason}"
