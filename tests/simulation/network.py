"""A network in memory, for the `create_server` and `create_connection` of the simulated loop.

*Hosts.* A node runs on the host of its name, which has one address: `add_host("broker-1", "10.0.0.1")`. A node that
listens or connects is the one that NODE names. Delivery is in order within a direction of a connection; each chunk
takes a random delay, and may be split in two.

*Flow control.* A sender has WINDOW_BYTES under way or unread at the receiver; the rest waits in its transport, which
calls `pause_writing` and `resume_writing` as asyncio's transports do.

*Faults.*
    cut(a, b)          nothing arrives from a to b until `heal`. What was sent is held, and arrives after the cut in
                       order; after RESET_AFTER_S the sender gives up its connection. New connections wait
    reset(a, b)        all connections between two hosts break, and what is under way is lost
    slow_down(a, b, n) delays from a to b are n times as long
    ended(node)        the node was killed. Its host resets its connections, or says nothing (the host lost power): then
                       its peers learn of it only when they send to the restarted host
A connection that one side has given up answers whatever still arrives with a reset, unless that is cut.

`on_event` gets every delivery, connection and reset: the trace.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Any, cast

from tests.simulation.loop import NODE, Node, SimulatedLoop

WINDOW_BYTES = 256 * 1024
HIGH_WATER_BYTES = 64 * 1024
RESET_AFTER_S = (4.0, 12.0)
CONNECT_RETRY_S = 0.5
CONNECT_TIMEOUT_S = 10.0
FIRST_FREE_PORT = 40_000
BYTES_PER_US = 100
EVERY_ADDRESS = ("", "0.0.0.0", "::")

Address = tuple[str, int]
OnEvent = Callable[[str, str, str, bytes], object]
"""event, from, to, content."""


class Link:
    """One direction between two hosts."""

    __slots__ = ("is_cut", "slowness")

    def __init__(self) -> None:
        self.is_cut = False
        self.slowness = 1.0


class Host:
    """A machine with one address. `node` is the process that runs on it, if it does."""

    __slots__ = ("address", "is_up", "name", "next_port", "node")

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.node: Node | None = None
        self.is_up = True
        """Whether it answers anything at all."""
        self.next_port = FIRST_FREE_PORT

    def free_port(self) -> int:
        """A port for a connection that goes out, or a listener that asks for any."""
        self.next_port += 1
        return self.next_port


class ListeningSocket:
    """What callers of asyncio ask a listening socket."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        """See socket."""
        return self._address


class Server(asyncio.AbstractServer):
    """A listener, as asyncio.Server."""

    def __init__(self, network: Network, address: Address, factory: Callable[[], Any], node: Node) -> None:
        self.address = address
        self.factory = factory
        self.node = node
        self.context = copy_context()
        self.sockets = [ListeningSocket(address)]
        self._network = network
        self._serving = False
        self._closed = False

    def is_serving(self) -> bool:
        """See asyncio."""
        return self._serving

    async def start_serving(self) -> None:
        """See asyncio."""
        self._serving = not self._closed

    def close(self) -> None:
        """See asyncio: accepted connections stay."""
        self._serving = False
        self._closed = True
        self._network.unbind(self)

    async def wait_closed(self) -> None:
        """See asyncio."""

    async def serve_forever(self) -> None:
        """See asyncio."""
        await self.start_serving()
        await asyncio.Event().wait()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """See asyncio."""
        return self._network.loop


class Network:
    """See the head of this file."""

    def __init__(self, loop: SimulatedLoop, source: Random, on_event: OnEvent) -> None:
        loop.network = self
        self.loop = loop
        self.source = source
        self.on_event = on_event
        self.shortest_s = 0.0001
        self.mean_s = 0.0004
        """The delay of a chunk is the shortest plus a random time of this mean, times the slowness of the link."""
        self.split_chance = 0.05
        self.hosts: dict[str, Host] = {}
        self.messages = 0
        """How many chunks were delivered."""
        self.connections: dict[Transport, None] = {}
        """One end of each connection: the client's."""
        self._names: dict[str, str] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._servers: dict[Address, Server] = {}

    # --- hosts and faults ---------------------------------------------------------------------------------------

    def add_host(self, name: str, address: str) -> None:
        """Adds a host on which no node runs yet."""
        self.hosts[name] = Host(name, address)
        self._names[address] = name

    def started(self, node: Node) -> None:
        """A node has started on the host of its name. It answers with resets what others send to its predecessor."""
        host = self.hosts[node.name]
        host.node = node
        host.is_up = True

    def ended(self, node: Node, *, silently: bool = False) -> None:
        """A node was killed; see the head of this file."""
        host = self.hosts[node.name]
        host.node = None
        host.is_up = not silently
        for server in [server for server in self._servers.values() if server.node is node]:
            self.unbind(server)
        for connection in list(self.connections):
            for end in (connection, connection.peer):
                if end.node is node:
                    end.vanish(silently=silently)

    def link(self, source: str, target: str) -> Link:
        """The direction from one host to another."""
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link()
        return link

    def cut(self, source: str, target: str) -> None:
        """Lets nothing arrive from `source` to `target`."""
        self.link(source, target).is_cut = True

    def heal(self, source: str, target: str) -> None:
        """Ends a cut: what is held arrives now."""
        self.link(source, target).is_cut = False
        for connection in list(self.connections):
            for end in (connection, connection.peer):
                if end.host == target and end.peer.host == source:
                    end.release()

    def slow_down(self, source: str, target: str, slowness: float) -> None:
        """Delays from `source` to `target` are `slowness` times as long from now on."""
        self.link(source, target).slowness = slowness

    def reset(self, one: str, other: str) -> int:
        """Breaks all connections between two hosts, both ways; returns their number."""
        broken = [end for end in self.connections if {end.host, end.peer.host} == {one, other}]
        for end in broken:
            end.reset_soon("cut off")
            end.peer.reset_soon("cut off")
        return len(broken)

    def delay_us(self, source: str, target: str, size: int = 0) -> int:
        """Draws how long something of `size` bytes takes from one host to another."""
        slowness = self.link(source, target).slowness
        seconds = self.shortest_s + self.source.expovariate(1 / self.mean_s)
        return int(seconds * slowness * 1e6) + size // BYTES_PER_US

    # --- servers ------------------------------------------------------------------------------------------------

    async def create_server(
        self,
        protocol_factory: Callable[[], Any],
        host: str | None = None,
        port: int | None = None,
        *,
        start_serving: bool = True,
        backlog: int = 100,
        **kwargs: Any,
    ) -> Server:
        """See asyncio: listens on one address of the caller's host."""
        if kwargs:
            raise TypeError(f"the simulated network knows no {', '.join(kwargs)}")
        node = _caller()
        own = self.hosts[node.name]
        if host not in EVERY_ADDRESS and host != own.address:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        address = (own.address, port or own.free_port())
        if address in self._servers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        server = self._servers[address] = Server(self, address, protocol_factory, node)
        if start_serving:
            await server.start_serving()
        return server

    def unbind(self, server: Server) -> None:
        """Frees the server's address."""
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    # --- connections --------------------------------------------------------------------------------------------

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str | None = None, port: int | None = None, **kwargs: Any
    ) -> tuple[Transport, Any]:
        """See asyncio: connects from the caller's host. Raises OSError."""
        if kwargs:
            raise TypeError(f"the simulated network knows no {', '.join(kwargs)}")
        node = _caller()
        there = self._names.get(host or "")
        if there is None:
            raise OSError(f"the simulated network knows no host {host!r}")
        server = await self._reach(node.name, there, (cast(str, host), cast(int, port)))
        local = (self.hosts[node.name].address, self.hosts[node.name].free_port())
        client = Transport(self, node, copy_context(), local)
        accepted = Transport(self, server.node, server.context.copy(), server.address)
        client.join(accepted)
        self.connections[client] = None
        self.on_event("connect", node.name, there, b"%d" % local[1])
        self.loop.call_soon(_accept, server, accepted, context=accepted.context)
        try:
            await self._sleep_us(self.delay_us(there, node.name))
        except asyncio.CancelledError:
            client.abort()
            raise
        if client.is_broken:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        protocol = protocol_factory()
        client.begin(protocol)
        return client, protocol

    async def _reach(self, source: str, target: str, address: Address) -> Server:
        """Returns the server at the address, when the caller's first packet has arrived there. Raises OSError."""
        give_up_us = self.loop.now_us + int(CONNECT_TIMEOUT_S * 1e6)
        there = self.hosts[target]
        while self.link(source, target).is_cut or self.link(target, source).is_cut or not there.is_up:
            if self.loop.now_us >= give_up_us:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            await self._sleep_us(int(CONNECT_RETRY_S * 1e6))
        await self._sleep_us(self.delay_us(source, target))
        server = self._servers.get(address)
        if server is None or not server.is_serving() or not server.node.is_alive:
            self.on_event("refuse", source, target, b"")
            await self._sleep_us(self.delay_us(target, source))
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return server

    async def _sleep_us(self, us: int) -> None:
        await asyncio.sleep(us / 1e6)


class Transport(asyncio.Transport):
    """One end of a connection. What arrives is delivered in the context of its node."""

    def __init__(self, network: Network, node: Node, context: Context, address: Address) -> None:
        super().__init__()
        self.node = node
        self.host = node.name
        self.context = context
        self.address = address
        self.peer: Transport = self
        self.is_broken = False
        """Whether connection_lost has been, or is about to be called."""
        self.unread_bytes = 0
        """What this end has sent and the other has not read."""
        self._network = network
        self._loop = network.loop
        self._protocol: Any = None
        self._is_buffered = False
        self._is_reading = True
        self._is_closing = False
        self._is_writing_paused = False
        self._high_water = HIGH_WATER_BYTES
        self._low_water = HIGH_WATER_BYTES // 4
        self._last_arrival_us = 0
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._held: deque[bytes | None] = deque()
        """What a cut keeps from this end; None: the end of the stream."""
        self._held_timer: Any = None
        self._received: deque[bytes | None] = deque()
        """What has arrived and the protocol has not taken."""

    def join(self, peer: Transport) -> None:
        """Makes the two transports the ends of one connection."""
        self.peer = peer
        peer.peer = self

    def begin(self, protocol: Any) -> None:
        """Starts to deliver to the protocol."""
        self.set_protocol(protocol)
        protocol.connection_made(self)
        self._deliver()

    # --- asyncio's transport ------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The addresses. There is no socket."""
        return {"peername": self.peer.address, "sockname": self.address}.get(name, default)

    def set_protocol(self, protocol: Any) -> None:
        """See asyncio."""
        self._protocol = protocol
        self._is_buffered = hasattr(protocol, "get_buffer")

    def get_protocol(self) -> Any:
        """See asyncio."""
        return self._protocol

    def is_closing(self) -> bool:
        """See asyncio."""
        return self._is_closing or self.is_broken

    def is_reading(self) -> bool:
        """See asyncio."""
        return self._is_reading and not self.is_closing()

    def pause_reading(self) -> None:
        """See asyncio."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """See asyncio."""
        if not self._is_reading:
            self._is_reading = True
            if self._received:
                self._loop.call_soon(self._deliver, context=self.context)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio."""
        self._high_water = HIGH_WATER_BYTES if high is None else high
        self._low_water = self._high_water // 4 if low is None else low
        self._pause_if_full()

    def get_write_buffer_size(self) -> int:
        """See asyncio."""
        return self._unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """See asyncio."""
        return self._low_water, self._high_water

    def write(self, data: Any) -> None:
        """See asyncio."""
        if self.is_closing() or not data:
            return
        self._unsent.append(bytes(data))
        self._unsent_bytes += len(data)
        self._send()
        self._pause_if_full()

    def writelines(self, list_of_data: Any) -> None:
        """See asyncio."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """See asyncio."""
        return False

    def close(self) -> None:
        """See asyncio: what was written is still sent."""
        if not self.is_closing():
            self._is_closing = True
            self._received.clear()
            self._end_if_all_is_sent()

    def abort(self) -> None:
        """See asyncio: what was not sent is dropped, and the other side is reset."""
        if not self.is_broken:
            self.peer.drop_held()
            self.peer.reset_soon("aborted")
            self._break(None)

    # --- sending ------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Sends what the window has room for."""
        while self._unsent and self.unread_bytes < WINDOW_BYTES:
            data = self._unsent.popleft()
            room = WINDOW_BYTES - self.unread_bytes
            if len(data) > room:
                self._unsent.appendleft(data[room:])
                data = data[:room]
            self._unsent_bytes -= len(data)
            self.unread_bytes += len(data)
            self._transmit(data)

    def _transmit(self, data: bytes) -> None:
        network = self._network
        host = network.hosts[self.peer.host]
        if not self.peer.node.is_alive and host.is_up and host.node is not self.peer.node:
            if not network.link(self.peer.host, self.host).is_cut:
                self.reset_soon("unknown to the peer")
            return
        source = network.source
        if len(data) > 1 and source.random() < network.split_chance:
            at = source.randrange(1, len(data))
            self._depart(data[:at])
            data = data[at:]
        self._depart(data)

    def _depart(self, data: bytes | None) -> None:
        delay_us = self._network.delay_us(self.host, self.peer.host, len(data or b""))
        arrival_us = self._last_arrival_us = max(self._last_arrival_us, self._loop.now_us + delay_us)
        self._loop.call_at(arrival_us / 1e6, self.peer.arrive, data, context=self.peer.context)

    def _pause_if_full(self) -> None:
        if self._unsent_bytes > self._high_water and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def _send_more(self) -> None:
        """The peer has read something."""
        if self.is_broken:
            return
        self._send()
        if self._unsent_bytes <= self._low_water and self._is_writing_paused:
            self._is_writing_paused = False
            self._protocol.resume_writing()
        self._end_if_all_is_sent()

    def _end_if_all_is_sent(self) -> None:
        if self._is_closing and not self._unsent and not self.is_broken:
            if self.peer.node.is_alive:
                self._depart(None)
            self._break(None)

    # --- receiving ----------------------------------------------------------------------------------------------

    def arrive(self, data: bytes | None) -> None:
        """A chunk has come to the end of its way, or the end of the stream."""
        if self._held or self._network.link(self.peer.host, self.host).is_cut:
            self._hold(data)
            return
        if self._is_closing or self.is_broken:
            if data is not None and not self.peer.is_broken:
                self.peer.reset_soon("closed by the peer")
            return
        self._network.messages += 1
        self._network.on_event("deliver", self.peer.host, self.host, b"" if data is None else data)
        self._received.append(data)
        if len(self._received) == 1:
            self._deliver()

    def _hold(self, data: bytes | None) -> None:
        self._held.append(data)
        if self._held_timer is None:
            after = self._network.source.uniform(*RESET_AFTER_S)
            self._held_timer = self._loop.call_later(after, self._give_up, context=self.peer.context)

    def _give_up(self) -> None:
        """What is held has not been acknowledged for too long: the sender ends the connection."""
        self._held_timer = None
        if self._held:
            self._held.clear()
            self.peer.break_off(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    def release(self) -> None:
        """The cut has ended: what was held arrives, in order."""
        if self._held_timer is not None:
            self._held_timer.cancel()
            self._held_timer = None
        self._loop.call_soon(self._arrive_late, context=self.context)

    def drop_held(self) -> None:
        """The sender has given up what a cut holds."""
        self._held.clear()

    def _arrive_late(self) -> None:
        held, self._held = self._held, deque()
        for data in held:
            self.arrive(data)

    def _deliver(self) -> None:
        received = self._received
        while received and self._protocol is not None and self.is_reading():
            data = received[0]
            if data is None:
                received.popleft()
                if not self._protocol.eof_received():
                    self.close()
            elif self._is_buffered:
                self._fill_buffer(data)
            else:
                received.popleft()
                self._protocol.data_received(data)
                self._has_read(len(data))

    def _fill_buffer(self, data: bytes) -> None:
        buffer = memoryview(self._protocol.get_buffer(-1))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        if size == len(data):
            self._received.popleft()
        else:
            self._received[0] = data[size:]
        self._protocol.buffer_updated(size)
        self._has_read(size)

    def _has_read(self, size: int) -> None:
        self.peer.unread_bytes -= size
        if self.peer._unsent:
            self._loop.call_soon(self.peer._send_more, context=self.peer.context)

    # --- the end ------------------------------------------------------------------------------------------------

    def reset_soon(self, why: str) -> None:
        """The other side, or something between, ends the connection: this end learns of it when the news arrives."""
        if not self.is_broken and self.node.is_alive:
            delay_us = self._network.delay_us(self.peer.host, self.host)
            self._loop.call_later(delay_us / 1e6, self._be_reset, why, context=self.context)

    def _be_reset(self, why: str) -> None:
        if not self._network.link(self.peer.host, self.host).is_cut or why == "cut off":
            self._network.on_event(f"reset, {why}", self.peer.host, self.host, b"")
            self.break_off(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def break_off(self, error: OSError) -> None:
        """Ends this end with an error."""
        if not self.is_broken:
            self._break(error)

    def vanish(self, *, silently: bool) -> None:
        """The node of this end was killed."""
        self.is_broken = True
        self._forget()
        if not silently:
            self.peer.reset_soon("its process has ended")

    def _break(self, error: OSError | None) -> None:
        self.is_broken = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._received.clear()
        self._loop.call_soon(self._lose, error, context=self.context)
        self._forget()

    def _forget(self) -> None:
        if self.peer.is_broken:
            self._network.connections.pop(self, None)
            self._network.connections.pop(self.peer, None)

    def _lose(self, error: OSError | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)


def _accept(server: Server, transport: Transport) -> None:
    """Runs as the server's node."""
    if not server.is_serving():
        transport.abort()
    elif not transport.is_broken:
        transport.begin(server.factory())


def _caller() -> Node:
    node = NODE.get()
    if node is None:
        raise RuntimeError("only a node can listen and connect: see SimulatedLoop.run_as")
    return node
