"""A network in memory, for the `create_server` and `create_connection` of the simulated loop.

*Hosts.* A node runs on the host of its name, which has one address: `add_host("broker-1", "10.0.0.1")`. A node that
listens or connects is the one that NODE names. Delivery is in order within a direction of a connection; each chunk
takes a random delay, and may be split in two.

*Faults.*
    cut(a, b)          nothing arrives from a to b until `heal`. What was sent is held, and arrives after the cut in
                       order; after a while the sender gives up its connection. New connections wait
    reset(a, b)        all connections between two hosts break, and what is under way is lost
    slow_down(a, b, n) delays from a to b are n times as long
    ended(node)        the node was killed. Its host resets its connections, or says nothing (the host lost power): then
                       its peers learn of it only when they send to the restarted host

transport.py has the ends of the connections. `on_event` gets every delivery, connection and reset: the trace.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from contextvars import copy_context
from random import Random
from typing import Any, cast

from tests.simulation.loop import NODE, Node, SimulatedLoop
from tests.simulation.transport import Transport

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

    def delay_us(self, link: Link, size: int = 0) -> int:
        """Draws how long something of `size` bytes takes from one host to another."""
        seconds = self.shortest_s + self.source.expovariate(1 / self.mean_s)
        return int(seconds * link.slowness * 1e6) + size // BYTES_PER_US

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
            await self._sleep_us(self.delay_us(self.link(there, node.name)))
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
        await self._sleep_us(self.delay_us(self.link(source, target)))
        server = self._servers.get(address)
        if server is None or not server.is_serving() or not server.node.is_alive:
            self.on_event("refuse", source, target, b"")
            await self._sleep_us(self.delay_us(self.link(target, source)))
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return server

    async def _sleep_us(self, us: int) -> None:
        await asyncio.sleep(us / 1e6)


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
