"""What stands between the event loop of the process and the connections of one node: a node that is paused or cut off
is not read, and what happens to its connections waits until it runs again (see node_loop.py).

A `Gate` is the protocol of the real transport; the node's protocol gets a `GatedTransport`. The bytes that the node
writes go straight to the real transport.

A transport of uvloop begins to read as soon as the connection is made, and cannot be made to cease before its next
turn. If the gate is closed, the gate keeps what is read until then, and delivers it when it opens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, TypeVarTuple, cast

READ_BYTES = 65536

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Ways(Protocol):
    """What a gate asks the network between the nodes (see network.py)."""

    def is_blocked(self, gate: Gate) -> bool:
        """Whether nothing may come in through this gate now."""

    def opened(self, gate: Gate) -> None:
        """A connection has begun."""


class OwnLoop(Protocol):
    """What the gates need of the loop of their node (see node_loop.py)."""

    node_id: int
    has_ended: bool
    gates: dict[Gate, None]
    servers: dict[GatedServer, None]

    @property
    def network(self) -> Ways: ...

    @property
    def is_held(self) -> bool: ...

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T: ...

    def notify(self, callback: Callable[[*Ts], object], *args: *Ts) -> None: ...

    def soon_below(self, callback: Callable[[], object]) -> None: ...

    def below(self, awaitable: Awaitable[T], *, is_work: bool = True) -> asyncio.Future[T]: ...

    def create_future(self) -> asyncio.Future[Any]: ...

    def connection_closed(self, gate: Gate) -> None: ...

    def process_ended(self, gate: SubprocessGate) -> None: ...


class GatedTransport:
    """The transport that the node sees. It notes whether the node wants to read."""

    def __init__(self, real: asyncio.Transport, gate: Gate) -> None:
        self._real = real
        self._gate = gate
        self.get_write_buffer_size: Callable[[], int] = real.get_write_buffer_size

    def __getattr__(self, name: str) -> Any:
        """Everything else is the real transport's."""
        return getattr(self._real, name)

    def write(self, data: Any) -> None:
        """See asyncio.WriteTransport."""
        self._gate.has_sent = True
        self._real.write(data)

    def writelines(self, parts: Any) -> None:
        """See asyncio.WriteTransport."""
        self._gate.has_sent = True
        self._real.writelines(parts)

    def pause_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._gate.is_wanted = False
        self._gate.refresh()

    def resume_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._gate.is_wanted = True
        self._gate.refresh()

    def write_eof(self) -> None:
        """See asyncio.WriteTransport."""
        self._gate.has_sent = self._gate.has_written_the_end = True
        self._real.write_eof()

    def is_reading(self) -> bool:
        """See asyncio.ReadTransport."""
        return self._gate.is_wanted

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See asyncio.BaseTransport."""
        protocol: asyncio.BaseProtocol = self._gate.protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See asyncio.BaseTransport."""
        self._gate.protocol = protocol


class Gate(asyncio.BufferedProtocol):
    """One connection of the node. `purpose` and `is_outgoing` are for the network: see there."""

    def __init__(
        self, loop: OwnLoop, protocol: asyncio.BaseProtocol, *, purpose: str = "", is_outgoing: bool = False
    ) -> None:
        self.loop = loop
        self.protocol: Any = protocol
        self.purpose = purpose
        self.is_outgoing = is_outgoing
        self.is_wanted = True
        """Whether the node wants to read."""
        self.has_sent = True
        """Whether the node may have sent something since somebody looked whether all of it has arrived. It starts as
        True, and stays so if TLS is below the gate, which sends what the gate does not see."""
        self.has_written_the_end = False
        """Whether the node will send nothing more, and has not closed the connection."""
        self.has_heard_the_end = False
        """Whether the node knows that nothing more will come."""
        self.transport: GatedTransport | None = None
        self._real: asyncio.Transport | None = None
        self._is_settled = False
        """Whether the real transport has begun to read, and can be made to cease."""
        self._is_reading = True
        self._scratch = b"" if hasattr(protocol, "get_buffer") else bytearray(READ_BYTES)
        """For a protocol that has no buffer of its own."""
        self._early: bytes | bytearray = b""
        """The buffer for what is read although the gate is closed."""
        self._kept = bytearray()
        """What was read before the gate opened, and is not delivered yet."""

    @property
    def is_open(self) -> bool:
        """Whether what arrives is delivered to the node now."""
        return self.is_wanted and not self.loop.is_held and not self.loop.network.is_blocked(self)

    @property
    def is_being_closed(self) -> bool:
        """Whether the node has closed the connection, everything is written, and only its callback is missing."""
        real = self._real
        return real is not None and real.is_closing() and not real.get_write_buffer_size()

    @property
    def has_tls_below(self) -> bool:
        """Whether the real transport encrypts."""
        return self.get_extra_info("sslcontext") is not None

    @property
    def unwritten(self) -> int:
        """How many bytes the system has yet to take."""
        return 0 if self._real is None else self._real.get_write_buffer_size()

    def fileno(self) -> int:
        """Returns the descriptor of the socket, a negative number if it is closed."""
        descriptor: int = self.get_extra_info("socket").fileno()
        return descriptor

    def refresh(self) -> None:
        """Begins or ceases to read, as the node, its state and the network have it."""
        real = self._real
        if not self._is_settled or real is None or real.is_closing():
            return
        is_open = self.is_open
        if is_open and self._kept:
            self.loop.soon_below(self._deliver)
        elif is_open != self._is_reading:
            self._is_reading = is_open
            if is_open:
                real.resume_reading()
            else:
                real.pause_reading()

    def _must_keep(self) -> bool:
        """Whether what is read now must wait: the gate is closed, or earlier bytes are waiting."""
        return bool(self._kept) or not (self._is_settled or self.is_open)

    def _deliver(self) -> None:
        """Delivers what was kept, as long as the gate is open. Then reads on."""
        real = self._real
        while self._kept and self.is_open and real is not None and not real.is_closing():
            buffer = memoryview(self._own_buffer(len(self._kept)))
            part = self._kept[: len(buffer)]
            buffer[: len(part)] = part
            del self._kept[: len(part)]
            self._take(len(part))
        if not self._kept:
            self.refresh()

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._real is not None:
            self._real.abort()

    def get_extra_info(self, name: str) -> Any:
        """See asyncio.BaseTransport."""
        return None if self._real is None else self._real.get_extra_info(name)

    # Called by the real transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        real = self._real = cast(asyncio.Transport, transport)
        if self.loop.has_ended:
            real.abort()
            return
        self.transport = GatedTransport(real, self)
        self.loop.gates[self] = None
        self.loop.network.opened(self)
        self.loop.soon_below(self._settle)
        self.loop.notify(self.protocol.connection_made, self.transport)

    def _settle(self) -> None:
        """Transports begin to read after `connection_made`, whatever happens within it. From now on they can cease."""
        self._is_settled = True
        self.refresh()

    def get_buffer(self, sizehint: int) -> Any:
        """See asyncio.BufferedProtocol."""
        if self._must_keep():
            self._early = bytearray(READ_BYTES)
            return self._early
        return self._own_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        if self._must_keep():
            self._kept += self._early[:nbytes]
        else:
            self._take(nbytes)

    def eof_received(self) -> bool | None:
        """See asyncio.BufferedProtocol. The transport ceases to read. When it reads on, the end comes again."""
        if self._must_keep():
            self._is_reading = False
            return True
        self.has_heard_the_end = True
        return bool(self.loop.call(self.protocol.eof_received))

    def _own_buffer(self, sizehint: int) -> Any:
        """The node's buffer."""
        return self._scratch or self.protocol.get_buffer(sizehint)

    def _take(self, nbytes: int) -> None:
        """The node receives what is in its buffer."""
        if self._scratch:
            self.loop.call(self.protocol.data_received, bytes(self._scratch[:nbytes]))
        else:
            self.loop.call(self.protocol.buffer_updated, nbytes)

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self.loop.notify(self.protocol.pause_writing)

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self.loop.notify(self.protocol.resume_writing)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self.loop.connection_closed(self)
        self.loop.notify(self.protocol.connection_lost, exc)


class GatedServer(asyncio.AbstractServer):
    """A listening server of the node."""

    def __init__(self, loop: OwnLoop, server: asyncio.Server) -> None:
        self._loop = loop
        self._server = server

    @property
    def sockets(self) -> tuple[Any, ...]:
        """See asyncio.Server."""
        return tuple(self._server.sockets)

    def close(self) -> None:
        """See asyncio.Server."""
        self._loop.servers.pop(self, None)
        self._server.close()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """See asyncio.Server."""
        return cast(asyncio.AbstractEventLoop, self._loop)

    def is_serving(self) -> bool:
        """See asyncio.Server."""
        return self._server.is_serving()

    async def start_serving(self) -> None:
        """See asyncio.Server."""
        await self._loop.below(self._server.start_serving())

    async def serve_forever(self) -> None:
        """See asyncio.Server."""
        await self._loop.below(self._server.serve_forever(), is_work=False)

    async def wait_closed(self) -> None:
        """See asyncio.Server."""
        await self._loop.below(self._server.wait_closed(), is_work=False)


class _Pipe:
    """The standard input of a child process, as the node sees it. `given()` is called whenever the node uses it."""

    def __init__(self, real: Any, given: Callable[[], None]) -> None:
        self._real = real
        self._given = given

    def __getattr__(self, name: str) -> Any:
        if name in ("write", "writelines", "write_eof", "close"):
            self._given()
        return getattr(self._real, name)


class _Child:
    """A subprocess's transport, as the node sees it."""

    def __init__(self, real: Any, loop: OwnLoop, given: Callable[[], None]) -> None:
        self._real = real
        self._loop = loop
        self._given = given

    def get_pipe_transport(self, fd: int) -> Any:
        """See asyncio.SubprocessTransport."""
        real = self._real.get_pipe_transport(fd)
        return _Pipe(real, self._given) if fd == 0 and real is not None else real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def _wait(self) -> int:
        """asyncio's Process waits here for the end."""
        status: int = await self._loop.below(self._real._wait())
        return status


class SubprocessGate(asyncio.SubprocessProtocol):
    """A child process of the node. It works from when it has been given something until it answers with a line, or has
    ended.
    """

    def __init__(self, loop: OwnLoop, protocol: asyncio.SubprocessProtocol) -> None:
        self.loop = loop
        self.protocol = protocol
        self.transport: _Child | None = None
        self.is_working = False
        self._real: asyncio.SubprocessTransport | None = None

    def kill(self) -> None:
        """Ends the child process."""
        if self._real is not None:
            self._real.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._real = cast(asyncio.SubprocessTransport, transport)
        self.transport = _Child(transport, self.loop, self._works)
        self.loop.notify(self.protocol.connection_made, cast(asyncio.BaseTransport, self.transport))

    def _works(self) -> None:
        self.is_working = True

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """See asyncio.SubprocessProtocol."""
        if fd == 1 and data.endswith(b"\n"):
            self.is_working = False
        self.loop.notify(self.protocol.pipe_data_received, fd, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """See asyncio.SubprocessProtocol."""
        self.loop.notify(self.protocol.pipe_connection_lost, fd, exc)

    def process_exited(self) -> None:
        """See asyncio.SubprocessProtocol."""
        self.loop.notify(self.protocol.process_exited)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self.loop.process_ended(self)
        self.loop.notify(self.protocol.connection_lost, exc)
