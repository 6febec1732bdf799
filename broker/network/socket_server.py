"""The listeners, the connections they accept, and what all connections share.

One scratch buffer for reading, one list of connections that have something to write, one look around (`sweep`) instead
of a timer per connection. Between `enter` and `leave` requests are being handled: what they and the operations they
released have to say is written when the callback ends, once per connection.

Limits: `max_request_bytes` (socket.request.max.bytes), `idle_ms` (connections.max.idle.ms), `max_connections`,
`max_connections_per_ip` with overrides by address, `connection_descriptors`. A connection above a limit is closed as it
comes.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import select
import socket
from collections.abc import Callable, Iterable
from typing import Any

from odradek.broker.handlers.request_context import ConnectionInfo
from odradek.broker.listeners import Listener
from odradek.broker.network.complaints import Complaints
from odradek.broker.network.connection import Connection, Dispatch
from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.endpoint import Endpoint
from odradek.broker.network.file_sending import RunInThread
from odradek.broker.network.queued_bytes import QueuedBytes
from odradek.timer import Clock

SCRATCH_BYTES = 256 * 1024
"""More than any frame that is not large, with its length."""
CUT_OFF_AFTER_MS = 1000
EVERY_INTERFACE = ["0.0.0.0", "::"]
NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class BindError(Exception):
    """A listener's address is taken or not ours. The message is for people."""


class NetworkCounters:
    __slots__ = ("accepted", "bytes_in", "bytes_out", "closed", "expired", "refused")

    def __init__(self) -> None:
        self.accepted: int = 0
        self.closed: int = 0
        self.expired: int = 0
        """Closed after connections.max.idle.ms."""
        self.refused: int = 0
        """Closed because there were too many."""
        self.bytes_in: int = 0
        self.bytes_out: int = 0


class SocketServer:
    def __init__(
        self,
        *,
        clock: Clock,
        dispatch: Dispatch,
        drain_completions: Callable[[], object],
        run_in_thread: RunInThread,
        limits: ConnectionLimits,
        complaints: Complaints,
    ) -> None:
        """`drain_completions` completes what the handled requests released; called at the end of every callback.

        `limits` may be replaced while it runs; they hold for what comes next."""
        self.clock = clock
        self.dispatch = dispatch
        self.run_in_thread = run_in_thread
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.counters: NetworkCounters = NetworkCounters()
        self.connections: dict[Connection, None] = {}
        self.blocked: dict[Connection, None] = {}
        """Those that are not read, or were not when this was last looked at."""
        self.not_read_by: dict[Connection, int] = {}
        """Those that do not take their answers as fast as they come, the longest first, and how many bytes waited for
        each when this was last looked at."""
        self._closing: dict[Connection, None] = {}
        self.limits = limits
        self.queued: QueuedBytes[Connection] = QueuedBytes(lambda: self.limits.max_queued_bytes)
        self._drain_completions = drain_completions
        self._complaints = complaints
        self._servers: list[asyncio.Server] = []
        self._by_address: dict[str, int] = {}
        self._unflushed: list[Connection] = []
        self._entered = False
        self._flush_is_due = False
        self._next_idle_look_ms = clock.now_ms() + limits.idle_ms
        self._stopping = False
        self._all_gone: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- listening ----------------------------------------------------------------------------------------------

    async def bind(self, addresses: Iterable[Listener]) -> list[Endpoint]:
        """Takes the addresses without accepting anyone yet. Raises BindError, and then holds none of them."""
        self._loop = asyncio.get_running_loop()
        try:
            return [await self._bind(address) for address in addresses]
        except BindError:
            for server in self._servers:
                server.close()
            raise

    async def start(self) -> None:
        """Accepts connections from now on."""
        for server in self._servers:
            await server.start_serving()

    async def stop_accepting(self) -> None:
        """Lets go of the addresses; those who are connected stay."""
        for server in self._servers:
            server.close()

    async def stop(self, grace_ms: int) -> None:
        """Answers what is parked and ends every connection; cuts off those that take more than grace_ms for it.

        Before this, let the parked requests expire."""
        self._stopping = True
        await self.stop_accepting()
        for connection in list(self.connections):
            connection.end_when_answered()
        if self.connections:
            self._all_gone = asyncio.Event()
            cut = asyncio.get_running_loop().call_later(grace_ms / 1000, self._cut_everyone_off)
            await self._all_gone.wait()
            cut.cancel()
        self._servers.clear()

    def _size_buffers(self, server: asyncio.Server) -> None:
        """Accepted sockets take over the listening one's buffers."""
        sizes = (
            (socket.SO_RCVBUF, self.limits.receive_buffer_bytes),
            (socket.SO_SNDBUF, self.limits.send_buffer_bytes),
        )
        for listening in server.sockets:
            for option, size in sizes:
                if size >= 0:
                    listening.setsockopt(socket.SOL_SOCKET, option, size)

    async def _bind(self, address: Listener) -> Endpoint:
        loop = asyncio.get_running_loop()
        port = address.port
        bound = 0
        failure: OSError | None = None
        for host in await self._hosts(address):
            endpoint = Endpoint(address.name, address.security_protocol, address.host, port, None, 0)
            accept = _Acceptor(self, endpoint)
            try:
                server = await loop.create_server(
                    accept, host, port, backlog=self.limits.listen_backlog, start_serving=False
                )
            except OSError as error:
                failure = error
                if error.errno in NO_SUCH_ADDRESS:
                    continue
                raise BindError(_bind_failure(address, error)) from error
            self._servers.append(server)
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

    async def _hosts(self, address: Listener) -> list[str]:
        """The addresses behind a host name, each once: binding them one by one gives all of them the same port."""
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

    # --- the connections' side ----------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        info = connection.info
        peer = connection.transport.get_extra_info("peername")
        host, port = (str(peer[0]), int(peer[1])) if peer else ("", 0)
        self.counters.accepted += 1
        info.client_host = host
        info.client_port = port
        info.number = self.counters.accepted
        connection.last_active_ms = self.clock.now_ms()
        self.connections[connection] = None
        from_there = self._by_address.get(host, 0) + 1
        self._by_address[host] = from_there
        limits = self.limits
        if from_there > limits.max_connections_per_ip_overrides.get(host, limits.max_connections_per_ip):
            self._refuse(connection, "too many connections from one address", limit="max.connections.per.ip")
        elif len(self.connections) > limits.max_connections:
            self._refuse(connection, "too many connections", limit="max.connections")
        elif _descriptor_of(connection) >= limits.connection_descriptors:
            self._refuse(connection, "too many connections", limit="RLIMIT_NOFILE", open=len(self.connections))
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
        self.queued.release(connection)
        host = connection.info.client_host
        left = self._by_address[host] - 1
        if left:
            self._by_address[host] = left
        else:
            del self._by_address[host]
        if self._all_gone is not None and not self.connections:
            self._all_gone.set()

    def closing(self, connection: Connection) -> None:
        connection.close_by_ms = self.clock.now_ms() + CUT_OFF_AFTER_MS
        self._closing[connection] = None

    def enter(self) -> int:
        """Requests are going to be handled. The time."""
        self._entered = True
        return self.clock.now_ms()

    def leave(self) -> None:
        """They have been handled: completes what they released and writes all answers."""
        try:
            self._drain_completions()
        finally:
            self._entered = False
            self._flush()

    def to_be_flushed(self, connection: Connection) -> None:
        self._unflushed.append(connection)
        if not self._entered and not self._flush_is_due:
            self._flush_is_due = True
            self.call_soon(self._flush_later)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        assert self._loop is not None
        self._loop.call_soon(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        assert self._loop is not None
        self._loop.call_later(delay_s, callback, *args)

    def complain(self, event: str, info: ConnectionInfo, **details: Any) -> None:
        self._complaints.tell(event, client=info.client_host, connection=info.connection_id, **details)

    # --- looking around -----------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Ends who hung up unseen or takes too long to close, who reads too little or sends too much, and who is idle.
        Twice a second."""
        now_ms = self.clock.now_ms()
        if self.blocked:
            for connection in self._hung_up():
                connection.end()
        if self._closing:
            for connection in [c for c in self._closing if c.close_by_ms <= now_ms]:
                connection.cut_off()
        if self.not_read_by:
            self._bound_what_is_not_read()
        for connection, size in self.queued.overdue():
            self.complain("a client holds memory with unfinished requests", connection.info, queued_bytes=size)
            connection.cut_off()
        if now_ms >= self._next_idle_look_ms and self.limits.idle_ms >= 0:
            self._expire_idle(now_ms)

    def _bound_what_is_not_read(self) -> None:
        """Cuts off as many as it takes: who has taken nothing since the last look, then, at twice the limit, anyone.

        Only of those who wait for memory: what lies in files may lie there."""
        limit = self.limits.max_unread_bytes_of_all
        sizes = ((connection, connection.transport.get_write_buffer_size()) for connection in self.not_read_by)
        unread = {connection: size for connection, size in sizes if size}
        idle = [connection for connection, size in unread.items() if size == self.not_read_by[connection]]
        self.not_read_by = unread
        total = sum(unread.values())
        for connection in idle if total <= 2 * limit else [*idle, *(other for other in unread if other not in idle)]:
            if total <= limit:
                break
            total -= unread[connection]
            self.complain("a client does not read its answers", connection.info, unread_bytes=unread[connection])
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
        """Those of the blocked whose clients closed their side: nobody reads them, so nobody else would notice."""
        if not hasattr(select, "POLLRDHUP"):
            return []
        poll = select.poll()
        by_descriptor: dict[int, Connection] = {}
        for connection in self.blocked:
            descriptor = _descriptor_of(connection)
            if descriptor >= 0:
                by_descriptor[descriptor] = connection
                poll.register(descriptor, select.POLLRDHUP)
        return [by_descriptor[descriptor] for descriptor, _ in poll.poll(0)]

    def _flush(self) -> None:
        while self._unflushed:
            unflushed, self._unflushed = self._unflushed, []
            for connection in unflushed:
                connection.flush()

    def _flush_later(self) -> None:
        self._flush_is_due = False
        self._flush()

    def _refuse(self, connection: Connection, event: str, **details: Any) -> None:
        self.counters.refused += 1
        self.complain(event, connection.info, **details)
        connection.cut_off()

    def _cut_everyone_off(self) -> None:
        for connection in list(self.connections):
            connection.cut_off()


class _Acceptor:
    """Makes the protocol of each accepted connection. The port is known only after binding."""

    __slots__ = ("_server", "endpoint")

    def __init__(self, server: SocketServer, endpoint: Endpoint) -> None:
        self._server = server
        self.endpoint = endpoint

    def __call__(self) -> Connection:
        return Connection(self._server, self.endpoint)


def _descriptor_of(connection: Connection) -> int:
    """-1 where there is none: it is closed, or simulated."""
    peer = connection.transport.get_extra_info("socket")
    return -1 if peer is None else int(peer.fileno())


def is_address(host: str) -> bool:
    """Whether it is an IPv4 or IPv6 address, which need not be looked up."""
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
